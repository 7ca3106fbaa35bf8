"""agent-squad (1.1): its orchestrator over our storages, and its storages as ours.

AgentSquad(storage=AgentSquadChatStorage(SummarizingChatStorage(...)), ...)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from typing import Any, Final, cast

from agent_memory.adapters.agent_squad_backed import AgentSquadBackedStorage
from agent_memory.attribution import attribute_to_agents
from agent_memory.content import thaw
from agent_memory.errors import InvalidRequestError, MissingDependencyError
from agent_memory.messages import ConversationMessage
from agent_memory.providers import parts
from agent_memory.providers.conversion import to_plain
from agent_memory.providers.part import as_dict
from agent_memory.storage.base import ChatStorage
from agent_memory.summarizers.base import SummarizerFunction
from agent_memory.validation import checked_count

try:
    # It has no types for checkers: what comes from it is Any.
    _storage: Any = import_module("agent_squad.storage")
    _types: Any = import_module("agent_squad.types")
except ImportError as error:
    raise MissingDependencyError("agent-squad", "agent-squad") from error

_TheirStorage = _storage.ChatStorage
_TheirMessage = _types.ConversationMessage
_TheirTimestamped = _types.TimestampedMessage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_BOUND: Final = "max_history_size"
_METADATA: Final = "agent_squad"


def to_agent_memory(message: Any, **fields: Any) -> ConversationMessage:
    """Return one of agent-squad's messages as ours: role, content, citations, timestamp.

    Args:
        message: theirs; the timestamp of a ``TimestampedMessage`` (milliseconds) is kept, any
            other message gets the time now.
        fields: further arguments of our message, such as ``id`` or ``metadata``.

    Raises:
        InvalidRequestError: it is not a message of theirs, or holds what a message cannot.
    """
    if not isinstance(message, _TheirMessage):
        raise InvalidRequestError(
            "a message must be agent-squad's ConversationMessage or TimestampedMessage, not "
            f"{type(message).__name__}"
        )
    theirs: Any = message
    if theirs.citations is not None:
        fields["extra"] = {"citations": to_plain(theirs.citations)}
    if isinstance(theirs, _TheirTimestamped):
        fields["timestamp"] = _moment(theirs.timestamp)
    role = getattr(theirs.role, "value", theirs.role)
    return ConversationMessage(role, to_plain(theirs.content), **fields)


def to_agent_squad(message: ConversationMessage, *, timestamped: bool = False) -> Any:
    """Return one of our messages as agent-squad's, its content a copy to do with as one likes.

    Theirs holds role, content and citations, and a timestamp in milliseconds; ids, runs, usage,
    metadata and other ``extra`` fields have no place in it.

    Args:
        message: ours.
        timestamped: whether to give a ``TimestampedMessage``. Their agents send its timestamp to
            the model's provider, which refuses it: their storages do not hand it out either.
    """
    content, citations = thaw(message.content), thaw(message.extra.get("citations"))
    if not timestamped:
        return _TheirMessage(message.role.value, content, citations)
    made = _TheirTimestamped(message.role.value, content)
    made.citations = citations
    made.timestamp = (message.timestamp - _EPOCH) // _MILLISECOND
    return made


def agent_squad_summarizer(function: Callable[..., Any]) -> SummarizerFunction:
    """Return a summarizer function of ours for one that returns agent-squad's messages.

    SummarizingChatStorage(storage, agent_squad_summarizer(summarize))

    Args:
        function: ``(history, keep_last) -> list``, plain or async. It is given our messages,
            which have ``role`` and ``content`` as theirs have; it may return these, theirs, dicts
            and any other objects with a role and content, mixed as it likes.

    Raises:
        InvalidRequestError: when the function is called, by the messages that it returns: one
            has no role or no content, or what a message cannot hold.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def summarize_async(history: list[ConversationMessage], keep_last: int) -> Any:
            return _as_ours(await function(history, keep_last))

        return summarize_async

    @functools.wraps(function)
    def summarize(history: list[ConversationMessage], keep_last: int) -> Any:
        answer = function(history, keep_last)
        return _awaited(answer) if inspect.isawaitable(answer) else _as_ours(answer)

    return summarize


