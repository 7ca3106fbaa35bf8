"""The protocols of summarizers, their result, and the message of a summary."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

import attrs

from agent_memory.errors import InvalidRequestError, InvalidSummaryError
from agent_memory.keys import check_id, new_id, optional_id_field
from agent_memory.messages import ConversationMessage, ParticipantRole, Usage
from agent_memory.providers import text_message, text_of
from agent_memory.summarizers.coverage import Coverage

SUMMARY_TITLE: Final = "Summary of the earlier conversation"
"""How every summary that this library words begins, so that a model knows what it reads."""

_STANDING: Final = "notes, no request; dealt with unless called open"
"""Without it agents do again what is done, or obey what a summary mentions."""

_ID_PREFIX: Final = "summary-"
_MADE_ID: Final = re.compile(_ID_PREFIX + "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def new_summary_id() -> str:
    """Return an id for a summary and its message: recognisable, and never given to another."""
    return _ID_PREFIX + new_id()


def summary_role(value: ParticipantRole | str) -> ParticipantRole:
    """Return the role that a summary may have: any but a tool's.

    Raises:
        InvalidRequestError: it may not have this one.
    """
    allowed = [role for role in ParticipantRole if role is not ParticipantRole.TOOL]
    if value not in allowed:
        raise InvalidRequestError(
            f"role must be one of {', '.join(allowed)}; a summary cannot be {value!r}"
        )
    return ParticipantRole(value)


def summary_message(
    body: str,
    *,
    like: ConversationMessage | None,
    summary_id: str,
    role: ParticipantRole | str = ParticipantRole.USER,
    note: str = "",
    run_id: str | None = None,
    covers: Coverage | None = None,
) -> ConversationMessage:
    """Return the message that stands for what was summarized.

    Its first paragraph says that it is a summary, of what, and that it asks for nothing.

    Args:
        body: the summary itself.
        like: a message of the chat, the newest at best; the summary takes its format.
        summary_id: the message's id, see :func:`new_summary_id`.
        role: the role of its author. Every provider takes ``"user"`` anywhere.
        note: said in brackets behind the title, such as how the summary was made.
        run_id: the run the summary belongs to; a run of its own at best.
        covers: which messages it was made from, where that is known.
    """
    remarks = [note, "" if covers is None else str(covers), _STANDING]
    title = f"{SUMMARY_TITLE} ({'; '.join(filter(None, remarks))}):"
    return text_message(
        role,
        f"{title}\n\n{body.strip()}",
        like=like,
        id=summary_id,
        run_id=run_id,
        metadata={} if covers is None else covers.metadata,
    )


def is_summary(message: ConversationMessage) -> bool:
    """Whether :func:`summary_message` made the message, as far as the message alone can tell.

    What has a position was saved by the application: it is a message of the chat, whatever its
    id and words.
    """
    return message.position is None and _MADE_ID.fullmatch(message.id) is not None


def summaries_in(history: Sequence[ConversationMessage]) -> frozenset[str]:
    """Return the ids of the messages of a history that are summaries, whoever made them.

    In a view they are the ones without a position before one that has one: all others come from
    the log. What an application adds at the end, or never saved, :func:`is_summary` tells.
    """
    newest = max((at for at, m in enumerate(history) if m.position is not None), default=-1)
    return frozenset(
        message.id
        for at, message in enumerate(history)
        if message.position is None and (at < newest or is_summary(message))
    )


def summary_body(message: ConversationMessage) -> str:
    """Return what a summary says, below its title if it has one."""
    text = text_of(message)
    return text.partition("\n\n")[2] if text.startswith(SUMMARY_TITLE) else text


def _messages(value: object) -> Any:
    if value is None:
        return ()
    # A text stays one until the whole result is known, see __attrs_post_init__.
    if isinstance(value, str):
        if not value.strip():
            raise InvalidSummaryError(
                "the summary is blank; pass None to leave messages out without a summary, or "
                "return None instead of a SummaryResult to change nothing"
            )
        return value
    if isinstance(value, ConversationMessage):
        return (value,)
    if not isinstance(value, Sequence) or isinstance(value, bytes | bytearray):
        raise InvalidSummaryError(
            f"a summary is a text, a message or several messages, not {type(value).__name__}"
        )
    return _checked(cast("Sequence[object]", value))


def _checked(value: Sequence[object]) -> tuple[ConversationMessage, ...]:
    checked: list[ConversationMessage] = []
    for item in value:
        if not isinstance(item, ConversationMessage):
            kind = type(item)
            raise InvalidSummaryError(
                "a summary is made of agent_memory.messages.ConversationMessage, not of "
                f"{kind.__module__}.{kind.__qualname__}"
            )
        checked.append(item)
    return tuple(checked)


def _kept(value: object) -> tuple[ConversationMessage, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise InvalidSummaryError(
            f"messages_to_keep is a list of messages, not {type(value).__name__}"
        )
    return _checked(cast("Sequence[object]", value))


def _id_or_new(value: str) -> str:
    return value or new_summary_id()


def _usage(_instance: object, _attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, Usage):
        raise InvalidSummaryError(f"usage must be a Usage or None, not {type(value).__name__}")


@attrs.frozen
class SummaryResult:
    """What a summarizer made of a history.

    Args:
        summary: a text, a message, or several messages that stand for everything that is not
            kept. A text becomes one message of role ``user`` under the title
            :data:`SUMMARY_TITLE`, in the format of the newest kept message. None, or ``()``, is
            no summary at all: what is not kept is only left out.
        messages_to_keep: the newest messages, as they were given. Whoever holds the summarizer
            keeps its own least, and the newest exchange whole, even if these are fewer.
        last_summarized_run_id: the newest run that is summarized as a whole: what follows the
            last block of that run stays, even if `messages_to_keep` holds less. None where the
            cut lies within a run or the history has no runs. An id that no message of the
            history has is a failure.
        summary_id: names the summary; generated where it is empty.
        usage: what the summary cost, or None where that is unknown.

    Raises:
        InvalidSummaryError: the summary is blank, or something is not as said above.
    """

    summary: tuple[ConversationMessage, ...] = attrs.field(default=None, converter=_messages)
    messages_to_keep: tuple[ConversationMessage, ...] = attrs.field(default=(), converter=_kept)
    last_summarized_run_id: str | None = attrs.field(default=None, validator=optional_id_field)
    summary_id: str = attrs.field(default="", converter=_id_or_new)
    usage: Usage | None = attrs.field(default=None, validator=_usage)

    def __attrs_post_init__(self) -> None:
        check_id(self.summary_id, "summary_id")
        given: object = self.summary
        if isinstance(given, str):
            like = self.messages_to_keep[-1] if self.messages_to_keep else None
            message = summary_message(given, like=like, summary_id=self.summary_id)
            object.__setattr__(self, "summary", (message,))

    @property
    def messages(self) -> list[ConversationMessage]:
        """The summary, then what is kept: the history as the model should see it."""
        return [*self.summary, *self.messages_to_keep]


SummarizerFunction: TypeAlias = Callable[
    [list[ConversationMessage], int],
    list[ConversationMessage] | Awaitable[list[ConversationMessage]],
]
"""``(history, keep_last) -> list``: the summary, then about the newest `keep_last` pairs (twice
as many messages) as they were given. Plain or async."""


@runtime_checkable
class SummarizerObject(Protocol):
    """An object that decides itself whether, and how much, to summarize."""

    def summarize(
        self, messages: list[ConversationMessage], context_tokens: int
    ) -> SummaryResult | Awaitable[SummaryResult | None] | None:
        """Return the summary of the older part of `messages`; None means "not yet".

        Args:
            messages: the history, oldest first, an earlier summary included. The list is the
                summarizer's own; the messages are immutable.
            context_tokens: how full the model's context is, in tokens.

        The method is plain or async.
        """
        ...


Summarizer: TypeAlias = SummarizerFunction | SummarizerObject
"""Whatever can summarize: a function ``(history, keep_last)`` or a :class:`SummarizerObject`.
Something that is both is used as the object."""


def summarizer_name(summarizer: Summarizer) -> str:
    """Return what records and logs call a summarizer: its class's or function's name."""
    name = getattr(summarizer, "__qualname__", None)
    return name if isinstance(name, str) else type(summarizer).__qualname__


def check_summarizer(summarizer: object, name: str) -> None:
    """Refuse what cannot be called as a summarizer.

    Raises:
        InvalidRequestError: it is a class, or neither a function nor an object with
            ``summarize``.
    """
    if isinstance(summarizer, type):
        raise InvalidRequestError(
            f"{name} is the class {summarizer.__name__}; make one of it: {summarizer.__name__}(…)"
        )
    if not callable(summarizer) and not callable(getattr(summarizer, "summarize", None)):
        raise InvalidRequestError(
            f"{name} must be a function (history, keep_last) or an object with a method "
            f"summarize(messages, context_tokens), not {type(summarizer).__name__}"
        )
