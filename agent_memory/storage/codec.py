"""The one form in which messages, notes and summary records are stored: JSON text.

JSON carries most of a message's content as it stands. What it cannot carry is written as a
*tagged* object with the single key ``"$agent_memory"``: bytes, strings with lone surrogates,
and, so that no user data is ever mistaken for a tag, dicts that have that key themselves.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast

import attrs

from agent_memory.content import frozen_of
from agent_memory.errors import CorruptedRecordError
from agent_memory.log import Covered, Entry, Note, SummaryRecord
from agent_memory.messages import (
    NOTHING,
    ROLES,
    ConversationMessage,
    Usage,
    stored_message,
)

VERSION: Final = 1
"""The version of the form. A reader refuses anything newer than it knows."""

_TAG: Final = "$agent_memory"
_TAG_TEXT: Final = json.dumps(_TAG)
_scan = json.JSONDecoder().raw_decode
_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def encode_entry(entry: Entry) -> str:
    """Return the entry as one line of JSON that UTF-8 can hold; position and agent left out."""
    if isinstance(entry, Note):
        return _encode(_note_fields(entry))
    return _encode(_message_fields(entry))


def decode_entry(text: str | bytes, position: int, agent_id: str, *, location: str = "") -> Entry:
    """Return the entry that :func:`encode_entry` wrote.

    Raises:
        CorruptedRecordError: the text is not an entry, or was written by a newer version.
    """
    plain = decode_plain(text, position, agent_id)
    if plain is not None:
        return plain
    return entry_of(parse(text, location=location), position, agent_id, location=location)


def decode_plain(text: Any, position: int, agent_id: str) -> ConversationMessage | None:
    """Decode what nearly every entry is, at C speed: large reads spend their time here.

    Returns:
        None for anything but the text of a message without tags, written by this version:
        a note, bytes, damage. :func:`decode_entry` tells which.
    """
    try:
        fields, end = _scan(text)
        # Another object for the number 1 would only mean the long way.
        if end != len(text) or _TAG_TEXT in text or fields["v"] is not VERSION or "note" in fields:
            return None
        return _message(fields, position, agent_id)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None


def entry_of(
    fields: Mapping[str, Any], position: int, agent_id: str, *, location: str = ""
) -> Entry:
    """Return the entry whose parsed fields these are; see :func:`decode_entry`."""
    try:
        if "note" in fields:
            return _note(fields).placed(position, agent_id)
        return _message(fields, position, agent_id)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptedRecordError(
            f"no readable message at {location or f'position {position}'}: {error!r}",
            location=location,
        ) from error


def encode_record(record: SummaryRecord) -> str:
    """Return a summary record as one line of JSON that UTF-8 can hold."""
    # The stored names are those that a record is made with; an attribute may have another one.
    named = {field.alias: getattr(record, field.name) for field in attrs.fields(SummaryRecord)}
    fields: dict[Any, Any] = {"v": VERSION, **named}
    # A summary may hold messages of the log too: an open question, or what was kept as it is.
    for name, messages in (("summary", record.summary), ("head", record.head)):
        fields[name] = [
            {**_message_fields(message), "position": message.position} for message in messages
        ]
    fields["covered"] = attrs.asdict(record.covered)
    fields["usage"] = None if record.usage is None else attrs.asdict(record.usage)
    fields["created_at"] = record.created_at.isoformat()
    return _encode(fields)


def decode_record(text: str | bytes, agent_id: str, *, location: str = "") -> SummaryRecord:
    """Return the record that :func:`encode_record` wrote.

    Raises:
        CorruptedRecordError: the text is not a record, or was written by a newer version.
    """
    fields = parse(text, location=location)
    try:
        fields.pop("v")
        decoded: dict[str, Any] = {
            **fields,
            "summary": _placed_messages(fields["summary"], agent_id),
            "head": _placed_messages(fields["head"], agent_id),
            "covered": Covered(**fields["covered"]),
            "usage": _usage(fields["usage"]),
            "created_at": datetime.fromisoformat(fields["created_at"]),
        }
        return SummaryRecord(**decoded)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptedRecordError(
            f"no readable summary record at {location}: {error!r}", location=location
        ) from error


def _placed_messages(
    items: list[dict[str, Any]], agent_id: str
) -> tuple[ConversationMessage, ...]:
    return tuple(
        _message(item, position, None if position is None else agent_id)
        for item in items
        for position in [item.get("position")]
    )


def parse(text: str | bytes, *, location: str = "") -> dict[str, Any]:
    """Return the JSON object in `text`, tags resolved, its version checked.

    Raises:
        CorruptedRecordError: it is not one, or was written by a newer version.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode()
        parsed: Any = json.loads(text)
        if _TAG_TEXT in text:
            parsed = _from_tagged(parsed)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptedRecordError(
            f"unreadable record at {location}: {error}", location=location
        ) from error
    fields = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
    version = fields.get("v")
    if type(version) is not int or version < 1:
        raise CorruptedRecordError(f"no record at {location}", location=location)
    if version > VERSION:
        raise CorruptedRecordError(
            f"the record at {location} has version {version}; this release reads up to "
            f"{VERSION}: upgrade agent-memory-storage",
            location=location,
            is_newer=True,
        )
    return fields


