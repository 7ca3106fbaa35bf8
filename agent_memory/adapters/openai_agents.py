"""OpenAI Agents SDK: a ``Session`` over any of our storages.

session = AgentMemorySession(SummarizingChatStorage(...), "conversation-1", user_id="anna")
await Runner.run(agent, "Hello", session=session)
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import groupby
from typing import Any, Final

import attrs

from agent_memory.content import thaw
from agent_memory.errors import InvalidRequestError, MissingDependencyError
from agent_memory.keys import ChatKey
from agent_memory.messages import ConversationMessage
from agent_memory.providers import from_openai_responses, to_openai_responses
from agent_memory.providers.conversion import dump, to_plain
from agent_memory.providers.openai_responses import FORMAT
from agent_memory.providers.part import as_dict
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.wrapper import checked_storage

try:
    # Taken at run time, so that type checkers need not have the SDK.
    _settings_module: Any = import_module("agents.memory.session_settings")
except ImportError as error:
    raise MissingDependencyError("openai-agents", "openai-agents") from error

_SOURCE: Final = "openai_agents"
"""Key in ``metadata`` of what a session saved: such messages are handed out as they came."""


class AgentMemorySession:
    """The SDK's ``Session`` over one chat of a storage.

    ``get_items`` gives the view: around a storage, a :class:`~agent_memory.SummarizingChatStorage`
    (with ``provider="openai_responses"``) keeps that short. The raw log keeps every item.
    ``pop_item`` and ``clear_session`` retract: what is popped or cleared is in no view and no
    summary any more, while the log, for audits, has the items and a note of their retraction.

    Args:
        storage: ours; whoever made it closes it. Many sessions may share it.
        session_id: which conversation.
        user_id: whose; sessions of different users never meet, whatever their ids.
        agent_id: names the chat within the session, which all agents of a run share.
        session_settings: the SDK's ``SessionSettings``, or a dict of them; its `limit` is that of
            ``get_items`` where none is given.
        erase_on_clear: whether ``clear_session`` deletes for good instead of retracting.

    Attributes:
        session_id: as given.
        session_settings: as given, or the SDK's defaults.

    Raises:
        InvalidRequestError: an argument is invalid.
        TypeError: a dict of settings has a name that the SDK does not know.
    """

    def __init__(
        self,
        storage: ChatStorage,
        session_id: str,
        *,
        user_id: str = "default",
        agent_id: str = "session",
        session_settings: Any = None,
        erase_on_clear: bool = False,
    ) -> None:
        self._key = ChatKey(user_id, session_id, agent_id)
        self._storage = checked_storage(storage)
        self._erase_on_clear = erase_on_clear
        self.session_id = session_id
        self.session_settings: Any = _settings(session_settings)

    def __repr__(self) -> str:
        return f"AgentMemorySession({self._key}, {self._storage!r})"

    @property
    def key(self) -> ChatKey:
        """Which chat of the storage it is."""
        return self._key

    @property
    def storage(self) -> ChatStorage:
        """The storage it is kept in."""
        return self._storage

    async def get_items(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return what the model should see, oldest first, as items that may be edited.

        Args:
            limit: at most this many of the newest items (with a summarizing storage an exchange of
                calls and results is never cut in two, and may exceed it); None for the limit of
                `session_settings`, or all.

        Raises:
            InvalidRequestError: `limit` is negative or not an int.
        """
        if limit is None:
            limit = self.session_settings.limit
        return _items(await self._storage.fetch_chat(*self._ids, limit))

    async def add_items(self, items: Sequence[Any]) -> None:
        """Append items, all of them or none.

        Args:
            items: Responses items of any type: dicts, or the SDK's objects. A dict without type
                and role, such as an ``EncryptedSession`` makes, is kept as it is.

        Raises:
            InvalidRequestError: an item is not valid; nothing is stored.
            StorageError: they could not be stored.
        """
        await self._storage.save_chat_messages(*self._ids, [_message(item) for item in items])

    async def pop_item(self) -> dict[str, Any] | None:
        """Retract the newest item and return it; None when there is none.

        With a summarizing storage that is the newest of the raw log: a summary is not an item.
        """
        message = await self._storage.retract_newest(*self._ids)
        return None if message is None else _items([message])[0]

    async def clear_session(self, *, erase: bool | None = None) -> None:
        """Retract all items.

        Args:
            erase: delete them for good, from the log too; None for `erase_on_clear`.
        """
        if self._erase_on_clear if erase is None else erase:
            await self._storage.delete_chat(*self._ids)
        else:
            await self._storage.clear(*self._ids)

    @property
    def _ids(self) -> tuple[str, str, str]:
        return (self._key.user_id, self._key.session_id, self._key.agent_id)


def _settings(given: Any) -> Any:
    if given is None:
        return _settings_module.SessionSettings()
    if isinstance(given, dict):
        # Releases that have it refuse unknown names, which the class itself ignores.
        coerce = getattr(_settings_module, "coerce_session_settings", None)
        return coerce(given) if coerce else _settings_module.SessionSettings(**given)
    if not isinstance(given, _settings_module.SessionSettings):
        raise InvalidRequestError(
            f"session_settings must be the SDK's SessionSettings, not {type(given).__name__}"
        )
    return given


def _message(item: Any) -> ConversationMessage:
    plain = to_plain(item)
    missing = _missing_type(plain)
    if missing is None:
        (message,) = from_openai_responses([plain])
        return attrs.evolve(message, metadata={_SOURCE: {}})
    (message,) = from_openai_responses([{**plain, "type": missing}])
    return attrs.evolve(message, metadata={_SOURCE: {"item": plain}})


def _missing_type(plain: Any) -> str | None:
    """Return the type under which to read an item that has none, and is no message."""
    item = as_dict(plain)
    if not item or item.get("type") is not None or "role" in item or "content" in item:
        return None  # with a content it is a message whose role was forgotten
    # A reference is the one item of the API's that may do without a type. Others are those of
    # sessions around this one, such as the SDK's EncryptedSession: they come back as they are.
    return "item_reference" if {*item} - {"type"} == {"id"} else "opaque"


def _items(messages: Sequence[ConversationMessage]) -> list[dict[str, Any]]:
    """Return messages as items: a session's own as they came, others in the Responses form."""
    items: list[dict[str, Any]] = []
    for is_own, together in groupby(messages, lambda message: _SOURCE in message.metadata):
        neighbours = list(together)
        items += map(_item, neighbours) if is_own else to_openai_responses(neighbours)
    return items


def _item(message: ConversationMessage) -> dict[str, Any]:
    source = as_dict(message.metadata.get(_SOURCE)) or {}
    item: dict[str, Any] = thaw(source["item"]) if "item" in source else dump(message, FORMAT)
    return item