async def _awaited(answer: Any) -> Any:
    return _as_ours(await answer)


def _as_ours(answer: Any) -> Any:
    """Convert the messages of an answer; what is no list at all is left to who checks it."""
    items: Any = answer
    return [_any_message(item) for item in items] if isinstance(answer, list | tuple) else answer


def _any_message(message: Any) -> ConversationMessage:
    if isinstance(message, ConversationMessage):
        return message
    if isinstance(message, _TheirMessage):
        return to_agent_memory(message)
    fields = as_dict(message)
    role = getattr(message, "role", None) if fields is None else fields.get("role")
    content = getattr(message, "content", None) if fields is None else fields.get("content")
    if role is None or content is None:
        kind: Any = type(cast("object", message))
        raise InvalidRequestError(
            "a summarizer must return messages with role and content, not "
            f"{kind.__module__}.{kind.__qualname__}"
        )
    return ConversationMessage(getattr(role, "value", role), to_plain(content))


def _moment(milliseconds: Any) -> datetime:
    try:
        return _EPOCH + int(milliseconds) * _MILLISECOND
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequestError(
            f"timestamp must be milliseconds since 1970, not {milliseconds!r}"
        ) from error


class AgentSquadChatStorage(_TheirStorage):  # type: ignore[misc,valid-type]  # it is Any
    """agent-squad's ``ChatStorage`` over any storage of ours.

    Every message stays in the store. The `max_history_size` that the orchestrator passes on each
    save bounds what :meth:`fetch_chat` gives when it is not told otherwise: it is kept with the
    message (``metadata["agent_squad"]``), so that it survives restarts and reaches other workers.

    It works wherever the storage inside does: on any tasks, threads and event loops, so also
    under a ``SupervisorAgent``, which calls it through ``asyncio.run`` in worker threads.

    Args:
        storage: ours; around it a :class:`~agent_memory.SummarizingChatStorage` keeps what the
            agents see short. Whoever made it closes it.
        drop_repeated_roles: do as their storages do: a single message whose role is that of the
            chat's newest one is not saved.
        trim_on_save: do as their storages do: a save with a `max_history_size` removes older
            messages for good (of an odd number one less is kept; below 2 nothing is removed).
            Each such removal makes summaries of the chat void.

    Raises:
        InvalidRequestError: `storage` is not one of ours.
    """

    def __init__(
        self,
        storage: ChatStorage,
        *,
        drop_repeated_roles: bool = False,
        trim_on_save: bool = False,
    ) -> None:
        given = cast("object", storage)
        if not isinstance(given, ChatStorage):
            raise InvalidRequestError(
                f"storage must be an agent_memory ChatStorage, not {type(given).__name__}; "
                "from_agent_squad() makes one of agent-squad's"
            )
        super().__init__()  # pyright: ignore[reportUnknownMemberType]  # it is Any
        self._storage = storage
        self._drop_repeated_roles = drop_repeated_roles
        self._trim_on_save = trim_on_save

    def __repr__(self) -> str:
        return f"AgentSquadChatStorage({self._storage!r})"

    @property
    def inner(self) -> ChatStorage:
        """The storage inside: the raw log, for audits."""
        return self._storage

    async def save_chat_message(
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        new_message: Any,
        max_history_size: int | None = None,
    ) -> bool:
        """Save a message; return whether it was, which `drop_repeated_roles` may prevent.

        Raises:
            InvalidRequestError: an argument is not a valid id, message or number.
            StorageError: it could not be stored.
        """
        message = _bounded(new_message, max_history_size)
        if self._drop_repeated_roles:
            newest = await self._storage.fetch_chat(user_id, session_id, agent_id, 1)
            if newest and newest[-1].role == message.role:
                return False
        await self._save((user_id, session_id, agent_id), [message], max_history_size)
        return True

    async def save_chat_messages(
        self,
        user_id: str,
        session_id: str,
        agent_id: str,
        new_messages: Sequence[Any],
        max_history_size: int | None = None,
    ) -> bool:
        """Save messages, all of them or none; see :meth:`save_chat_message`."""
        messages = [_bounded(message, max_history_size) for message in new_messages]
        await self._save((user_id, session_id, agent_id), messages, max_history_size)
        return True

    async def _save(
        self, ids: tuple[str, str, str], messages: list[ConversationMessage], bound: int | None
    ) -> None:
        await self._storage.save_chat_messages(*ids, messages)
        keep = 0 if bound is None else bound - bound % 2
        if self._trim_on_save and keep > 0:
            await self._storage.trim_chat(*ids, keep)

    async def fetch_chat(
        self, user_id: str, session_id: str, agent_id: str, max_history_size: int | None = None
    ) -> list[Any]:
        """Return what the agent should see, oldest first.

        Args:
            user_id, session_id, agent_id: which chat.
            max_history_size: at most this many messages; None for the number that came with the
                newest save, if one did.
        """
        limit = max_history_size
        if limit is None:
            newest = await self._storage.fetch_chat(user_id, session_id, agent_id, 1)
            if not newest:
                return []
            limit = _bound_of(newest[-1])
        view = await self._storage.fetch_chat(user_id, session_id, agent_id, limit)
        return [to_agent_squad(message) for message in view]

    async def fetch_all_chats(self, user_id: str, session_id: str) -> list[Any]:
        """Return every message of a session, of all its agents, for a classifier to read.

        The first text of what an agent said begins with its id in brackets; every other part of
        a message is there, too. Text comes first, because their classifiers read nothing but
        ``content[0]["text"]``: where there is none, a few words say what is there instead.
        """
        raw = await self._storage.fetch_all_chats(user_id, session_id)
        return [_led_by_text(message) for message in attribute_to_agents(raw)]


