"""A view that a provider accepts, made from a history that it would not; pure.

The history is taken apart into *atoms* (a part of a message, and who says it). One pass decides,
from left to right and never looking ahead, which atoms stay; another writes what stays as
messages. Decisions never change later, but for an exchange that is still open at the end: so
the view of a longer history begins with the view of a shorter one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from agent_memory.exchanges import Facts, facts_of
from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.shapes import Part, parts
from agent_memory.shapes.base import Shape, is_blank
from agent_memory.shapes.converting import fits
from agent_memory.shapes.results import cleaned
from agent_memory.shapes.writing import block_for

_ASSISTANT: Final = ParticipantRole.ASSISTANT
_USER: Final = ParticipantRole.USER
_TOOL: Final = ParticipantRole.TOOL
MERGING: Final = frozenset[Shape]({"anthropic", "bedrock"})


@attrs.define(eq=False)
class Atom:
    """A part of a message on its way into the view.

    Args:
        role: who says it; results are said by the role tool.
        part: what is said.
        source: index of the message it comes from.
        place: index among the parts of that message.
        size: how many parts that message has.
        own_form: that message is in the provider's form.
        turn: what may share a message: parallel calls that came one by one have the same.
        alive: it stays in the view.
        changed: `part` is not what the message holds, but a cleaned form of it.
    """

    role: ParticipantRole
    part: Part
    source: int
    place: int
    size: int
    own_form: bool
    turn: int = 0
    alive: bool = True
    changed: bool = False


def surviving(messages: Sequence[ConversationMessage], shape: Shape) -> list[Atom]:
    """The atoms of a history that a provider accepts, in the order in which it wants them."""
    return _Sieve(messages, shape).sift()


class _Sieve:
    """The pass that decides what stays."""

    def __init__(self, messages: Sequence[ConversationMessage], shape: Shape) -> None:
        self._messages: Final = messages
        self._shape: Final[Shape] = shape
        self._atoms: list[Atom] = []
        self._waiting: Final[dict[str, Atom]] = {}
        self._called: Final[set[str]] = set()
        self._answering = False
        self._turn = 0
        self._head = True

    def sift(self) -> list[Atom]:
        before: ParticipantRole | None = None
        for index, message in enumerate(self._messages):
            inside = parts(message)
            facts = facts_of(message, inside)
            self._head = self._head and facts.role in SYSTEM_ROLES
            follows = before is _ASSISTANT is facts.role
            self._take(self._legal(index, inside), facts, follows=follows)
            before = facts.role
        return _with_led_reasoning([atom for atom in self._atoms if atom.alive], self._shape)

    def _take(self, held: list[Atom], facts: Facts, *, follows: bool) -> None:
        own = {atom.part.id for atom in held if atom.part.waits}
        late = [atom for atom in held if atom.part.answers and atom.part.id in own]
        given = [atom for atom in held if atom.part.answers and atom.part.id not in own]
        rest = [atom for atom in held if not atom.part.answers]
        self._answer(given)
        # Among Responses items, words of the assistant's are an item that ends the turn.
        ends = facts.says if self._shape == "openai_responses" else facts.answers_user
        continues = follows and bool(self._waiting) and not ends and not self._answering
        says_more = facts.says and facts.role is not _ASSISTANT
        if not continues and (rest or says_more or not facts.has_results):
            self._close()
            self._turn += 1
        self._call(rest)
        self._answer(late)

    def _legal(self, index: int, held: tuple[Part, ...]) -> list[Atom]:
        """The parts of a message that the provider has a place for, by who may say them."""
        message = self._messages[index]
        own_form = fits(message, self._shape, held)
        speaker = self._speaker(message.role)
        atoms = [
            Atom(_TOOL if part.answers else speaker, part, index, place, len(held), own_form)
            for place, part in enumerate(held)
            if self._allowed(part, message.role, own_form=own_form)
        ]
        for atom in atoms:
            if atom.part.answers:
                part = cleaned(atom.part, self._shape)
                atom.part, atom.changed = part, part is not atom.part
        return atoms

    def _speaker(self, role: ParticipantRole) -> ParticipantRole:
        """System messages are a parameter of its own with some; later ones become the user's."""
        if role is _TOOL:
            return _USER
        moved = role in SYSTEM_ROLES and self._shape in MERGING and not self._head
        return _USER if moved else role

    def _allowed(self, part: Part, role: ParticipantRole, *, own_form: bool) -> bool:
        if is_blank(part) and (self._shape in MERGING or not own_form):
            return False
        if part.kind == "other" and not own_form:
            return False
        by_assistant = part.kind in ("call", "reasoning") or part.hosted
        if by_assistant and role is not _ASSISTANT:
            return False
        if part.answers:
            return part.id is not None and role not in SYSTEM_ROLES
        beside = part.raw is None and part.kind != "other" and self._shape in part.forms
        return beside or block_for(part, self._shape, role) is not None

    def _call(self, atoms: list[Atom]) -> None:
        for atom in atoms:
            atom.turn = self._turn
            call_id = atom.part.id if atom.part.waits else None
            if call_id is not None:
                atom.alive = call_id not in self._called
                self._called.add(call_id)
                if atom.alive:
                    self._waiting[call_id] = atom
        self._atoms += atoms

    def _answer(self, atoms: list[Atom]) -> None:
        """The first result of each call that waits stays; strays and later ones do not."""
        for atom in atoms:
            if self._waiting.pop(atom.part.id or "", None) is not None:
                self._answering = True
                atom.turn = self._turn
                self._atoms.append(atom)

    def _close(self) -> None:
        """Another message came: what still waits is dead."""
        for atom in self._waiting.values():
            atom.alive = False
        self._waiting.clear()
        self._called.clear()
        self._answering = False


def _with_led_reasoning(atoms: list[Atom], shape: Shape) -> list[Atom]:
    """Drop reasoning whose continuation is gone.

    Providers want what a piece of reasoning led to right after it, and refuse two pieces side by
    side that the model did not write so (they verify the sequence):
    https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking and
    https://platform.openai.com/docs/guides/reasoning.
    """
    kept: list[Atom] = []
    following: Atom | None = None
    for atom in reversed(atoms):
        if atom.part.kind == "reasoning" and not _leads_to(atom, following, shape):
            continue
        kept.append(atom)
        following = atom
    return kept[::-1]


def _leads_to(atom: Atom, following: Atom | None, shape: Shape) -> bool:
    if following is None or following.role is not _ASSISTANT:
        return False
    if shape == "openai_chat":
        return following.turn == atom.turn
    if following.part.kind != "reasoning":
        return True
    if atom.source == following.source:
        return following.place == atom.place + 1
    # Items of one reply are messages of their own; elsewhere two messages are two replies.
    return shape == "openai_responses" and following.source == atom.source + 1
