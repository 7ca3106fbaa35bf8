"""Pydantic AI's messages, dumped, as ours, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from agent_memory.adapters.pydantic_ai_blocks import (
    MisfitError,
    Residue,
    blocks_of,
    part_of,
    span_of,
)
from agent_memory.content import thaw
from agent_memory.errors import InvalidRequestError
from agent_memory.keys import check_id
from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole, Usage
from agent_memory.providers import Part, media_in, parts
from agent_memory.providers.part import Block, as_list

KEY: Final = "pydantic_ai"
"""The key in a message's ``metadata`` of what is Pydantic AI's alone."""

MARK: Final = "agent_memory_id"
"""The key in the ``metadata`` of Pydantic AI's messages that were made here: a summary, say."""

_SYSTEM_PART: Final = "system-prompt"
# Parts that Pydantic AI adds to a request after a history processor has seen it.
_ADDED_LATER: Final = ("instruction", "-delta")


# ------------------------------------------------------------------------------------- from


def identity_of(dump: Mapping[str, Any]) -> str:
    """The id of a dumped message: the same whenever, and wherever, it is asked for.

    Its run, when it was made, and what it says. System prompts do not count (a dynamic one is
    evaluated again in each run), nor what Pydantic AI fills in later.
    """
    metadata: dict[str, Any] = dump.get("metadata") or {}
    marked = metadata.get(MARK)
    if isinstance(marked, str):
        return marked
    held = [_slim(part) for part in dump["parts"]]
    said = [part for part in held if not _is_secondary(part)] or held
    hashed = [dump["kind"], dump.get("run_id"), dump.get("timestamp"), said]
    if dump["kind"] == "request":
        hashed[2] = None  # it is the time of sending; the parts have times of their own
    text = json.dumps(hashed, sort_keys=True)
    return f"pydantic-ai-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def parts_of(dump: Mapping[str, Any]) -> set[str]:
    """What a dumped message says, part by part, in a form that can be compared."""
    return {json.dumps(_slim(part), sort_keys=True) for part in dump["parts"]}


def system_id(main_id: str) -> str:
    """The id of the system prompt that a request begins with."""
    digest = hashlib.sha256(main_id.encode()).hexdigest()[:32]
    return f"pydantic-ai-{digest}-system"


def _is_secondary(part: Mapping[str, Any]) -> bool:
    kind: str = part["part_kind"]
    return kind == _SYSTEM_PART or any(word in kind for word in _ADDED_LATER)


def load(dump: Mapping[str, Any], main: str) -> list[ConversationMessage]:
    """A dumped message as ours: one, or two when a request begins with a system prompt.

    Args:
        dump: the message.
        main: the id it gets: what :func:`identity_of` gave.
    """
    held = [_slim(part) for part in dump["parts"]]
    envelope = {name: value for name, value in _slim(dump).items() if name != "parts"}
    usage = envelope.get("usage")
    if usage is not None:
        envelope["usage"] = {name: value for name, value in usage.items() if value}
    cut = _leading_systems(held)
    if dump["kind"] == "response":
        return [_message("assistant", main, envelope, held)]
    if cut == len(held) > 0:
        return [_message("system", main, envelope, held)]
    made = [_message("user", main, envelope, held[cut:])]
    if cut:
        made.insert(0, _message("system", system_id(main), envelope, held[:cut], of=main))
    return made


def _leading_systems(held: Sequence[Mapping[str, Any]]) -> int:
    others = (index for index, part in enumerate(held) if part["part_kind"] != _SYSTEM_PART)
    return next(others, len(held))


