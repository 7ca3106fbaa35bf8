"""Delays between attempts."""

from __future__ import annotations

from agent_memory.storage._engine.backoff import Backoff


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_delays_are_random_below_a_ceiling_that_doubles(monkeypatch):
    """Full jitter: from nothing up, so that those who failed together come apart."""
    asked = []
    monkeypatch.setattr("random.uniform", lambda low, high: asked.append((low, high)) or high)
    backoff = Backoff(1_000, 0.1, first=0.02, clock=Clock())
    assert [backoff.next_delay() for _ in range(5)] == [0.02, 0.04, 0.08, 0.1, 0.1]
    assert {low for low, _ in asked} == {0}


def test_no_delay_goes_past_the_deadline(monkeypatch):
    """The last attempt is made at the deadline, and none after it."""
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    clock = Clock()
    backoff = Backoff(0.5, first=0.4, clock=clock)
    assert backoff.next_delay() == 0.4
    clock.now += 0.4
    assert not backoff.expired
    assert abs(backoff.next_delay() - 0.1) < 1e-9
    clock.now += 0.2
    assert backoff.expired
    assert backoff.next_delay() == 0
