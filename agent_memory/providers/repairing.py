"""Make a view that a provider accepts from a history that it would reject.

The history is split into part references (a part of a message, and who says it). One pass decides,
from left to right and without looking ahead, which of them stay; a second one writes these as
messages. Decisions are final, except for what is still open at the end, an exchange or a paused
turn: the view of a longer history therefore begins with the view of a shorter one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import attrs

from agent_memory.messages import SYSTEM_ROLES, ConversationMessage, ParticipantRole
from agent_memory.providers.format import (
    CONTENT_OMITTED,
    Format,
    MessageDraft,
    derived_id,
    safe_id,
)
from agent_memory.providers.parsing import Provider, fits, format_named, in_context, parts
from agent_memory.providers.part import Part, is_blank
from agent_memory.providers.text import text_content
from agent_memory.turns import Facts, facts_of, leading_system

OPENING: Final = "(The assistant speaks first.)"
"""The text of the user message that is added where a provider wants the user to begin."""

_ASSISTANT: Final = ParticipantRole.ASSISTANT
_USER: Final = ParticipantRole.USER
_TOOL: Final = ParticipantRole.TOOL


@attrs.define(eq=False)
class PartRef:
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
    """Return a view of a history that a provider accepts; the history itself is not changed.

    Rewrites what is in another form; merges neighbours of one role and gathers results into one
    message (Anthropic, Bedrock); leaves out blank text, empty messages, calls without results
    and results without calls, second results, and reasoning that leads nowhere any more; turns
    later system messages into the user's (Anthropic, Bedrock); and lets the user begin.

    - What is acceptable stays as it is: the same objects. A message made of several has the id,
      time and position of the first of them; further ones made of one have ids derived from its.
    - Equal histories give equal views, and repairing a view again changes nothing.
    - As the history grows, the view only grows at its end: what was decided is never decided
      otherwise. So a call is dead once another message than a result follows, and a result that
      comes still later is left out too. Only what is open at the end may change: an exchange, or
      a paused turn (Anthropic's ``pause_turn``), of which the hosted call has to be sent for the
      turn to go on, and is refused once the user says something else instead.

    Takes linear time.

    Args:
        messages: the history, in any formats.
        provider: ``"openai"`` (Chat Completions), ``"openai_responses"``, ``"anthropic"`` or
            ``"bedrock"``.

    Raises:
        InvalidRequestError: if the provider is unknown.
    """
    form = format_named(provider)
    return rebuild(messages, RepairPass(messages, form).run(), form)


class RepairPass:
    """The pass that decides what stays."""

    def __init__(self, messages: Sequence[ConversationMessage], form: Format) -> None:
        self._messages: Final = messages
        self._form: Final = form
        self._plain: Final = [parts(message) for message in messages]
        self._refs: list[PartRef] = []
        self._waiting: Final[dict[str, PartRef]] = {}
        self._hosted: Final[dict[str, PartRef]] = {}
        self._called: Final[set[str]] = set()
        self._answering = False
        self._turn = 0
        self._head = True

    def run(self) -> list[PartRef]:
        """Return what stays, in the order in which the provider wants it."""
        before: ParticipantRole | None = None
        held = in_context(self._messages, self._plain)
        for index, message in enumerate(self._messages):
            facts = facts_of(message, held[index])
            self._head = self._head and facts.role in SYSTEM_ROLES
            follows = before is _ASSISTANT is facts.role
            self._take(self._permitted(index, held[index]), facts, follows=follows)
            before = facts.role
        return _drop_loose_reasoning([ref for ref in self._refs if ref.alive], self._form)

    def _take(self, held: list[PartRef], facts: Facts, *, follows: bool) -> None:
        # Results of calls in the same message are matched after these, whatever their order.
        own = {ref.part.id for ref in held if ref.part.waits}
        late = [ref for ref in held if ref.part.answers and ref.part.id in own]
        given = [ref for ref in held if ref.part.answers and ref.part.id not in own]
        rest = [ref for ref in held if not ref.part.answers]
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

    def _permitted(self, index: int, held: tuple[Part, ...]) -> list[PartRef]:
        """The parts of a message that the provider has a place for, by who may say them."""
        message = self._messages[index]
        own_form = fits(message, self._form, self._plain[index])
        speaker = self._speaker(message, held, own_form=own_form)
        refs: list[PartRef] = []
        for place, part in enumerate(held):
            after = held[place + 1] if place + 1 < len(held) else None
            if self._allowed(part, message, after, own_form=own_form):
                role = _TOOL if part.answers else _ASSISTANT if part.hosted else speaker
                ref = PartRef(role, part, index, place, len(held), own_form)
                self._clean(ref, self._plain[index][place])
                refs.append(ref)
        return refs

    def _clean(self, ref: PartRef, plain: Part) -> None:
        """Replace what the provider refuses inside a call or a result."""
        form, part, call_id = self._form, ref.part, ref.part.id
        if part.kind not in ("call", "result") or call_id is None or form.name not in part.forms:
            return
        # The id is from the context: the block has none, and providers require one.
        if call_id != plain.id:
            part = attrs.evolve(part, raw=form.with_id(part, call_id))
        elif form.call_id is not None and not form.call_id.fullmatch(call_id):
            part = attrs.evolve(part, raw=form.with_id(part, safe_id(call_id)))
        refused = form.check_result(part) if part.answers else None
        if refused is not None:
            part = attrs.evolve(part, raw=refused[1])
        # A part that is only known better than when it stood alone is sent as it is.
        ref.changed = part.raw is not plain.raw or part.id != plain.id
        ref.part = part

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

    def _call(self, refs: list[PartRef]) -> None:
        for ref in refs:
            ref.turn = self._turn
            call_id = ref.part.id if ref.part.waits else None
            if call_id is not None:
                # "tool_use ids must be unique", says Anthropic; the others want one result an id.
                ref.alive = call_id not in self._called
                self._called.add(call_id)
                if ref.alive:
                    self._waiting[call_id] = ref
            elif ref.part.hosted and self._form.merges:
                self._pair_hosted(ref)
            elif ref.part.kind == "result" and ref.part.raw is not None:
                # The provider's output for a call that the application has to answer.
                ref.alive = ref.part.id not in self._waiting
        self._refs += refs

    def _pair_hosted(self, ref: PartRef) -> None:
        """A hosted result answers a hosted call, which may wait for it through other exchanges."""
        call_id = ref.part.id or ""
        if ref.part.kind == "call":
            ref.alive = call_id not in self._hosted
            self._hosted.setdefault(call_id, ref)
        else:
            ref.alive = self._hosted.pop(call_id, None) is not None

    def _answer(self, refs: list[PartRef]) -> None:
        """The first result of each call that waits stays; strays and later ones do not."""
        for ref in refs:
            call = self._waiting.pop(ref.part.id or "", None)
            if call is not None:
                self._answering = True
                ref.turn = self._turn
                self._match(ref, call.part)
                self._refs.append(ref)

    def _match(self, ref: PartRef, call: Part) -> None:
        """Rewrite the result if its item is of another kind than its call."""
        part = ref.part
        if part.custom is not call.custom:
            part = attrs.evolve(part, custom=call.custom)
        if self._form.is_mismatched(call, part):
            part = attrs.evolve(part, forms=frozenset())
            ref.changed = True
        ref.part = part

    def _close_hosted(self) -> None:
        """The user goes on: a hosted call that a paused turn left without its result is dead."""
        for ref in self._hosted.values():
            ref.alive = False
        self._hosted.clear()

    def _close(self) -> None:
        """Another message came: what still waits is dead."""
        for ref in self._waiting.values():
            ref.alive = False
        self._waiting.clear()
        self._called.clear()
        self._answering = False


def is_signed(reasoning: Part) -> bool:
    """Whether a model can verify that this reasoning is its own."""
    return reasoning.signature is not None or reasoning.redacted is not None


def _drop_loose_reasoning(refs: list[PartRef], form: Format) -> list[PartRef]:
    """Drop reasoning whose continuation is gone.

    Providers want what a piece of reasoning led to right after it, and refuse two pieces side by
    side that the model did not write so (they verify the sequence):
    https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking and
    https://platform.openai.com/docs/guides/reasoning.
    """
    kept: list[PartRef] = []
    following: PartRef | None = None
    for ref in reversed(refs):
        if ref.part.kind == "reasoning" and not _leads_to(ref, following, form):
            continue
        kept.append(ref)
        following = ref
    return kept[::-1]


def _leads_to(ref: PartRef, following: PartRef | None, form: Format) -> bool:
    if following is None or following.role is not _ASSISTANT:
        return False
    if not form.merges and not form.items:
        return following.turn == ref.turn
    # Neighbouring pieces stay only if the model wrote them as neighbours.
    if following.part.kind != "reasoning":
        return True
    if ref.source == following.source:
        return following.place == ref.place + 1
    # Items of one reply are messages of their own; elsewhere two messages are two replies.
    return form.items and following.source == ref.source + 1


def rebuild(
    messages: Sequence[ConversationMessage], refs: Sequence[PartRef], form: Format
) -> list[ConversationMessage]:
    """Write parts as messages; a message that stays whole is the same object."""
    uses: Counter[int] = Counter()
    made: list[ConversationMessage] = []
    after_results: list[ConversationMessage] = []
    for _, together in groupby(refs, key=_merge_key(form)):
        held = list(together)
        source = messages[held[0].source]
        if held[0].role is not _TOOL:
            made += after_results
            after_results.clear()
        carried = _with_required_text(held, form)
        if len(carried) == len(held) and _is_whole(held, source, form):
            made.append(source)
            continue
        extra: Mapping[str, Any] = source.extra if held[0].own_form else {}
        drafts = form.arrange(form, held[0].role, carried, extra)
        for new in drafts:
            target = after_results if new.after_results else made
            target.append(_message(new, messages, held, uses))
    # While a call waits, its result has to come first: the media moves behind that later.
    if not _awaits_results(refs):
        made += after_results
    return _with_opening(made, form) if form.user_first else made


def _with_required_text(held: Sequence[PartRef], form: Format) -> list[Part]:
    """The parts of one message, and the words that have to stand beside them.

    Decided after each of the messages that it is made of, so that later ones change nothing.
    """
    carried: list[Part] = []
    for _, together in groupby(held, key=lambda ref: ref.source):
        carried += [ref.part for ref in together]
        words = form.required_text(carried)
        if words is not None:
            carried.append(Part("text", words))
    return carried


def _awaits_results(refs: Sequence[PartRef]) -> bool:
    """Whether the exchange at the end is open: nothing but results may come before it closes."""
    waiting: set[str | None] = set()
    for ref in refs:
        if ref.part.waits:
            waiting.add(ref.part.id)
        elif ref.part.answers:
            waiting.discard(ref.part.id)
    return bool(waiting)


def _merge_key(form: Format) -> Callable[[PartRef], tuple[ParticipantRole, int]]:
    """What neighbouring parts have in common that make one message."""

    def merged(ref: PartRef) -> tuple[ParticipantRole, int]:
        """Anthropic and Bedrock: neighbours of one role."""
        role = _USER if ref.role is _TOOL else ref.role
        return role, ref.source if role in SYSTEM_ROLES else -1

    def by_turn(ref: PartRef) -> tuple[ParticipantRole, int]:
        """Chat Completions: messages as they came, but for calls that came one by one."""
        return ref.role, ref.turn if ref.role is _ASSISTANT else ref.source

    def by_source(ref: PartRef) -> tuple[ParticipantRole, int]:
        """Responses: items as they came."""
        return ref.role, ref.source

    if form.merges:
        return merged
    return by_source if form.items else by_turn


def _is_whole(held: list[PartRef], source: ConversationMessage, form: Format) -> bool:
    """Whether the parts are all of one message, untouched and in its order."""
    first = held[0]
    if not first.own_form or len(held) != first.size or form.needs_rewrite(source):
        return False
    untouched = all(
        ref.source == first.source and ref.place == place and not ref.changed
        for place, ref in enumerate(held)
    )
    kept_role = source.role in (_USER, _TOOL) or source.role is first.role or first.part.hosted
    return untouched and kept_role


def _message(
    new: MessageDraft,
    messages: Sequence[ConversationMessage],
    held: list[PartRef],
    uses: Counter[int],
) -> ConversationMessage:
    """A message that takes what a provider does not see from those it is made of."""
    first = held[0].source
    base = messages[first]
    parents = [messages[index] for index in dict.fromkeys(ref.source for ref in held)]
    # A message has one report: the newest says how long the context is now.
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


def _with_opening(made: list[ConversationMessage], form: Format) -> list[ConversationMessage]:
    """Let the user speak first."""
    head = leading_system(made)
    if head == len(made) or made[head].role is not _ASSISTANT:
        return made
    # Derived from the message after it: equal histories give equal views.
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
