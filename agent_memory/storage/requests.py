"""Checking what callers ask of a store, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from agent_memory.errors import InvalidRequestError
from agent_memory.keys import ChatKey, check_id
from agent_memory.log import Entry, Note, is_corrupted, same_payload
from agent_memory.messages import ConversationMessage
from agent_memory.storage._engine.append_plan import conflict
from agent_memory.validation import checked_count

_SQUAD_ADVICE: Final = (
    "Within agent-squad use the adapter: AgentSquad(storage=AgentSquadChatStorage(storage)), "
    "from agent_memory.adapters.agent_squad import AgentSquadChatStorage"
)


def checked_messages(messages: object) -> list[ConversationMessage]:
    """Return a batch as a list.

    Raises:
        InvalidRequestError: it is not an iterable of messages.
    """
    if isinstance(messages, ConversationMessage):
        raise InvalidRequestError(
            "save_chat_messages takes a list of messages; for one, use save_chat_message"
        )
    if type(messages) is not list and not isinstance(messages, Iterable):
        raise InvalidRequestError(
            f"new_messages must be a list of messages, not {type(messages).__name__}"
        )
    batch = list(cast("Iterable[object]", messages))
    for index, message in enumerate(batch):
        if not isinstance(message, ConversationMessage):
            raise InvalidRequestError(
                f"new_messages[{index}] must be a ConversationMessage of agent_memory, not "
                f"{_full_name(message)}; {_advice(message)}"
            )
    return cast("list[ConversationMessage]", batch)


def checked_entries(entries: object) -> list[Entry]:
    """Return a batch of messages and notes as a list.

    Raises:
        InvalidRequestError: it is not an iterable of them, or holds a note that only stores make.
    """
    if isinstance(entries, ConversationMessage | Note):
        raise InvalidRequestError("append takes a list of messages and notes; put it into a list")
    if not isinstance(entries, Iterable):
        raise InvalidRequestError(
            f"entries must be a list of messages and notes, not {type(entries).__name__}"
        )
    batch = list(cast("Iterable[object]", entries))
    for index, entry in enumerate(batch):
        if isinstance(entry, Note):
            checked_note(entry)
        elif not isinstance(entry, ConversationMessage):
            raise InvalidRequestError(
                f"entries[{index}] must be a ConversationMessage or a Note of agent_memory, not "
                f"{_full_name(entry)}; {_advice(entry)}"
            )
    return cast("list[Entry]", batch)


def checked_ids(ids: object, name: str) -> frozenset[str]:
    """Return ids of messages, at least one.

    Raises:
        InvalidRequestError: they are not an iterable of ids, none is given, or one is invalid.
    """
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidRequestError(f"{name} must be a list of ids, not {type(ids).__name__}")
    checked = frozenset(check_id(item, name) for item in cast("Iterable[object]", ids))
    if not checked:
        raise InvalidRequestError(f"{name} must name at least one message")
    return checked


def checked_range(after: object, first: object, last: object) -> None:
    """Check the limits of a read of the log.

    Raises:
        InvalidRequestError: one is out of its range, or both `first` and `last` are given.
    """
    checked_count(after, "after")
    if first is not None:
        checked_count(first, "first", at_least=1)
    if last is not None:
        checked_count(last, "last", at_least=1)
    if first is not None and last is not None:
        raise InvalidRequestError("first and last are both given; give one of them")


def reject_further_arguments(method: str, arguments: Sequence[object]) -> None:
    """Refuse positional arguments that only agent-squad's storages take.

    Raises:
        InvalidRequestError: any are given.
    """
    if arguments:
        raise InvalidRequestError(
            f"{method} takes user_id, session_id, agent_id and what to save, and "
            f"{len(arguments)} further argument(s) came. {_SQUAD_ADVICE}"
        )


def _full_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _advice(message: object) -> str:
    if type(message).__module__.partition(".")[0] == "agent_squad":
        return _SQUAD_ADVICE
    return "make one with ConversationMessage(role, content)"


def checked_note(note: object) -> Note:
    """Return a note that may be written.

    Raises:
        InvalidRequestError: it is not a note, or of a kind that only stores make.
    """
    if not isinstance(note, Note):
        raise InvalidRequestError(f"note must be a Note, not {type(note).__name__}")
    if is_corrupted(note):
        raise InvalidRequestError("notes of kind 'corrupted' are made by stores alone")
    return note


def without_repeats(key: ChatKey, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a batch, each id once.

    Raises:
        StorageConflictError: two entries share an id and differ.
    """
    if len(entries) == 1:
        return list(entries)
    by_id: dict[str, Entry] = {}
    for entry in entries:
        known = by_id.setdefault(entry.id, entry)
        if known is not entry and not same_payload(known, entry):
            raise conflict(key, entry.id)
    return list(by_id.values())


def check_scope_ids(user_id: object, session_id: object) -> None:
    """Check the optional ids of a listing or deletion.

    Raises:
        InvalidRequestError: one is invalid, or a session is given without its user.
    """
    if user_id is not None:
        check_id(user_id, "user_id")
    if session_id is not None:
        if user_id is None:
            raise InvalidRequestError("session_id is given without user_id; give both")
        check_id(session_id, "session_id")


def check_session(user_id: object, session_id: object) -> None:
    """Check the ids that name one session: None would select those of all users.

    Raises:
        InvalidRequestError: one is invalid.
    """
    check_id(user_id, "user_id")
    check_id(session_id, "session_id")
