"""Rollouts that Codex keeps: ``~/.codex/sessions/*/*/*/rollout-*.jsonl``.

A line is ``{"timestamp": …, "type": …, "payload": {…}}``. What was sent to the model and came
from it are the lines of type ``response_item``, whose payload is an item of OpenAI's Responses;
``event_msg`` lines repeat the same for a user interface.
Source: https://github.com/openai/codex, ``codex-rs/protocol/src/protocol.rs`` (RolloutLine,
RolloutItem) and ``models.rs`` (ResponseItem).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from agent_memory.audit.chunks import (
    DefaultIds,
    Line,
    SourceEntry,
    Tally,
    read_records,
    time_in,
)
from agent_memory.audit.findings import Finding
from agent_memory.audit.sources.messages import read_response_item
from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.providers.part import Block, as_dict, as_text

FORM: Final = "Codex"
LOOKS: Final = (
    'a line of a Codex rollout: {"timestamp": …, "type": "session_meta", "response_item", '
    '"event_msg", "turn_context" or "compacted", "payload": {…}}'
)
_LEFT_OUT: Final = frozenset({"session_meta", "event_msg", "turn_context", "compacted"})
# Payloads of response items that were never sent to a model.
_NO_MESSAGES: Final = frozenset({"ghost_snapshot", "other"})


def recognise(record: Block) -> bool:
    """Whether a record is a line of a rollout."""
    return (
        {"timestamp", "type", "payload"} <= record.keys()
        and isinstance(record["type"], str)
        and as_dict(record["payload"]) is not None
    )


def read(path: Path, ids: DefaultIds, tally: Tally) -> Iterator[SourceEntry | Finding]:
    """Read a rollout into one chat, named as the session is there, else as the file.

    Message ids are made of the line's number: rollouts are only ever appended to.
    """
    session = ""

    def read_line(line: Line, plain: Any) -> Iterator[SourceEntry]:
        nonlocal session
        fields = as_dict(plain)
        if fields is None or not recognise(fields):
            raise InvalidRequestError(f"expected {LOOKS}")
        session = session or _session(fields) or path.stem
        message = _message(line.number, fields, tally)
        if message is not None:
            yield line.holding(ChatKey(ids.user_id, session, ids.agent_id), message)

    return read_records(path, read_line)


def _session(fields: Block) -> str:
    # A forked session's file repeats its parent's lines, session_meta included. Only the first
    # session_meta is its own.
    return as_text(fields["payload"].get("id")) if fields["type"] == "session_meta" else ""


def _message(number: int, fields: Block, tally: Tally) -> ConversationMessage | None:
    kind, payload = fields["type"], fields["payload"]
    narrow = as_text(payload.get("type"))
    if kind in _LEFT_OUT or (kind == "response_item" and narrow in _NO_MESSAGES):
        tally.leave(f"{kind} {narrow}".strip())
        return None
    if kind != "response_item":
        raise InvalidRequestError(f"lines of type {kind!r} are not known; expected {LOOKS}")
    message = attrs.evolve(
        read_response_item(payload),
        id=f"codex-{number}",
        timestamp=time_in(fields["timestamp"]),
    )
    tally.read[FORM] += 1
    return message