def _message_fields(message: ConversationMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "v": VERSION,
        "id": message.id,
        "role": message.role.value,
        "content": message.content,
        "timestamp": message.timestamp.isoformat(),
    }
    if message.extra:
        fields["extra"] = message.extra
    if message.metadata:
        fields["metadata"] = message.metadata
    if message.run_id is not None:
        fields["run_id"] = message.run_id
    if message.pinned:
        fields["pinned"] = True
    if message.usage is not None:
        fields["usage"] = attrs.asdict(message.usage)
    return fields


def _message(
    fields: Mapping[str, Any], position: int | None, agent_id: str | None
) -> ConversationMessage:
    found = fields.get
    content, usage = fields["content"], found("usage")
    extra, metadata = found("extra", NOTHING), found("metadata", NOTHING)
    return stored_message(
        ROLES[fields["role"]],
        content if type(content) is str else frozen_of(content),
        fields["id"],
        datetime.fromisoformat(fields["timestamp"]),
        found("run_id"),
        found("pinned", False),
        None if usage is None else Usage(**usage),
        extra if extra is NOTHING else frozen_of(extra),
        metadata if metadata is NOTHING else frozen_of(metadata),
        position,
        agent_id,
    )


def _usage(fields: Mapping[str, int] | None) -> Usage | None:
    return None if fields is None else Usage(**fields)


def _note_fields(note: Note) -> dict[str, Any]:
    return {
        "v": VERSION,
        "id": note.id,
        "note": note.kind,
        "data": note.data,
        "timestamp": note.timestamp.isoformat(),
    }


def _note(fields: Mapping[str, Any]) -> Note:
    return Note(
        fields["note"],
        fields["data"],
        id=fields["id"],
        timestamp=datetime.fromisoformat(fields["timestamp"]),
    )


def _encode(fields: dict[str, Any]) -> str:
    """Encode at C speed; walk the content only when it holds something JSON cannot carry."""
    try:
        text = _dump(fields)
        if _TAG_TEXT not in text and (text.isascii() or _is_unicode(text)):
            return text
    except TypeError:  # bytes
        pass
    return _dump(_to_tagged(fields))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _to_tagged(value: Any) -> Any:
    if isinstance(value, str):
        return value if _is_unicode(value) else {_TAG: ["str", _base64(_utf8(value))]}
    if isinstance(value, bytes):
        return {_TAG: ["bytes", _base64(value)]}
    if isinstance(value, dict):
        return _to_tagged_dict(cast("dict[str, Any]", value))
    if isinstance(value, list):
        return [_to_tagged(item) for item in cast("list[Any]", value)]
    return value


def _to_tagged_dict(value: dict[str, Any]) -> dict[str, Any]:
    if _TAG in value or not all(_is_unicode(key) for key in value):
        pairs = [[_to_tagged(key), _to_tagged(item)] for key, item in value.items()]
        return {_TAG: ["dict", pairs]}
    return {key: _to_tagged(item) for key, item in value.items()}


def _from_tagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_tagged(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    if _TAG not in fields:
        return {key: _from_tagged(item) for key, item in fields.items()}
    return _untagged(*fields[_TAG])


def _untagged(kind: str, payload: Any) -> Any:
    if kind == "dict":
        return {_from_tagged(key): _from_tagged(item) for key, item in payload}
    plain = base64.b64decode(payload, validate=True)
    return plain if kind == "bytes" else plain.decode("utf-8", "surrogatepass")


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _utf8(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")
