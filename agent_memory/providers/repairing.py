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
from agent_memory.providers.format import Draft, Format, derived_id, safe_id
from agent_memory.providers.formats import Provider, format_named
from agent_memory.providers.part import Part, is_blank
from agent_memory.providers.plain import CONTENT_OMITTED
from agent_memory.providers.reading import fits, in_context, parts
from agent_memory.providers.text import text_content
from agent_memory.turns import leading_system

OPENING: Final = "(The assistant speaks first.)"
"""What the user is made to say where a provider wants the user to begin."""

_ASSISTANT: Final = ParticipantRole.ASSISTANT
_USER: Final = ParticipantRole.USER
_TOOL: Final = ParticipantRole.TOOL


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
        messages: the history, in any formats.
        provider: ``"openai"`` (Chat Completions), ``"openai_responses"``, ``"anthropic"`` or
            ``"bedrock"``.

    Raises:
        InvalidRequestError: the provider is unknown.
    """
    form = format_named(provider)
    return written(messages, surviving(messages, form), form)


def surviving(messages: Sequence[ConversationMessage], form: Format) -> list[Atom]:
    """The atoms of a history that a provider accepts, in the order in which it wants them."""
    return _Sieve(messages, form).sift()


class _Sieve:
    """The pass that decides what stays."""

    def __init__(self, messages: Sequence[ConversationMessage], form: Format) -> None:
        self._messages: Final = messages
        self._form: Final = form
        self._plain: Final = [parts(message) for message in messages]
        self._atoms: list[Atom] = []
        self._waiting: Final[dict[str, Atom]] = {}
        self._hosted: Final[dict[str, Atom]] = {}
        self._called: Final[set[str]] = set()
        self._answering = False
        self._turn = 0
        self._head = True

    def sift(self) -> list[Atom]:
        before: ParticipantRole | None = None
        held = in_context(self._messages, self._plain)
        for index, message in enumerate(self._messages):
            facts = facts_of(message, held[index])
            self._head = self._head and facts.role in SYSTEM_ROLES
            follows = before is _ASSISTANT is facts.role
            self._take(self._legal(index, held[index]), facts, follows=follows)
            before = facts.role
        return _with_led_reasoning([atom for atom in self._atoms if atom.alive], self._form)

    def _take(self, held: list[Atom], facts: Facts, *, follows: bool) -> None:
        own = {atom.part.id for atom in held if atom.part.waits}
        late = [atom for atom in held if atom.part.answers and atom.part.id in own]
        given = [atom for atom in held if atom.part.answers and atom.part.id not in own]
        rest = [atom for atom in held if not atom.part.answers]
        self._answer(given)
        # Among Responses items, words of the assistant's are an item that ends the turn.
        ends = facts.says if self._form.items else facts.answers_user
        continues = follows and bool(self._waiting) and not ends and not self._answering
        says_more = facts.says and facts.role is not _ASSISTANT
        if says_more:
            self._close_hosted()
        if not continues and (rest or says_more or not facts.has_results):
            self._close()
            self._turn += 1
        self._call(rest)
        self._answer(late)

    def _legal(self, index: int, held: tuple[Part, ...]) -> list[Atom]:
        """The parts of a message that the provider has a place for, by who may say them."""
        message = self._messages[index]
        own_form = fits(message, self._form, self._plain[index])
        speaker = self._speaker(message, held, own_form=own_form)
        atoms: list[Atom] = []
        for place, part in enumerate(held):
            after = held[place + 1] if place + 1 < len(held) else None
            if self._allowed(part, message, after, own_form=own_form):
                role = _TOOL if part.answers else _ASSISTANT if part.hosted else speaker
                atom = Atom(role, part, index, place, len(held), own_form)
                self._clean(atom, self._plain[index][place])
                atoms.append(atom)
        return atoms

    def _clean(self, atom: Atom, plain: Part) -> None:
        """Replace what the provider refuses inside a call or a result."""
        form, part, call_id = self._form, atom.part, atom.part.id
        if part.kind not in ("call", "result") or call_id is None or form.name not in part.forms:
            return
        if call_id != plain.id:
            part = attrs.evolve(part, raw=form.with_id(part, call_id))
        elif form.call_id is not None and not form.call_id.fullmatch(call_id):
            part = attrs.evolve(part, raw=form.with_id(part, safe_id(call_id)))
        if part.answers:
            part = form.clean_result(part)
        # A part that is only known better than when it stood alone is sent as it is.
        atom.changed = part.raw is not plain.raw or part.id != plain.id
        atom.part = part

    def _speaker(
        self, message: ConversationMessage, held: tuple[Part, ...], *, own_form: bool
    ) -> ParticipantRole:
        """System messages are a parameter of its own with some; later ones become the user's.

        Recent models of Anthropic's take them in any place, older ones do not; one that changes
        the tools was written for a model that does.
        """
        role = message.role
        if role is _TOOL:
            return _USER
        if role not in SYSTEM_ROLES or not self._form.system_apart or self._head:
            return role
        instructs = any(part.kind == "other" for part in held)
        return role if own_form and self._form.later_system and instructs else _USER

    def _allowed(
        self, part: Part, message: ConversationMessage, after: Part | None, *, own_form: bool
    ) -> bool:
        form, role = self._form, message.role
        if is_blank(part) and not (own_form and form.may_be_blank(part, after)):
            return False
        if part.kind == "other" and not own_form and part.forms - {form.name}:
            return False
        by_assistant = part.kind in ("call", "reasoning") or part.hosted
        # The role of an item says nothing: the item's type tells whose it is.
        if by_assistant and role is not _ASSISTANT and not (own_form and form.items):
            return False
        if part.kind == "reasoning" and form.signs_reasoning and not is_signed(part):
            return False
        if part.answers:
            return part.id is not None and role not in SYSTEM_ROLES
        return form.is_within(part) or form.block_for(part, role) is not None

    def _call(self, atoms: list[Atom]) -> None:
        for atom in atoms:
            atom.turn = self._turn
            call_id = atom.part.id if atom.part.waits else None
            if call_id is not None:
                atom.alive = call_id not in self._called
                self._called.add(call_id)
                if atom.alive:
                    self._waiting[call_id] = atom
            elif atom.part.hosted and self._form.pairs_hosted:
                self._pair_hosted(atom)
            elif atom.part.kind == "result" and atom.part.raw is not None:
                # The provider's output for a call that the application has to answer.
                atom.alive = atom.part.id not in self._waiting
        self._atoms += atoms

    def _pair_hosted(self, atom: Atom) -> None:
        """A hosted result answers a hosted call, which may wait for it through other exchanges."""
        call_id = atom.part.id or ""
        if atom.part.kind == "call":
            atom.alive = call_id not in self._hosted
            self._hosted.setdefault(call_id, atom)
        else:
            atom.alive = self._hosted.pop(call_id, None) is not None

    def _answer(self, atoms: list[Atom]) -> None:
        """The first result of each call that waits stays; strays and later ones do not."""
        for atom in atoms:
            call = self._waiting.pop(atom.part.id or "", None)
            if call is not None:
                self._answering = True
                atom.turn = self._turn
                self._match(atom, call.part)
                self._atoms.append(atom)

    def _match(self, atom: Atom, call: Part) -> None:
        """Write the result anew if its item is of another kind than that of its call."""
        part = atom.part
        if part.custom is not call.custom:
            part = attrs.evolve(part, custom=call.custom)
        if self._form.mismatched(call, part):
            part = attrs.evolve(part, forms=frozenset())
            atom.changed = True
        atom.part = part

    def _close_hosted(self) -> None:
        """The user goes on: a hosted call that a paused turn left without its result is dead."""
        for atom in self._hosted.values():
            atom.alive = False
        self._hosted.clear()

    def _close(self) -> None:
        """Another message came: what still waits is dead."""
        for atom in self._waiting.values():
            atom.alive = False
        self._waiting.clear()
        self._called.clear()
        self._answering = False


def is_signed(reasoning: Part) -> bool:
    """Whether a model can verify that this reasoning is its own."""
    return reasoning.signature is not None or reasoning.redacted is not None


def _with_led_reasoning(atoms: list[Atom], form: Format) -> list[Atom]:
    """Drop reasoning whose continuation is gone.

    Providers want what a piece of reasoning led to right after it, and refuse two pieces side by
    side that the model did not write so (they verify the sequence):
    https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking and
    https://platform.openai.com/docs/guides/reasoning.
    """
    kept: list[Atom] = []
    following: Atom | None = None
    for atom in reversed(atoms):
        if atom.part.kind == "reasoning" and not _leads_to(atom, following, form):
            continue
        kept.append(atom)
        following = atom
    return kept[::-1]


def _leads_to(atom: Atom, following: Atom | None, form: Format) -> bool:
    if following is None or following.role is not _ASSISTANT:
        return False
    if form.pairing == "following":
        return following.turn == atom.turn
    if following.part.kind != "reasoning":
        return True
    if atom.source == following.source:
        return following.place == atom.place + 1
    # Items of one reply are messages of their own; elsewhere two messages are two replies.
    return form.items and following.source == atom.source + 1


def written(
    messages: Sequence[ConversationMessage], atoms: Sequence[Atom], form: Format
) -> list[ConversationMessage]:
    """Write atoms as messages; a message that stays whole is the same object."""
    uses: Counter[int] = Counter()
    made: list[ConversationMessage] = []
    after_results: list[ConversationMessage] = []
    for _, together in groupby(atoms, key=_togetherness(form)):
        held = list(together)
        source = messages[held[0].source]
        if held[0].role is not _TOOL:
            made += after_results
            after_results.clear()
        told = _told(held, form)
        if len(told) == len(held) and _is_whole(held, source, form):
            made.append(source)
            continue
        extra: Mapping[str, Any] = source.extra if held[0].own_form else {}
        drafts = form.arrange(form, held[0].role, told, extra)
        for new in drafts:
            target = after_results if new.after_results else made
            target.append(_message(new, messages, held, uses))
    if not _awaits_results(atoms):
        made += after_results
    return _opened(made, form) if form.user_first else made


def _told(held: Sequence[Atom], form: Format) -> list[Part]:
    """The parts of one message, and the words that have to stand beside them.

    Decided after each of the messages that it is made of, so that later ones change nothing.
    """
    told: list[Part] = []
    for _, together in groupby(held, key=lambda atom: atom.source):
        told += [atom.part for atom in together]
        words = form.words_for(told)
        if words is not None:
            told.append(Part("text", words))
    return told


def _awaits_results(atoms: Sequence[Atom]) -> bool:
    """Whether the exchange at the end is open: nothing but results may come before it closes."""
    waiting: set[str | None] = set()
    for atom in atoms:
        if atom.part.waits:
            waiting.add(atom.part.id)
        elif atom.part.answers:
            waiting.discard(atom.part.id)
    return bool(waiting)


def _togetherness(form: Format) -> Callable[[Atom], tuple[ParticipantRole, int]]:
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

    if form.merges:
        return merged
    return by_source if form.items else by_turn


def _is_whole(held: list[Atom], source: ConversationMessage, form: Format) -> bool:
    """Whether the atoms are all of one message, untouched and in its order."""
    first = held[0]
    if not first.own_form or len(held) != first.size or form.rewrites(source):
        return False
    untouched = all(
        atom.source == first.source and atom.place == place and not atom.changed
        for place, atom in enumerate(held)
    )
    kept_role = source.role in (_USER, _TOOL) or source.role is first.role or first.part.hosted
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


def _opened(made: list[ConversationMessage], form: Format) -> list[ConversationMessage]:
    """Let the user speak first."""
    head = leading_system(made)
    if head == len(made) or made[head].role is not _ASSISTANT:
        return made
    first = made[head]
    digest = hashlib.sha256(first.id.encode()).hexdigest()[:32]
    content: Any = text_content(OPENING, None if form.takes_strings else form)
    opening = ConversationMessage(
        _USER,
        content,
        id=f"derived-{digest}-opening",
        timestamp=first.timestamp,
        run_id=first.run_id,
    )
    return [*made[:head], opening, *made[head:]]
