"""Reading what a summarizer answered: which of its messages are the chat's, and which its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from functools import cached_property
from typing import Final, cast

import attrs

from agent_memory.errors import InvalidSummaryError
from agent_memory.keys import new_id
from agent_memory.messages import ConversationMessage
from agent_memory.models.chat_model import check_refusal
from agent_memory.providers import parts, text_of
from agent_memory.providers.part import as_dict, as_list

_NOT_TEXT: Final = ("call", "result")


def checked_answer(answer: object) -> Sequence[ConversationMessage]:
    """Return an answer that is a list of messages.

    Raises:
        InvalidSummaryError: it is something else.
    """
    if not isinstance(answer, list | tuple):
        raise InvalidSummaryError(
            f"a summarizer must return a list of ConversationMessage, not {type(answer).__name__}"
        )
    messages: list[ConversationMessage] = []
    for index, message in enumerate(cast("Sequence[object]", answer)):
        if not isinstance(message, ConversationMessage):
            # Other libraries call their messages ConversationMessage, too.
            raise InvalidSummaryError(
                f"item {index} of the summarizer's answer must be an "
                f"{_full_name(ConversationMessage)}, not {_full_name(type(message))}"
            )
        messages.append(message)
    return messages


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def check_order(block: Iterable[ConversationMessage]) -> None:
    """Check that the chat's own messages among these come in the log's order.

    Raises:
        InvalidSummaryError: they do not.
    """
    newest = 0
    for message in block:
        if message.position is None:
            continue
        if message.position <= newest:
            raise InvalidSummaryError("the summary holds messages of the chat out of their order")
        newest = message.position


def is_rewritten(known: ConversationMessage, message: ConversationMessage) -> bool:
    """Whether a message has a known one's id and another text, and neither has more than text.

    A call or a result is never rewritten: its exchange is valid only as it was.
    """
    return (
        message.id == known.id
        and not known.same_payload(message)
        and all(part.kind == "text" for part in (*parts(message), *parts(known)))
    )


class KnownMessages:
    """Tells the messages of a history from others in an answer: by id, else by equal payload.

    Args:
        history: what the summarizer was given.
        kept: how many messages at its end the answer keeps; they cannot be matched again.
        others: further messages; a summary must not have their ids either.
    """

    def __init__(
        self,
        history: Sequence[ConversationMessage],
        kept: int,
        others: Iterable[ConversationMessage],
    ) -> None:
        self._history = history
        self._by_id = {message.id: message for message in history}
        self._used = {message.id for message in history[len(history) - kept :]}
        in_log = (message.id for message in history if message.position is not None)
        self._taken = {message.id for message in others}.union(in_log)

    @cached_property
    def _by_size(self) -> dict[tuple[str, int], list[ConversationMessage]]:
        found: dict[tuple[str, int], list[ConversationMessage]] = {}
        for message in self._history:
            found.setdefault(_size(message), []).append(message)
        return found

    def match(self, message: ConversationMessage) -> ConversationMessage | None:
        """Return the message of the history that is meant; None for one of the summarizer's own.

        What is rewritten under a known id is its own: a summary written into an old message's
        place, or every summary under one id.

        Raises:
            InvalidSummaryError: it was meant before.
        """
        match = self._by_id.get(message.id) or self._alike(message)
        if match is None or is_rewritten(match, message):
            return None
        if match.id in self._used:
            raise InvalidSummaryError(f"the summary holds the message {match.id!r} twice")
        self._used.add(match.id)
        return match

    def _alike(self, message: ConversationMessage) -> ConversationMessage | None:
        for other in self._by_size.get(_size(message), ()):
            if other.id not in self._used and other.same_payload(message):
                return other
        return None

    def own(self, message: ConversationMessage) -> ConversationMessage:
        """Return a message of the summarizer's own, with an id and no place in the log.

        Raises:
            InvalidSummaryError: it is blank, or holds calls or results.
            RefusedError: it is the refusal of the model that was asked for a summary.
        """
        if any(part.kind in _NOT_TEXT for part in parts(message)):
            raise InvalidSummaryError(
                "the summary holds a tool call or result that is not the chat's"
            )
        if not text_of(message).strip():
            raise InvalidSummaryError("the summary is blank")
        check_refusal(message.extra.get("refusal"))
        for block in as_list(message.content):
            check_refusal((as_dict(block) or {}).get("refusal"))
        if message.id in self._taken or message.position is not None:
            message = attrs.evolve(message, id=new_id())
        self._taken.add(message.id)
        return message


def _size(message: ConversationMessage) -> tuple[str, int]:
    content = message.content
    sized = isinstance(content, str | list | dict)
    return message.role.value, len(cast("Sized", content)) if sized else -1
