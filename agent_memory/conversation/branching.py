"""Going on from an earlier run of a thread, in a session of its own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import attrs

from agent_memory.errors import InvalidRequestError, StorageConflictError, StorageError
from agent_memory.keys import new_id
from agent_memory.log import Covered, LogSlice, Note, SummaryRecord, is_outdated, visible
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.storage.base import ChatStorage
from agent_memory.turns import runs

_log = logging.getLogger(__name__)

FORK: Final = "fork"
"""The kind of the note that names the origin of a fork."""


async def fork(
    storage: ChatStorage, key: ChatKey, after_run_id: str, fork_session_id: str
) -> ChatKey:
    """Return the chat that goes on after a run: the thread itself, or a copy of its beginning.

    The copy is written in one atomic step, with the same message ids, a note of where it comes
    from, and the newest summary of what is copied.

    Raises:
        InvalidRequestError: the thread has no such run, or the session of the fork is taken.
    """
    log = await storage.read_log(key.user_id, key.session_id, key.agent_id)
    messages = visible(log.entries)
    stop = _end_of_run(key, messages, after_run_id)
    if stop == len(messages):
        return key
    target = attrs.evolve(key, session_id=fork_session_id)
    origin = {"session_id": key.session_id, "run_id": after_run_id, "token": new_id()}
    # The id is always the same and the token is not: of two forks into one session at the same
    # time, the store refuses the second one's note as a conflict.
    note = Note(FORK, origin, id="fork")
    taken = f"the fork's session {fork_session_id!r} is in use; give another fork_session_id"
    ids = target.user_id, target.session_id, target.agent_id
    if (await storage.read_log(*ids, last=1)).entries:
        raise InvalidRequestError(taken)
    try:
        stored = await storage.append(*ids, [*messages[:stop], note])
    except StorageConflictError as error:
        raise InvalidRequestError(taken) from error
    await _carry_summary(storage, key, target, log, stored)
    return target


def _end_of_run(key: ChatKey, messages: list[ConversationMessage], run_id: str) -> int:
    ends = [block.stop for block in runs(messages) if messages[block.start].run_id == run_id]
    if not ends:
        raise InvalidRequestError(
            f"the thread of {key} has no run {run_id!r} to go on after; its messages, see "
            "load_transcript, carry the ids of the runs there are"
        )
    return ends[-1]


async def _carry_summary(
    storage: ChatStorage, source: ChatKey, target: ChatKey, log: LogSlice, stored: LogSlice
) -> None:
    """Give the fork the newest summary that stands for nothing beyond what was copied.

    Without it nothing is wrong: the fork would be summarized again.
    """
    summaries = storage.summaries()
    if summaries is None:
        return
    copies = {message.id: message for message in stored.messages}
    pairs = [(m.position or 0, copies[m.id]) for m in log.messages if m.id in copies]
    try:
        for record in reversed(await summaries.list_summaries(source)):
            following = [e for e in log.entries if (e.position or 0) > record.position]
            if is_outdated(record, following):
                continue
            moved = _moved(record, log.floor, pairs, stored.floor)
            if moved is not None:
                await summaries.save_summary(target, moved, replaces=None)
                return
    except StorageError as error:
        _log.warning("the summary of %s was not copied to its fork: %s", source, error)


def _moved(
    record: SummaryRecord,
    floor: int,
    pairs: Sequence[tuple[int, ConversationMessage]],
    new_floor: int,
) -> SummaryRecord | None:
    """Return a record as it stands in the fork; None if it stands for more than was copied.

    Args:
        record: of the thread.
        floor: the thread's.
        pairs: what was copied: the position in the thread, and the message in the fork.
        new_floor: the fork's.
    """
    by_id = {message.id: message for _, message in pairs}
    if record.floor != floor or not floor < record.position <= pairs[-1][0]:
        return None
    if any(message.id not in by_id for message in record.head):
        return None
    reached = [message for old, message in pairs if old <= record.position]
    covered = [m for old, m in pairs if record.covered.first <= old <= record.covered.last]
    if not reached or not covered:
        return None
    return attrs.evolve(
        record,
        id=new_id(),
        replaces=None,
        head=tuple(by_id[message.id] for message in record.head),
        position=reached[-1].position or 0,
        message_id=reached[-1].id,
        floor=new_floor,
        known=0,
        covered=Covered(covered[0].position or 0, covered[-1].position or 0, record.covered.count),
        usage=None,  # the fork did not pay for it
    )
