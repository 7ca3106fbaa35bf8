"""A summarizer that follows a script and records its calls."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, cast

import attrs

from agent_memory.messages import ConversationMessage
from agent_memory.providers import text_message
from agent_memory.testing.doubles import Gate
from agent_memory.turns import split_recent

_WITNESS: Final = "witness"

Step: TypeAlias = (
    str
    | Sequence[Any]
    | BaseException
    | type[BaseException]
    | Callable[[list[ConversationMessage], int], Any]
    | None
)
"""What one call does: None gives a witness summary, an exception is raised, a function is called
with the history and keep_last (and awaited if need be; let it return None to answer None),
anything else is the answer."""


@attrs.frozen
class SummarizerCall:
    """One call of a summarizer.

    Attributes:
        history: what it was given.
        keep_last: how many pairs it was asked to keep.
    """

    history: tuple[ConversationMessage, ...]
    keep_last: int


def witness_summary(messages: Sequence[ConversationMessage]) -> ConversationMessage:
    """Return a summary that remembers the ids of the messages it stands for.

    What an earlier witness among them remembered is taken over, so that
    :func:`witnessed` returns everything that ever went into it.
    """
    ids = [name for message in messages for name in witnessed(message)]
    text = f"Summary of {len(ids)} messages."
    like = messages[-1] if messages else None
    return text_message("user", text, like=like, metadata={_WITNESS: ids})


def witnessed(message: ConversationMessage) -> list[str]:
    """Return the ids a witness summary stands for; of any other message its own id."""
    ids = message.metadata.get(_WITNESS)
    return [message.id] if ids is None else list(cast("list[str]", ids))


class ScriptedSummarizer:
    """An async summarizer that follows a script, one step for each call, then gives witnesses.

    Args:
        script: what the calls do in turn; see :data:`Step`.
        cut: how a witness splits the history into what it summarizes and what it keeps; the
            default keeps whole exchanges. ``blind_cut`` is the careless way.

    Attributes:
        calls: every call there was, in order, those that failed too.
        running: how many calls are running at this moment.
        most_running: how many ever ran at one moment.
    """

    def __init__(
        self,
        script: Iterable[Step] = (),
        *,
        cut: Callable[
            [list[ConversationMessage], int],
            tuple[list[ConversationMessage], list[ConversationMessage]],
        ] = split_recent,
    ) -> None:
        self._script: deque[Step] = deque(script)
        self._cut = cut
        self._gates: deque[Gate] = deque()
        self.calls: list[SummarizerCall] = []
        self.running = 0
        self.most_running = 0

    def then(self, *steps: Step) -> None:
        """Add steps to the script."""
        self._script.extend(steps)

    def hold(self) -> Gate:
        """Return a gate at which the next call will wait before it does its step."""
        gate = Gate()
        self._gates.append(gate)
        return gate

    async def __call__(
        self, history: list[ConversationMessage], keep_last: int
    ) -> list[ConversationMessage]:
        """Do the next step of the script."""
        self.calls.append(SummarizerCall(tuple(history), keep_last))
        step = self._script.popleft() if self._script else None
        gate = self._gates.popleft() if self._gates else None
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if gate is not None:
                await gate.passed()
            answer = await self._answer(step, history, keep_last)
        finally:
            self.running -= 1
        # A script may give what no summarizer should: that is what it is for.
        return cast("list[ConversationMessage]", answer)

    async def _answer(
        self, step: Step, history: list[ConversationMessage], keep_last: int
    ) -> object:
        if step is None:
            old, recent = self._cut(history, keep_last)
            return [witness_summary(old), *recent]
        if isinstance(step, BaseException) or _is_error_type(step):
            raise cast("BaseException", step)
        if callable(step):
            answer: object = step(history, keep_last)
            return (
                await cast("Awaitable[object]", answer) if inspect.isawaitable(answer) else answer
            )
        return step


def _is_error_type(step: object) -> bool:
    return isinstance(step, type) and issubclass(step, BaseException)


def blind_cut(
    history: list[ConversationMessage], keep_last: int
) -> tuple[list[ConversationMessage], list[ConversationMessage]]:
    """Split a history by counting alone, as a careless summarizer does."""
    return history[: -keep_last * 2], history[-keep_last * 2 :]
