"""A run that is still being written, and what its summaries may therefore stand for."""

from __future__ import annotations

import logging

import attrs

from agent_memory.compaction import Compaction, Snapshot
from agent_memory.errors import InvalidSummaryError
from agent_memory.summarizers.base import new_summary_id

_log = logging.getLogger(__name__)


@attrs.frozen
class OpenRun:
    """A run that is still being written.

    Args:
        id: its run id.
        start: the newest position of the log before it.
    """

    id: str
    start: int

    def kept_at_least(self, snapshot: Snapshot, last_run_id: str | None) -> int | None:
        """Return how many of the newest messages stay, whatever the summarizer kept.

        Args:
            snapshot: what the summarizer was given.
            last_run_id: the newest run that it summarized, None if it named none.

        Returns:
            This run's messages, and those after the last block of the run that was named, which
            lies before this run; None if that is this very run.

        Raises:
            InvalidSummaryError: the history has no such run.
        """
        if last_run_id is None:
            return len(snapshot.given_after(self.start))
        reach = -1
        for message in snapshot.history:
            if message.run_id == last_run_id and (message.position or 0) <= self.start:
                reach = message.position or 0
        if reach >= 0:
            return len(snapshot.given_after(reach))
        if last_run_id == self.id:
            _log.warning("a summary of the run %r, still being written, is refused", self.id)
            return None
        raise InvalidSummaryError(
            f"last_summarized_run_id is {last_run_id!r}, which is no run of the history; name "
            "the newest run that is summarized as a whole, or None"
        )

    def with_own_summary(
        self, compaction: Compaction, snapshot: Snapshot, summary_id: str
    ) -> Compaction:
        """Return a compaction whose summary is a run of its own."""
        known = {id(message) for message in snapshot.history}
        taken = {self.id, *(message.run_id for message in snapshot.history)}
        name = new_summary_id() if not summary_id or summary_id in taken else summary_id
        block = [
            message if id(message) in known else attrs.evolve(message, run_id=name)
            for message in compaction.block
        ]
        return attrs.evolve(compaction, block=tuple(block))
