"""How much of a history a summarizer may keep, as its owner, a wrapper or manager, decides."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import attrs

DEFAULT_KEEP_RUNS: Final = 5
"""How many of the newest runs stay in a conversation where nothing else is said."""


@attrs.frozen(kw_only=True)
class KeepBounds:
    """What may be kept of a history that is to be summarized.

    A ``summarize`` with a keyword ``bounds`` is given them. What it keeps should begin at
    :meth:`cut`: then the summary takes place, and the view ends well under its trigger.

    Args:
        cuts: indexes of the history at which what is kept may begin, rising. The last one keeps
            the least that the owner keeps in any case: its `keep_last`, or the run in progress.
        tokens: estimated tokens of the history from each of these indexes on.
        length: messages of the history.
        total: estimated tokens of the history.
        max_messages: how many messages the view may hold; None for no limit.
        max_tokens: how many estimated tokens it may hold; None for no limit.
        keep_runs: how many of the newest runs to keep, where the summarizer has no wish of its
            own; None for no more than the least.
        run_id: the run in progress, which no result may name as summarized.
    """

    cuts: Sequence[int]
    tokens: Sequence[int]
    length: int
    total: int
    max_messages: int | None = None
    max_tokens: int | None = None
    keep_runs: int | None = None
    run_id: str | None = None

    def cut(
        self, wanted: int, run_starts: Sequence[int] = (), *, share: int = 2, summary: int = 0
    ) -> int:
        """Return where what is kept begins: as wanted, as far as the bounds allow.

        Args:
            wanted: the index that the summarizer would choose.
            run_starts: where the runs begin, rising: a cut there is preferred.
            share: as wanted, the view may end at this fraction of its limits: 2 for half of
                them. Where that is exceeded it ends under half.
            summary: tokens that the summary may take; a quarter of the limit at most is left.
        """
        least = self.cuts[-1]
        wanted = min(wanted, least)
        if self._fits(wanted, self._tokens_from(wanted), share, summary):
            return wanted
        fitting = (
            cut
            for cut, tokens in zip(self.cuts, self.tokens, strict=True)
            if cut > wanted and self._fits(cut, tokens, 2, summary)
        )
        first = next(fitting, least)
        return next((start for start in run_starts if first <= start <= least), first)

    def _tokens_from(self, index: int) -> int:
        if index <= 0:
            return self.total
        return self.tokens[min(bisect_left(self.cuts, index), len(self.cuts) - 1)]

    def leaves(self, cut: int) -> bool:
        """Whether there is anything to summarize before an index but an earlier summary."""
        return cut > self.cuts[0]

    def _fits(self, cut: int, tokens: int, share: int, summary: int) -> bool:
        if self.max_messages is not None and self.length - cut + 1 > self.max_messages // share:
            return False
        if self.max_tokens is None:
            return True
        return tokens + min(summary, self.max_tokens // 4) <= self.max_tokens // share
