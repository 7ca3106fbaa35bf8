"""From the atoms that stay to messages; the other half of a repair."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import attrs

from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.repairs import MERGING, Atom
from agent_memory.shapes.base import Shape
from agent_memory.shapes.making import text_content
from agent_memory.shapes.plain import CONTENT_OMITTED
from agent_memory.shapes.writing import Draft, derived_id, draft
from agent_memory.turns import leading_system

OPENING: Final = "(The assistant speaks first.)"
"""What the user is made to say where a provider wants the user to begin."""

_ASSISTANT: Final = ParticipantRole.ASSISTANT
_USER: Final = ParticipantRole.USER
_TOOL: Final = ParticipantRole.TOOL


def written(
    messages: Sequence[ConversationMessage], atoms: Sequence[Atom], shape: Shape
) -> list[ConversationMessage]:
    """Write atoms as messages; a message that stays whole is the same object."""
    uses: Counter[int] = Counter()
    made: list[ConversationMessage] = []
    for _, together in groupby(atoms, key=_togetherness(shape)):
        held = list(together)
        source = messages[held[0].source]
        if _is_whole(held, source):
            made.append(source)
            continue
        extra: Mapping[str, Any] = source.extra if held[0].own_form else {}
        drafts = draft(held[0].role, [atom.part for atom in held], shape, extra)
        made += [_message(new, messages, held, uses) for new in drafts]
    return _opened(made, shape) if shape in MERGING else made


def _togetherness(shape: Shape) -> Callable[[Atom], tuple[ParticipantRole, int]]:
    """What neighbouring atoms have in common that make one message."""

    def merged(atom: Atom) -> tuple[ParticipantRole, int]:
        """Anthropic and Bedrock: neighbours of one role."""
        role = _USER if atom.role is _TOOL else atom.role
        return role, atom.source if role in SYSTEM_ROLES else -1

    def by_turn(atom: Atom) -> tuple[ParticipantRole, int]:
        """Chat Completions: messages as they came, but for calls that came one by one."""
        return atom.role, atom.turn if atom.role is _ASSISTANT else atom.source

    def by_source(atom: Atom) -> tuple[ParticipantRole, int]:
        """Responses: items as they came."""
        return atom.role, atom.source

    if shape in MERGING:
        return merged
    return by_turn if shape == "openai_chat" else by_source


def _is_whole(held: list[Atom], source: ConversationMessage) -> bool:
    """Whether the atoms are all of one message, untouched and in its order."""
    first = held[0]
    if not first.own_form or len(held) != first.size or source.content == []:
        return False
    if source.extra.get("tool_calls") == []:
        return False
    untouched = all(
        atom.source == first.source and atom.place == place and not atom.changed
        for place, atom in enumerate(held)
    )
    kept_role = source.role in (_USER, _TOOL) or source.role is first.role
    return untouched and kept_role


def _message(
    new: Draft, messages: Sequence[ConversationMessage], held: list[Atom], uses: Counter[int]
) -> ConversationMessage:
    """A message that takes what a provider does not see from those it is made of."""
    first = held[0].source
    base = messages[first]
    parents = [messages[index] for index in dict.fromkeys(atom.source for atom in held)]
    usages = [parent.usage for parent in parents if parent.usage is not None]
    extra = dict(new.extra)
    if new.content is not None:
        extra.pop(CONTENT_OMITTED, None)
    number = uses[first]
    uses[first] += 1
    made = attrs.evolve(
        base,
        role=new.role,
        content=new.content,
        extra=extra,
        id=derived_id(base, number),
        pinned=any(parent.pinned for parent in parents),
        usage=usages[-1] if usages and number == 0 else None,
    )
    if base.position is None or base.agent_id is None:
        return made
    return made.placed(base.position, base.agent_id)


def _opened(made: list[ConversationMessage], shape: Shape) -> list[ConversationMessage]:
    """Let the user speak first."""
    head = leading_system(made)
    if head == len(made) or made[head].role is not _ASSISTANT:
        return made
    first = made[head]
    digest = hashlib.sha256(first.id.encode()).hexdigest()[:32]
    content: Any = text_content(OPENING, shape if shape == "bedrock" else None)
    opening = ConversationMessage(
        _USER,
        content,
        id=f"derived-{digest}-opening",
        timestamp=first.timestamp,
        run_id=first.run_id,
    )
    return [*made[:head], opening, *made[head:]]
