"""The options of summarizing, and the limits they set: :class:`SummarizingOptions`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypedDict, get_args

import attrs

from agent_memory.errors import InvalidRequestError
from agent_memory.events import CompactionRequest, Event
from agent_memory.messages import ConversationMessage
from agent_memory.providers import Provider
from agent_memory.summarizers.base import Summarizer, check_summarizer
from agent_memory.tokens import TokenCounter
from agent_memory.validation import checked_count, checked_seconds

PAIR: Final = 2
"""Messages of a pair: the user's and the assistant's."""


def _at_least(least: int) -> Any:
    def check(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value is not None or attribute.default is not None:
            checked_count(value, attribute.name, least)

    return check


def _seconds(_instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None:
        checked_seconds(value, attribute.name, none="no limit")


def _summarizer(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        check_summarizer(value, attribute.name)


def _function(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not callable(value):
        raise InvalidRequestError(f"{attribute.name} must be a function, not {value!r}")


def _provider(_instance: object, _attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and value not in get_args(Provider):
        known = ", ".join(map(repr, get_args(Provider)))
        raise InvalidRequestError(f"provider must be one of {known}, not {value!r}")


def _on_error(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in ("log", "raise"):
        raise InvalidRequestError(f"{attribute.name} must be 'log' or 'raise', not {value!r}")


@attrs.frozen(kw_only=True)
class SummarizingOptions:
    """When chats are summarized, and what bounds the work and the memory.

    :class:`~agent_memory.SummarizingChatStorage` and :class:`~agent_memory.ConversationManager`
    take the same options. In a conversation `trigger_tokens` counts what the model's context
    holds, tools and system prompt included; `max_buffers`, `background`, `hard_limit`,
    `max_concurrent_summaries` and `drain_timeout` concern the storage alone.

    Args:
        trigger_at: pairs of messages; a view of strictly more than twice as many messages is
            summarized (at least 2).
        keep_last: pairs of messages the summarizer is asked to keep (at least 1, below
            `trigger_at`).
        trigger_tokens: a view of strictly more tokens is summarized too, whichever limit is
            exceeded first; None for no such limit.
        token_counter: counts tokens; by default an estimate that errs high.
        provider: ``"openai"``, ``"openai_responses"``, ``"anthropic"`` or ``"bedrock"``: the view
            is made valid for it, always in the same way
            (:func:`agent_memory.providers.repair`). None shows messages as they are: no exchange
            is split, but roles may not alternate.
        fallback: another summarizer, asked when the first one fails, such as
            ``ExtractiveSummarizer()``.
        summarizer_timeout: seconds a summarizer may take; None for no limit.
        max_summary_tokens: a longer summary is cut in its middle; None for no limit.
        max_head_tokens: pinned messages beyond it become ordinary, the oldest first; None for
            no limit.
        max_buffers: how many chats' views are held in memory; least recently used buffers are
            evicted. A view costs its messages and under 1 KiB.
        background: whether a save returns when it is durable and the summary is made behind it;
            a fetch then waits for none either. Needs a loop that goes on running.
        hard_limit: in the background, a view of strictly more pairs of messages, or of as many
            times more tokens as that exceeds the trigger, makes saves wait all the same; None
            for four times the trigger.
        max_concurrent_summaries: summarizers that work at the same moment, over all chats.
        drain_timeout: seconds that closing waits for compactions under way; None for no limit.
        shared: whether other writers' messages are read before a view is shown; None for what
            the store's `scope` suggests (yes for ``"host"`` and ``"network"``), in a
            conversation always.
        on_summarizer_error: ``"log"``, or ``"raise"``: a save raises the ``SummarizerError`` of a
            failed summary, after the message is stored.
        on_event: an async or plain function, called with each
            :class:`~agent_memory.events.Event`; what it raises is logged.
        before_compaction: an async or plain function, called before a summarizer is, with a
            :class:`~agent_memory.events.CompactionRequest`; ``False`` vetoes.

    Raises:
        InvalidRequestError: an option is out of its range or of another type.
    """

    trigger_at: int = attrs.field(default=20, validator=_at_least(2))
    keep_last: int = attrs.field(default=2, validator=_at_least(1))
    trigger_tokens: int | None = attrs.field(default=None, validator=_at_least(1))
    token_counter: TokenCounter | None = None
    provider: Provider | None = attrs.field(default=None, validator=_provider)
    fallback: Summarizer | None = attrs.field(default=None, validator=_summarizer)
    summarizer_timeout: float | None = attrs.field(default=60.0, validator=_seconds)
    max_summary_tokens: int | None = attrs.field(default=8_000, validator=_at_least(16))
    max_head_tokens: int | None = attrs.field(default=None, validator=_at_least(1))
    max_buffers: int = attrs.field(default=1_000, validator=_at_least(1))
    background: bool = False
    hard_limit: int | None = attrs.field(default=None, validator=_at_least(1))
    max_concurrent_summaries: int = attrs.field(default=16, validator=_at_least(1))
    drain_timeout: float | None = attrs.field(default=30.0, validator=_seconds)
    shared: bool | None = None
    on_summarizer_error: Literal["log", "raise"] = attrs.field(default="log", validator=_on_error)
    on_event: Callable[[Event], object] | None = attrs.field(default=None, validator=_function)
    before_compaction: Callable[[CompactionRequest], object] | None = attrs.field(
        default=None, validator=_function
    )

    def __attrs_post_init__(self) -> None:
        if self.keep_last >= self.trigger_at:
            raise InvalidRequestError(
                f"keep_last ({self.keep_last}) must be below trigger_at ({self.trigger_at}): "
                "keeping as much as triggers leaves nothing to summarize"
            )

    @property
    def trigger_messages(self) -> int:
        """How many messages a view may have."""
        return PAIR * self.trigger_at

    @property
    def token_step(self) -> int | None:
        """How many tokens a view grows by between two attempts without headroom."""
        return None if self.trigger_tokens is None else max(1, self.trigger_tokens // 4)

    def exceeded(self, size: int, tokens: int) -> list[str]:
        """Return the names of the limits that these numbers of messages and tokens exceed."""
        found = ["trigger_at"] if size > self.trigger_messages else []
        if self.trigger_tokens is not None and tokens > self.trigger_tokens:
            found.append("trigger_tokens")
        return found

    def waits_for_exchange(self, size: int, tokens: int) -> bool:
        """Whether a compaction waits for the exchange at the end of the view to close.

        Where results are saved together with the next call one is always open; the limits are
        exceeded by no more than a quarter then.

        Args:
            size: messages before that exchange.
            tokens: tokens before it.
        """
        limit, step = self.trigger_tokens, self.token_step
        far_over = limit is not None and step is not None and tokens > limit + step
        most = self.trigger_messages + max(PAIR, self.trigger_messages // 4)
        return size <= most and not far_over

    def has_headroom(self, messages: int, summary: int) -> bool:
        """Whether a summary has left room, by the number of messages.

        Args:
            messages: how many the view has now.
            summary: how many of them stand for older ones.
        """
        if messages <= self.trigger_at:
            return True
        return messages < self.trigger_messages and summary <= 1

    def is_far_over(self, size: int, tokens: int) -> bool:
        """Whether a view has grown so far that a save waits for its compaction."""
        pairs = 4 * self.trigger_at if self.hard_limit is None else self.hard_limit
        if size > PAIR * pairs:
            return True
        limit = self.trigger_tokens
        return limit is not None and tokens > limit * pairs / self.trigger_at

    def presenter(self) -> Callable[[list[ConversationMessage]], list[ConversationMessage]] | None:
        """Return what makes a view valid for the provider, None where nothing is to be done."""
        provider = self.provider
        if provider is None:
            return None
        from agent_memory.providers import repair  # noqa: PLC0415  loaded only where it is used

        return lambda messages: repair(messages, provider)


class ManagerOptions(TypedDict, total=False):
    """The options that a conversation manager passes on; see :class:`SummarizingOptions`."""

    token_counter: TokenCounter | None
    summarizer_timeout: float | None
    max_summary_tokens: int | None
    max_head_tokens: int | None
    shared: bool | None
    on_summarizer_error: Literal["log", "raise"]
    before_compaction: Callable[[CompactionRequest], object] | None


class StorageOptions(ManagerOptions, total=False):
    """The options that a storage passes on; see :class:`SummarizingOptions`."""

    max_buffers: int
    hard_limit: int | None
    max_concurrent_summaries: int
    drain_timeout: float | None


class _DefaultInt(int):
    """A default that can be distinguished from the same number given by the caller."""


DEFAULT_TRIGGER_AT: Final[int] = _DefaultInt(20)
DEFAULT_KEEP_LAST: Final[int] = _DefaultInt(2)


def combine_options(
    options: SummarizingOptions | None,
    named: Mapping[str, object],
    others: ManagerOptions | StorageOptions,
    *,
    allowed: type[ManagerOptions | StorageOptions],
) -> SummarizingOptions:
    """Return the options, changed by what the caller gave beside them.

    Args:
        options: the caller's; None for the defaults.
        named: options with a parameter of their own; the default of that parameter is left out.
        others: the rest.
        allowed: which names these may have.

    Raises:
        TypeError: another name is among them, as of any function.
    """
    unexpected = sorted(others.keys() - allowed.__annotations__.keys())
    if unexpected:
        raise TypeError(f"unexpected keyword argument {unexpected[0]!r}")
    if options is not None and not isinstance(options, SummarizingOptions):
        raise InvalidRequestError(
            f"options must be SummarizingOptions, not {type(options).__name__}"
        )
    # None means "not given" where None is also the default; `trigger_at=None` is an error.
    given = {
        name: value
        for name, value in named.items()
        if not isinstance(value, _DefaultInt) and (value is not None or name in _NEVER_NONE)
    }
    changes: dict[str, Any] = {**given, **others}
    return attrs.evolve(options or SummarizingOptions(), **changes)


_NEVER_NONE: Final = ("trigger_at", "keep_last")
