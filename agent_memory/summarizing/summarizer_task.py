"""One call of a summarizer, which may outlive the wait for it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from agent_memory.errors import SummarizerError, SummarizerTimeoutError
from agent_memory.messages import ConversationMessage
from agent_memory.storage._engine.shared_task import is_over
from agent_memory.summarizers.base import Summarizer, SummarizerObject
from agent_memory.summarizers.bounds import KeepBounds


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
            if not self._task.done() and not self._task.get_loop().is_closed():
                self._task.add_done_callback(_forget_outcome)
                self._task.cancel()
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