def _slim(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is None, which is every such field's default."""
    return {name: value for name, value in fields.items() if value is not None}


def _message(
    role: str,
    name: str,
    envelope: Mapping[str, Any],
    held: Sequence[Mapping[str, Any]],
    *,
    of: str | None = None,
) -> ConversationMessage:
    pairs = [blocks_of(part) for part in held]
    blocks = [block for found, _ in pairs for block in found]
    own: dict[str, Any] = {"parts": [residue for _, residue in pairs]}
    own.update({"message": envelope} if of is None else {"of": of})
    only_text = len(blocks) == 1 and blocks[0]["type"] == "text"
    times = [envelope.get("timestamp"), *(part.get("timestamp") for part in held)]
    stamps = [stamp for stamp in map(_moment, times) if stamp is not None]
    return ConversationMessage(
        role,
        blocks[0]["text"] if only_text else blocks,
        id=name,
        timestamp=stamps[0] if stamps else datetime.now(UTC),
        run_id=_run_id(envelope.get("run_id")),
        usage=_usage(envelope.get("usage")),
        metadata={KEY: own},
    )


def _moment(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _run_id(given: object) -> str | None:
    try:
        return check_id(given, "run_id")
    except InvalidRequestError:
        return None


def _usage(reported: Mapping[str, Any] | None) -> Usage | None:
    if not reported:
        return None
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "output_reasoning_tokens")
    counts = [reported.get(name) for name in names]
    return Usage(*[count if type(count) is int and count > 0 else 0 for count in counts])


# --------------------------------------------------------------------------------------- to


@attrs.frozen
class Dumped:
    """A message of Pydantic AI's, dumped.

    Args:
        id: of our message that it was made from; of the main one, where there were two.
        dump: the message.
        of: the request that this is the system prompt of; None for anything else.
    """

    id: str
    dump: dict[str, Any]
    of: str | None = None


def dump_all(messages: Iterable[ConversationMessage]) -> list[Dumped]:
    """Our messages as Pydantic AI's; those that :func:`load` made are what they were."""
    made: list[Dumped] = []
    names: dict[str, str] = {}
    for message in messages:
        own: dict[str, Any] = thaw(message.metadata.get(KEY, {}))
        held = _rebuilt(message, own["parts"]) if own else None
        if held is None:
            made += _foreign(message, names)
        elif "of" in own:
            marked = {"kind": "request", "parts": held, "metadata": {MARK: message.id}}
            made.append(Dumped(message.id, marked, own["of"]))
        else:
            if made and made[-1].of == message.id:
                held = [*made.pop().dump["parts"], *held]
            made.append(Dumped(message.id, {**own["message"], "parts": held}))
        names.update({part.id: part.name for part in _calls(message) if part.id and part.name})
    return made


def _rebuilt(message: ConversationMessage, residues: list[Residue]) -> list[dict[str, Any]] | None:
    """The parts a message was made from; None when a view made something else of it since."""
    content = message.content
    blocks: list[Block] = (
        [{"type": "text", "text": content}] if isinstance(content, str) else as_list(thaw(content))
    )
    if sum(map(span_of, residues)) != len(blocks):
        return None
    held: list[dict[str, Any]] = []
    start = 0
    try:
        for residue in residues:
            end = start + span_of(residue)
            held.append(part_of(blocks[start:end], residue))
            start = end
    except (MisfitError, KeyError, TypeError, ValueError):  # whatever a rewritten block lacks
        return None
    return held


def _calls(message: ConversationMessage) -> list[Part]:
    return [part for part in parts(message) if part.kind == "call"]


def _foreign(message: ConversationMessage, names: Mapping[str, str]) -> list[Dumped]:
    """A message of another origin, by what it says; none when that is nothing."""
    speaks = message.role is ParticipantRole.ASSISTANT
    held = [_answer(part) if speaks else _request(part, message, names) for part in parts(message)]
    known = [part for part in held if part is not None]
    if not known:
        return []
    fields = {"timestamp": message.timestamp.isoformat(), "metadata": {MARK: message.id}}
    dump = {"kind": "response" if speaks else "request", "parts": known, **fields}
    return [
        Dumped(message.id, dump if message.run_id is None else {**dump, "run_id": message.run_id})
    ]


def _answer(part: Part) -> dict[str, Any] | None:
    if part.kind == "text":
        return {"part_kind": "text", "content": part.text}
    if part.kind == "reasoning":
        return {"part_kind": "thinking", "content": part.text}
    if part.kind == "call" and not part.hosted and part.id is not None:
        call = {"tool_name": part.name or "unknown", "args": thaw(part.payload)}
        return {"part_kind": "tool-call", "tool_call_id": part.id, **call}
    return None


def _request(
    part: Part, message: ConversationMessage, names: Mapping[str, str]
) -> dict[str, Any] | None:
    stamp = {"timestamp": message.timestamp.isoformat()}
    if part.kind == "text":
        rules = message.role in SYSTEM_ROLES
        kind = _SYSTEM_PART if rules else "user-prompt"
        return {"part_kind": kind, "content": part.text, **stamp}
    if part.kind == "result" and part.id is not None:
        name = part.name or names.get(part.id, "unknown")
        outcome = "failed" if part.is_error else "success"
        fields = {"tool_name": name, "content": part.text, "outcome": outcome}
        return {"part_kind": "tool-return", "tool_call_id": part.id, **fields, **stamp}
    media = media_in(part)
    if media is None:
        return None
    if media.data is not None:
        data = media.base64.translate(str.maketrans("+/", "-_"))
        file = {"kind": "binary", "data": data, "media_type": media.mime}
    elif media.url is not None:
        file = {"kind": f"{media.kind}-url", "url": media.url}
    else:
        return None
    return {"part_kind": "user-prompt", "content": [file], **stamp}
