"""Where summarizers cut a history; every cut goes through :mod:`agent_memory.turns`."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory.messages import ConversationMessage
from agent_memory.summarizers.base import is_summary, summaries_in
from agent_memory.summarizers.bounds import KeepBounds
from agent_memory.turns import leading_system, runs, safe_start, split_recent

Messages = Sequence[ConversationMessage]


def instructions(messages: Messages) -> int:
    """Return how many leading system messages there are, without summaries in that role."""
    head = leading_system(messages)
    known = summaries_in(messages) if head else ()
    return next((at for at in range(head) if messages[at].id in known), head)


def split_at(
    messages: Messages, cut: int, bounds: KeepBounds | None
) -> tuple[list[ConversationMessage], list[ConversationMessage]]:
    """Return what is older than a cut, and the rest.

    Args:
        messages: the history.
        cut: where what is kept begins.
        bounds: None where a summarizer decides alone: leading system messages are left out
            then. Whoever gives bounds keeps the chat's own instructions itself; a system message
            that leads its history is one from the middle of the chat, and would be lost.
    """
    head = min(instructions(messages), cut) if bounds is None else 0
    return list(messages[head:cut]), list(messages[cut:])


def split_pairs(
    history: Messages, keep_last: int
) -> tuple[list[ConversationMessage], list[ConversationMessage], list[ConversationMessage]]:
    """Return leading instructions, what is to be summarized, and the newest messages.

    Args:
        history: the messages, oldest first.
        keep_last: how many pairs of messages to keep, at least 1.
    """
    head = instructions(history)
    return list(history[:head]), *split_recent(history[head:], keep_last)


def summarized_run(messages: Messages, cut: int, open_run: str | None = None) -> str | None:
    """Return the run that ends where a history is cut; None if the cut lies within one.

    Args:
        messages: the history.
        cut: where what is kept begins.
        open_run: a run that is never at its end: messages of others may stand between its own.
    """
    if not 0 < cut <= len(messages):
        return None
    run_id = messages[cut - 1].run_id
    goes_on = cut < len(messages) and messages[cut].run_id == run_id
    return None if goes_on or run_id == open_run else run_id


def run_starts(messages: Messages) -> list[int]:
    """Return where the runs of a history begin, after its system messages and summaries."""
    head = leading_system(messages)
    while head < len(messages) and is_summary(messages[head]):
        head += 1
    return [head + block.start for block in runs(messages[head:])]


def runs_cut(messages: Messages, keep_runs: int) -> int:
    """Return where the newest `keep_runs` runs begin, widened to a legal cut.

    0 where there are no more runs than that.
    """
    starts = run_starts(messages)
    return safe_start(messages, starts[-keep_runs]) if len(starts) > keep_runs else 0
