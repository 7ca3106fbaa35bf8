"""Conservation of the pure state, over random histories with tool calls and random answers."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import ConversationMessage, LogSlice, SummaryRecord
from agent_memory.errors import InvalidSummaryError
from agent_memory.summarizing.view import ChatView
from histories import histories, mixtures
from rig import disorder, names, orphans, placed, torn, user


def answers(draw, history):
    """An answer such as summarizers give: more or less of a summary, more or less kept."""
    count = draw(st.integers(0, len(history)), label="kept")
    kept = history[len(history) - count :]
    old = history[: len(history) - count]
    kept = [_anew(message) for message in kept] if draw(st.booleans(), label="anew") else kept
    middle = draw(st.sets(st.integers(0, 30), max_size=3), label="middle")
    chosen = [message for index, message in enumerate(old) if index in middle]
    made = [user(f"summary of {len(old)}")] if draw(st.booleans(), label="summary") else []
    if draw(st.booleans(), label="summary last"):
        return [*chosen, *made, *kept]
    return [*made, *chosen, *kept]


def _anew(message):
    return ConversationMessage(message.role, message.content, extra=dict(message.extra))


@attrs.define
class Tracked:
    """A view, the log it was fed, and which of its messages went into summaries."""

    raw: list = attrs.field(factory=list)
    covered: set = attrs.field(factory=set)
    view: ChatView = attrs.field(factory=ChatView)

    def compact(self, draw):
        snapshot = self.view.snapshot()
        before, held = self.view.newest(None), self.view.held_back
        if not snapshot.history:
            return
        try:
            compaction = snapshot.interpret(
                answers(draw, snapshot.history), keep_turn=draw(st.booleans(), label="keep turn")
            )
        except InvalidSummaryError:
            assert self.view.newest(None) == before
            return
        if snapshot.fresh and not compaction.cut:
            return  # nothing would be replaced: no measure calls that a gain
        self.view.splice(snapshot, compaction, None)
        gone = {m.id for m in (*before, *held) if m.position is not None} - {
            *names(self.view.newest(None)),
            *names(self.view.held_back),
        }
        assert gone <= set(names(snapshot.history))
        assert (compaction.dropped.count if compaction.dropped else 0) == len(gone)
        self.covered |= gone

    def check(self):
        view = self.view.newest(None)
        shown = [message for message in view if message.position is not None]
        held_back = {message.id for message in self.view.held_back}
        assert len(set(names(shown))) == len(shown)
        assert set(names(shown)) | self.covered | held_back == set(names(self.raw))
        assert not set(names(shown)) & (self.covered | held_back)
        assert not held_back & self.covered
        unpinned = [message for message in orphans(view) if message not in self.view.head]
        assert self.view.covered_through == self.view.floor or not unpinned
        assert not disorder([*self.view.summary, *self.view.tail])
        assert not disorder(self.view.head)
        assert not torn(view, self.raw)
        newest = {self.raw[-1].id} if self.raw else set()
        assert newest <= set(names(shown)) | held_back

    def check_restored(self):
        if self.view.covered_through == self.view.floor:
            return
        record = SummaryRecord(
            summary=self.view.summary,
            head=self.view.head,
            position=self.view.covered_through,
            message_id=self.view.covered_through_id,
            floor=0,
            covered=self.view.covered,
        )
        restored = ChatView.restored(
            record, LogSlice(self.raw[self.view.covered_through - 1 :], 0)
        )
        assert restored.newest(None) == self.view.newest(None)


def disorder_free_limits(view, limit):
    """A limited view is a part of the whole one, in order, and no longer than allowed."""
    whole, shown = names(view.newest(None)), names(view.newest(limit))
    rest = iter(whole)
    assert all(name in rest for name in shown)
    assert shown[-1:] == whole[-1:]


@given(history=st.one_of(histories(), mixtures()), data=st.data())
def test_every_message_is_shown_once_or_went_into_a_summary(history, data):
    """Whatever is answered, whenever: promise 2 for the pure state, in all four shapes."""
    pins = data.draw(st.sets(st.integers(0, 60), max_size=4), label="pins")
    raw = placed([attrs.evolve(m, pinned=True) if n in pins else m for n, m in enumerate(history)])
    tracked = Tracked()
    while raw:
        size = data.draw(st.integers(1, len(raw)), label="batch")
        tracked.view.append(raw[:size])
        tracked.raw += raw[:size]
        raw = raw[size:]
        if data.draw(st.booleans(), label="compact"):
            tracked.compact(data.draw)
        tracked.check()
        tracked.check_restored()
        disorder_free_limits(tracked.view, data.draw(st.integers(1, 8), label="limit"))
