"""Going on from an earlier run of a thread."""

from __future__ import annotations

import attrs

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ChatKey, ConversationMessage
from agent_memory.storage.base import ChatStorage
from agent_memory.turns import runs


async def fork(
    storage: ChatStorage, key: ChatKey, after_run_id: str, fork_session_id: str
) -> ChatKey:
    """Return the chat that goes on after a run: the thread itself, or a copy of its beginning.

    The copy is written in one atomic step, with the same message ids.

    Raises:
        InvalidRequestError: the thread has no such run, or the session of the fork is not empty.
    """
    found = storage.iter_chat(key.user_id, key.session_id, key.agent_id)
    messages = [message async for message in found]
    stop = _end_of_run(key, messages, after_run_id)
    if stop == len(messages):
        return key
    target = attrs.evolve(key, session_id=fork_session_id)
    if await storage.fetch_chat_since(target.user_id, target.session_id, target.agent_id, 0):
        raise InvalidRequestError(
            f"the fork's session {fork_session_id!r} has messages already; give another id"
        )
    await storage.save_chat_messages(
        target.user_id, target.session_id, target.agent_id, messages[:stop]
    )
    return target


def _end_of_run(key: ChatKey, messages: list[ConversationMessage], run_id: str) -> int:
    ends = [block.stop for block in runs(messages) if messages[block.start].run_id == run_id]
    if not ends:
        raise InvalidRequestError(f"the thread of {key} has no run {run_id!r} to go on after")
    return ends[-1]
