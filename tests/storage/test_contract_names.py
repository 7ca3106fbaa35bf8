"""No test of the contract may hide another: a name used in two themes would run once."""

from __future__ import annotations

from collections import Counter

from agent_memory.testing.contract.suite import ChatStorageTests


def test_no_theme_hides_a_test_of_another():
    """What a later theme calls the same is silently left out by Python's inheritance."""
    names = Counter(
        name
        for theme in ChatStorageTests.__mro__
        for name in vars(theme)
        if name.startswith("test_")
    )
    assert [name for name, count in names.items() if count > 1] == []
