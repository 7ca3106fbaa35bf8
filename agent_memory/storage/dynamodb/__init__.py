"""Chats in an Amazon DynamoDB table; see :class:`DynamoDbChatStorage`."""

from agent_memory.storage.dynamodb.storage import DynamoDbChatStorage

__all__ = ["DynamoDbChatStorage"]
