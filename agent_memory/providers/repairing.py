"""A view that a provider accepts, made from a history that it would not; pure.

The history is taken apart into *atoms* (a part of a message, and who says it). One pass decides,
from left to right and never looking ahead, which atoms stay; another writes what stays as
messages. Decisions never change later, but for an exchange that is still open at the end: so
the view of a longer history begins with the view of a shorter one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import attrs

from agent_memory.exchanges import Facts, facts_of
from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.providers.conversion import Provider, fits, shape_named
from agent_memory.providers.making import text_content
from agent_memory.providers.part import Part, Shape, is_blank
from agent_memory.providers.plain import CONTENT_OMITTED
from agent_memory.providers.reading import parts
from agent_memory.providers.results import cleaned
from agent_memory.providers.writing import Draft, block_for, derived_id, draft
from agent_memory.turns import leading_system

OPENING: Final = "(The assistant speaks first.)"
"""What the user is made to say where a provider wants the user to begin."""

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


def repair(
    messages: Sequence[ConversationMessage], provider: Provider
) -> list[ConversationMessage]:
    """Give a view of a history that a provider accepts; the history itself stays as it is.

    Rewrites what is in another form; merges neighbours of one role and gathers results into one
    message (Anthropic, Bedrock); leaves out blank text, empty messages, calls without results
    and results without calls, second results, and reasoning that leads nowhere any more; turns
    later system messages into the user's (Anthropic, Bedrock); and lets the user begin.

    - What is acceptable stays as it is: the same objects. A message made of several has the id,
      time and position of the first of them; further ones made of one have ids derived from its.
    - Equal histories give equal views, and repairing a view again changes nothing.
    - As the history grows, the view only grows at its end: what was decided is never decided
      otherwise. So a call is dead once another message than a result follows, and a result that
      comes still later is left out too. Only an exchange open at the end may change.

    Takes linear time.

    Args:
        messages: the history, in any shapes.
        provider: ``"openai"`` (Chat Completions), ``"openai_responses"``, ``"anthropic"`` or
            ``"bedrock"``.

    Raises:
        InvalidRequestError: the provider is unknown.
    """
    shape = shape_named(provider)
    return written(messages, surviving(messages, shape), shape)


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