def from_agent_squad(storage: Any, *, agents: Iterable[str] = ()) -> ChatStorage:
    """Return one of agent-squad's storages as one of ours, as far as it can be.

    What theirs cannot hold is not promised; see
    :class:`agent_memory.adapters.agent_squad_backed.AgentSquadBackedStorage`.

    Args:
        storage: theirs.
        agents: ids of agents, to find their chats by: theirs cannot list chats.

    Raises:
        InvalidRequestError: `storage` is not one of theirs.
    """
    if isinstance(storage, AgentSquadChatStorage):
        return storage.inner
    if not isinstance(storage, _TheirStorage):
        raise InvalidRequestError(
            f"storage must be an agent-squad ChatStorage, not {type(storage).__name__}"
        )
    return AgentSquadBackedStorage(
        storage,
        agents,
        to_ours=to_agent_memory,
        to_theirs=partial(to_agent_squad, timestamped=True),
    )


def _bounded(message: Any, bound: int | None) -> ConversationMessage:
    if bound is None:
        return to_agent_memory(message)
    checked_count(bound, _BOUND)
    return to_agent_memory(message, metadata={_METADATA: {_BOUND: bound}})


def _bound_of(message: ConversationMessage) -> int | None:
    bound = (as_dict(message.metadata.get(_METADATA)) or {}).get(_BOUND)
    return bound if type(bound) is int and bound >= 0 else None


def _led_by_text(message: ConversationMessage) -> Any:
    made = to_agent_squad(message)
    blocks: list[Any] = [{"text": made.content}] if isinstance(made.content, str) else made.content
    blocks = blocks or []
    texts = [index for index, block in enumerate(blocks) if _is_text(block)]
    lead = blocks.pop(texts[0]) if texts else {"text": _stand_in(message)}
    made.content = [lead, *blocks]
    return made


def _is_text(block: Any) -> bool:
    return isinstance((as_dict(block) or {}).get("text"), str)


def _stand_in(message: ConversationMessage) -> str:
    said = ", ".join(f"{part.kind} {part.name or ''}".strip() for part in parts(message))
    prefix = f"[{message.agent_id}] " if message.role.value == "assistant" else ""
    return f"{prefix}({said})" if said else prefix.strip()
