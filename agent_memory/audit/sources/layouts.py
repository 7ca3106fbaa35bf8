"""The tables of other libraries: how they are recognised and what their rows say.

Sources: the published packages agent-squad 1.1.4 (``storage/sql_chat_storage.py``),
openai-agents 0.24 (``memory/sqlite_session.py``, ``extensions/memory/sqlalchemy_session.py``)
and langchain-community 0.4 (``chat_message_histories/sql.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs

from agent_memory.audit.chunks import DefaultIds, parsed
from agent_memory.audit.sources.messages import langchain_message
from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.providers import from_bedrock, from_openai, from_openai_responses
from agent_memory.providers.part import as_dict

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@attrs.frozen
class Layout:
    """One library's table of messages.

    Args:
        name: what the format is called.
        table: the table's usual name.
        chat: the columns that name the chat.
        number: the column that orders its messages, and identifies them.
        values: the columns with what the message says.
        read: makes a message of number and values.
    """

    name: str
    table: str
    chat: tuple[str, ...]
    number: str
    values: tuple[str, ...]
    read: Callable[[int, Sequence[Any]], ConversationMessage]

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, the chat's first."""
        return (*self.chat, self.number, *self.values)

    def key(self, chat: Sequence[Any], ids: DefaultIds) -> ChatKey:
        """Return the key for the values of the chat's columns.

        Raises:
            InvalidRequestError: one is not a valid id.
        """
        if len(chat) == 1:
            return ChatKey(ids.user_id, chat[0], ids.agent_id)
        user_id, session_id, agent_id = chat
        return ChatKey(user_id, session_id, agent_id)


def from_milliseconds(value: object) -> datetime:
    """Return the moment that many milliseconds after 1970.

    Raises:
        InvalidRequestError: it is out of range.
    """
    try:
        return _EPOCH + timedelta(milliseconds=int(str(value)))
    except (ValueError, OverflowError):
        raise InvalidRequestError(f"its timestamp {value!r} is not a time") from None


def agent_squad_message(
    role: object, content: Any, timestamp: object, message_id: str
) -> ConversationMessage:
    """Make a message of what agent-squad stores: Bedrock's form, and milliseconds."""
    (message,) = from_bedrock([{"role": _role(role), "content": content}])
    return attrs.evolve(message, id=message_id, timestamp=from_milliseconds(timestamp))


def _role(role: object) -> object:
    # An enum formatted as text is its name, such as ParticipantRole.USER.
    return role.rpartition(".")[2].lower() if isinstance(role, str) else role


def _read_agent_squad(number: int, values: Sequence[Any]) -> ConversationMessage:
    role, content, timestamp = values
    return agent_squad_message(role, loads(content), timestamp, f"agent-squad-{number}")


def _read_openai_agents(number: int, values: Sequence[Any]) -> ConversationMessage:
    data, created_at = values
    item = as_dict(loads(data))
    if item is None:
        raise InvalidRequestError("it is not an item of a conversation")
    reading = from_openai_responses if isinstance(item.get("type"), str) else from_openai
    (message,) = reading([item])
    return attrs.evolve(
        message, id=f"openai-agents-{number}", timestamp=_moment(created_at) or message.timestamp
    )


def _read_langchain(number: int, values: Sequence[Any]) -> ConversationMessage:
    return langchain_message(loads(values[0]), f"langchain-{number}")


def loads(column: object) -> Any:
    """Return what a JSON column holds, whether the driver has read it already or not.

    Raises:
        InvalidRequestError: it is not JSON.
    """
    return parsed(column) if isinstance(column, str | bytes) else column


def _moment(value: object) -> datetime | None:
    """Return a column's timestamp; these tables store UTC without an offset."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


LAYOUTS: Final = (
    Layout(
        "agent-squad",
        "conversations",
        ("user_id", "session_id", "agent_id"),
        "message_index",
        ("role", "content", "timestamp"),
        _read_agent_squad,
    ),
    Layout(
        "openai-agents",
        "agent_messages",
        ("session_id",),
        "id",
        ("message_data", "created_at"),
        _read_openai_agents,
    ),
    Layout("langchain", "message_store", ("session_id",), "id", ("message",), _read_langchain),
)
"""Every layout that can be read."""
