"""A call of a summarizer, which may outlive the wait for it, and what is read from its answer.

Of the messages of an answer some are the chat's and others the summarizer's own.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterable, Sequence, Sized
from concurrent.futures import Future
from functools import cached_property, partial
from typing import Any, Final, cast

import attrs

from agent_memory.errors import InvalidSummaryError, SummarizerError, SummarizerTimeoutError
from agent_memory.keys import new_id
from agent_memory.messages import ConversationMessage
from agent_memory.models.chat_model import check_refusal
from agent_memory.providers import parts, text_message, text_of
from agent_memory.providers.text import cut_middle
from agent_memory.storage._engine.event_loops import cancel, is_over
from agent_memory.summarizers.base import Summarizer, SummarizerObject
from agent_memory.summarizers.bounds import KeepBounds

_NOT_TEXT: Final = ("call", "result")
_ROUNDS: Final = 8  # of cutting a summary
_MARGIN: Final = 0.9


class SummarizerTask:
    """A call that has begun; make it within a running loop.

    What is async runs as a task. What is plain runs in a daemon thread of its own, so that
    neither a slow one holds up the loop nor a hung one the end of the process.

    Args:
        summarizer: a function ``(history, keep_last)`` or an object with ``summarize``, which
            is preferred.
        messages: the history; the summarizer gets a list of its own.
        keep_last: for a function: how many pairs of messages it should keep.
        context_tokens: for an object: how full the model's context is, in tokens.
        bounds: for an object whose ``summarize`` takes them: how much it may keep.
    """

    def __init__(
        self,
        summarizer: Summarizer,
        messages: Sequence[ConversationMessage],
        *,
        keep_last: int,
        context_tokens: int,
        bounds: KeepBounds | None = None,
    ) -> None:
        function: Any = summarizer
        second = keep_last
        if isinstance(summarizer, SummarizerObject):
            function, second = summarizer.summarize, context_tokens
            if bounds is not None and _takes(function, "bounds"):
                function = partial(function, bounds=bounds)
        self._thread_result: Future[Any] | None = None
        if not _is_async(function):
            self._thread_result = _in_thread(function, list(messages), second)
            self._task = asyncio.ensure_future(_awaited(self._thread_result))
        else:
            self._task = asyncio.ensure_future(function(list(messages), second))

    def done(self) -> bool:
        """Whether nothing of the call goes on any more."""
        in_thread = self._thread_result is not None and not self._thread_result.done()
        return is_over(self._task) and not in_thread

    def when_done(self, callback: Callable[[], object]) -> None:
        """Have something called when the task has ended, in its loop."""

        def ended(_task: asyncio.Task[Any]) -> None:
            callback()

        self._task.add_done_callback(ended)

    async def answer(self, seconds: float | None) -> Any:
        """Wait for the answer.

        Args:
            seconds: how long to wait; None for any time. The call is then cancelled, which
                it may ignore: see :meth:`done`.

        Raises:
            SummarizerTimeoutError: it did not end in time.
            SummarizerError: it raised; the exception is the cause.
        """
        try:
            await asyncio.wait({self._task}, timeout=seconds)
        finally:
            if not self._task.done():
                self._task.add_done_callback(_forget_outcome)
                cancel(self._task)
        if not self._task.done():
            raise SummarizerTimeoutError(f"the summarizer did not answer within {seconds} s")
        if self._task.cancelled():
            raise SummarizerError("the summarizer was cancelled from within")
        error = self._task.exception()
        if isinstance(error, SummarizerError):
            raise error
        if error is not None:
            raise SummarizerError(
                f"the summarizer raised {type(error).__name__}: {error}"
            ) from error
        return self._task.result()


def _takes(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins have no signature
        return False


def _is_async(function: Callable[..., Any]) -> bool:
    function = getattr(function, "func", function)  # of a partial
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  an instance with an async __call__
    )


def _in_thread(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    outcome: Future[Any] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result = context.run(function, *arguments)
        except StopIteration as error:  # a future rejects it, and its waiters would wait for ever
            outcome.set_exception(RuntimeError(f"the summarizer raised {error!r}"))
        except BaseException as error:  # noqa: BLE001  passed on to the waiters, whatever it is
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    threading.Thread(target=run, name="agent-memory-summarizer", daemon=True).start()
    return outcome


async def _awaited(outcome: Future[Any]) -> Any:
    result = await asyncio.shield(asyncio.wrap_future(outcome))
    # A plain function may return what an async one made, as ``lambda h, k: f(h, k)`` does.
    return await result if inspect.isawaitable(result) else result


def _forget_outcome(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


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
        held = parts(message)
        if any(part.kind in _NOT_TEXT for part in held):
            raise InvalidSummaryError(
                "the summary holds a tool call or result that is not the chat's"
            )
        if not any(part.kind == "text" and part.text.strip() for part in held):
            raise InvalidSummaryError("the summary is blank")
        for said in (message.extra, *(part.raw for part in held)):
            match said:
                case {"refusal": refusal}:
                    check_refusal(refusal)
                case _:
                    pass
        if message.id in self._taken or message.position is not None:
            message = attrs.evolve(message, id=new_id())
        self._taken.add(message.id)
        return message


def _size(message: ConversationMessage) -> tuple[str, int]:
    content = message.content
    sized = isinstance(content, str | list | dict)
    return message.role.value, len(cast("Sized", content)) if sized else -1


def clip_summary(
    block: Sequence[ConversationMessage],
    max_tokens: int,
    count: Callable[[ConversationMessage], int],
) -> tuple[ConversationMessage, ...]:
    """Cut the texts of a block that are longer than their share of `max_tokens`.

    Messages of the chat's own log are left as they are. A text is cut in its middle: what comes
    first says what it is, what comes last is the newest.

    Args:
        block: what stands for the older messages of a chat.
        max_tokens: for the made messages together.
        count: tells the tokens of a message.
    """
    made = [message for message in block if message.position is None]
    if sum(map(count, made)) <= max_tokens:
        return tuple(block)
    share = max(1, max_tokens // len(made))
    return tuple(
        message if message.position is not None else _clip(message, share, count)
        for message in block
    )


def _clip(
    message: ConversationMessage, max_tokens: int, count: Callable[[ConversationMessage], int]
) -> ConversationMessage:
    text = text_of(message)
    size = len(text)
    clipped = message
    for _ in range(_ROUNDS):
        tokens = count(clipped)
        if tokens <= max_tokens:
            return clipped
        size = min(int(size * _MARGIN * max_tokens / tokens), size - 1)
        kept = max(0, size)
        mark = f"\n[… {len(text) - kept} characters left out …]\n"
        clipped = _with_text(message, cut_middle(text, kept, mark))
    return _with_text(message, "…")


def _with_text(message: ConversationMessage, text: str) -> ConversationMessage:
    return text_message(
        message.role,
        text,
        like=message,
        id=message.id,
        timestamp=message.timestamp,
        run_id=message.run_id,
        metadata=dict(message.metadata),
    )
