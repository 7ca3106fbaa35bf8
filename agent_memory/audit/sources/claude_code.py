"""Transcripts that Claude Code keeps: ``~/.claude/projects/*/*.jsonl``.

A line is a record with a ``type``. Those of type ``user`` and ``assistant`` hold a message in
Anthropic's format, beside its ``uuid``, ``sessionId`` and ``timestamp``; a prompt that was typed
while the agent worked is an ``attachment``. The others are bookkeeping. The format has no
published description; this follows https://github.com/oneryalcin/agent-schemas (versions 2.0 to
2.1.144) and the types named in other readers of these files.
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
from agent_memory.audit.sources.messages import check_content
from agent_memory.errors import InvalidRequestError
from agent_memory.keys import check_id
from agent_memory.messages import ChatKey, ConversationMessage, Usage
from agent_memory.providers.anthropic import usage_of
from agent_memory.providers.part import Block, as_dict, as_text

FORM: Final = "Claude Code"
LOOKS: Final = (
    'a record of Claude Code: {"type": "user" or "assistant", "uuid": …, "sessionId": …, '
    '"timestamp": …, "message": {"role": …, "content": …}}'
)
_METADATA: Final = "claude_code"
_SPOKEN: Final = ("user", "assistant")
# Bookkeeping that names no session, and the fields it has in its place.
_WITHOUT_SESSION: Final = {
    "summary": {"summary", "leafUuid"},
    "file-history-snapshot": {"messageId", "snapshot"},
    "attribution-snapshot": {"messageId"},
    "speculation-accept": {"timestamp"},
}
# Records that hold text which is no message, or that of a message once more.
_BOOKKEEPING: Final = frozenset({
    *_WITHOUT_SESSION,
    *("system", "progress", "queue-operation", "last-prompt", "task-summary"),
})  # fmt: skip
# Fields in which a record of a type that is not known could hold what somebody said.
_CARRIERS: Final = ("message", "content", "text", "prompt", "attachment")


def recognise(record: Block) -> bool:
    """Whether a record is one of Claude Code's, also one that is bookkeeping."""
    kind = record.get("type")
    if kind in _SPOKEN:
        return isinstance(record.get("sessionId"), str) and "uuid" in record
    needed = _WITHOUT_SESSION.get(as_text(kind))
    if needed is not None and needed <= record.keys():
        return True
    return isinstance(kind, str) and isinstance(record.get("sessionId"), str)


def read(path: Path, ids: DefaultIds, tally: Tally) -> Iterator[SourceEntry | Finding]:
    """Read a transcript: the session as it is named there, each subagent a chat of its own.

    Message ids are the records' own, so that reading a file again, or one that a resumed
    session began as a copy, stores nothing twice.
    """
    return read_records(path, _Transcript(ids, tally).read)


@attrs.define
class _Transcript:
    """Reads the records of one file, in order."""

    ids: DefaultIds
    tally: Tally
    billed: str = ""
    """Id of the reply that was counted last."""

    def read(self, line: Line, plain: Any) -> Iterator[SourceEntry]:
        fields = as_dict(plain)
        if fields is None or not recognise(fields):
            raise InvalidRequestError(f"expected {LOOKS}")
        kind = fields["type"]
        content = _spoken(fields, kind) if kind in _SPOKEN else _queued(fields)
        if content is None:
            self.tally.leave(_what(fields, kind))
            return
        message = ConversationMessage(
            kind if kind in _SPOKEN else "user",
            content,
            id=check_id(fields.get("uuid"), "uuid"),
            timestamp=time_in(fields.get("timestamp")),
            usage=self._usage(fields["message"]) if kind == "assistant" else None,
            metadata={_METADATA: _rest(fields)},
        )
        self.tally.read[FORM] += 1
        yield line.holding(
            ChatKey(self.ids.user_id, fields["sessionId"], _agent(fields, self.ids)), message
        )

    def _usage(self, reply: Block) -> Usage | None:
        # Each block of a reply is a line of its own, with the usage of the whole reply: counting
        # every line would multiply the cost.
        reply_id = as_text(reply.get("id"))
        if reply_id and reply_id == self.billed:
            return None
        self.billed = reply_id
        return usage_of(reply.get("usage"))


def _spoken(fields: Block, kind: str) -> Any:
    message = as_dict(fields.get("message"))
    if message is None or message.get("role") != kind:
        raise InvalidRequestError(f"its message is not of the role {kind!r}; expected {LOOKS}")
    return check_content(kind, message.get("content"))


def _queued(fields: Block) -> Any:
    """Return the prompt of an attachment that holds one; None for bookkeeping.

    Raises:
        InvalidRequestError: a record of a type that is not known, which may hold a message.
    """
    kind = fields["type"]
    attached = as_dict(fields.get("attachment"))
    if kind == "attachment" and attached is not None:
        if attached.get("type") == "queued_command":
            return check_content("user", attached.get("prompt"))
        return None
    carriers = [name for name in _CARRIERS if fields.get(name)]
    if kind not in _BOOKKEEPING and carriers:
        raise InvalidRequestError(
            f"records of type {kind!r} with {carriers[0]!r} are not known; expected {LOOKS}"
        )
    return None


def _what(fields: Block, kind: str) -> str:
    attached = as_dict(fields.get("attachment")) or {}
    narrow = fields.get("subtype") if kind == "system" else attached.get("type")
    return f"{kind} {narrow}" if isinstance(narrow, str) else kind


def _agent(fields: Block, ids: DefaultIds) -> str:
    if fields.get("isSidechain") is not True:
        return ids.agent_id
    name = fields.get("agentId")
    return f"sidechain-{name}" if isinstance(name, str) and name else "sidechain"


def _rest(fields: Block) -> Block:
    """Return everything of a record that has no place of its own in a message."""
    rest = {
        name: value for name, value in fields.items() if name not in ("message", "uuid", "type")
    }
    message = as_dict(fields.get("message")) or {}
    reply = {name: value for name, value in message.items() if name not in ("role", "content")}
    return {**rest, "message": reply} if reply else rest
