"""LangChain: a chat message history for ``RunnableWithMessageHistory``, over any store.

Written for langchain-core 1.x. LangChain means to drop its histories with 2.0; an agent made by
``create_agent`` needs none of that machinery::

    given = [*await history.aget_messages(), HumanMessage("Hello")]
    result = await agent.ainvoke({"messages": given})
    await history.aadd_messages(result["messages"][len(given) - 1 :])
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from agent_memory.adapters.langchain_messages import Default, from_langchain, to_langchain
from agent_memory.errors import MissingDependencyError
from agent_memory.keys import ChatKey
from agent_memory.messages import ConversationMessage
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.in_memory import InMemoryChatStorage
from agent_memory.storage.sync import SyncChatStorage
from agent_memory.storage.wrapper import checked_storage

try:
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import BaseMessage
except ImportError as error:
    raise MissingDependencyError("langchain-core", "langchain") from error

__all__ = ["AgentMemoryChatMessageHistory", "from_langchain", "to_langchain"]

_log = logging.getLogger(__name__)

# Its thread serves the blocking calls of every history in the process, whichever their store:
# one thread is enough to wait, and stays for summaries that are made behind a save.
_blocking: Final = SyncChatStorage(InMemoryChatStorage())


class AgentMemoryChatMessageHistory(BaseChatMessageHistory):
    """One chat of any store as LangChain's message history, blocking and async.

    Make one for each run, as ``RunnableWithMessageHistory`` does with the function it is given;
    it is cheap, and holds no connection of its own. Over a
    :class:`~agent_memory.SummarizingChatStorage` a chain is given the short view, while the
    store keeps every message.

    An object shows one moment: what its first read found, until messages are added or the chat
    is cleared through it. ``RunnableWithMessageHistory`` reads twice a run and takes as many
    messages off its input as it finds the second time; were the view shortened in between, or
    another run had added to it, new messages would be lost.

    LangChain only logs what adding raises after a run. The failure is logged here as an error
    too; adding the same message objects again stores none twice.

    Args:
        storage: any store; it is never closed from here.
        user_id, session_id, agent_id: which chat.
        max_history_size: at most this many of the newest messages are shown; None for all.
        erase_on_clear: what ``clear`` does. False: the messages stay in the log, and a note hides
            them from every view; the audit sees both. True: they are deleted for good.
        default: see :func:`from_langchain`.

    Every method raises what the store's own raise (:class:`~agent_memory.ChatStorage`).

    Raises:
        InvalidRequestError: an id is invalid, or `storage` is not a store.
    """

    def __init__(
        self,
        storage: ChatStorage,
        *,
        user_id: str,
        session_id: str,
        agent_id: str = "assistant",
        max_history_size: int | None = None,
        erase_on_clear: bool = False,
        default: Default | None = None,
    ) -> None:
        super().__init__()
        self._key = ChatKey(user_id, session_id, agent_id)
        self._ids = (user_id, session_id, agent_id)
        self._storage = checked_storage(storage)
        self._limit = max_history_size
        self._erases = erase_on_clear
        self._default = default
        self._shown: list[ConversationMessage] | None = None
        self._failed: tuple[list[BaseMessage], list[ConversationMessage]] | None = None

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """What the model should see; blocking."""
        return _blocking.run(self.aget_messages())

    async def aget_messages(self) -> list[BaseMessage]:
        """Return what the model should see."""
        if self._shown is None:
            self._shown = await self._storage.fetch_chat(*self._ids, self._limit)
        return to_langchain(self._shown)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages in one atomic step; blocking."""
        _blocking.run(self.aadd_messages(messages))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages in one atomic step.

        Raises:
            InvalidRequestError: a message cannot be stored; none is.
        """
        given = list(messages)
        try:
            made = self._made(given)
            self._failed = (given, made)
            await self._storage.save_chat_messages(*self._ids, made)
        except Exception:
            _log.exception("%d messages of %s were not saved", len(given), self._key)
            raise
        self._failed = None
        self._shown = None

    def clear(self) -> None:
        """Hide all messages from every view, or delete them (`erase_on_clear`); blocking."""
        _blocking.run(self.aclear())

    async def aclear(self) -> None:
        """Hide all messages from every view, or delete them (`erase_on_clear`)."""
        if self._erases:
            await self._storage.delete_chat(*self._ids)
        else:
            await self._storage.clear(*self._ids)
        self._shown = None

    def _made(self, given: list[BaseMessage]) -> list[ConversationMessage]:
        if self._failed is not None:
            before, made = self._failed
            if len(before) == len(given) and all(map(_same, before, given)):
                return made  # with the ids they had, so that what did arrive is not stored twice
        return from_langchain(given, default=self._default)


def _same(one: object, other: object) -> bool:
    return one is other
