"""What the tests of races share: a chat at the brink, a summary held at a gate, conservation."""

from __future__ import annotations

import asyncio

from rig import IDS, violations


async def full(rig):
    """An active chat whose next save exceeds the trigger."""
    await rig.active(7)
    await rig.talk(3)
    assert len(rig.calls) == 1


def begin(work):
    return asyncio.create_task(work)


async def summarizing(rig):
    """Return the save that waits for a summary, and the gate that holds the summarizer."""
    await full(rig)
    gate = rig.summarizer.hold()
    saving = begin(rig.talk(1))
    await gate.reached()
    return saving, gate


async def conserved(rig, ids=IDS):
    view = await rig.view(ids=ids)
    assert violations(view, await rig.raw(ids)) == []
    return view
