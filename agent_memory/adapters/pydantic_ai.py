"""Pydantic AI: message history to and from any store, and a history processor.

Written for pydantic-ai 2.x::

    history = AgentMemoryHistory(storage, user_id="alice", session_id="s1")
    agent = Agent(model, capabilities=[ProcessHistory(history.process)])

    result = await agent.run("Hello", message_history=await history.messages())
    await history.save(result.new_messages())
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from agent_memory.adapters.pydantic_ai_messages import (
    MARK,
    Dumped,
    dump_all,
    identity_of,
    load,
    parts_of,
    system_id,
)
from agent_memory.errors import InvalidRequestError, MissingDependencyError
from agent_memory.keys import ChatKey
from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.wrapper import checked_storage

try:
    from pydantic_ai import ModelMessagesTypeAdapter, RunContext
    from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart
    from pydantic_core import PydanticSerializationError
except ImportError as error:
    raise MissingDependencyError("pydantic-ai-slim", "pydantic-ai") from error

__all__ = ["AgentMemoryHistory", "from_pydantic_ai", "history_processor", "to_pydantic_ai"]

_KNOWN: Final = 64  # how many of the newest stored messages a save looks through

Processor: TypeAlias = Callable[
    [RunContext[Any], list[ModelMessage]], Awaitable[list[ModelMessage]]
]


# ------------------------------------------------------------------------------- conversion


def from_pydantic_ai(messages: Iterable[ModelMessage]) -> list[ConversationMessage]:
    """Make messages of Pydantic AI's; :func:`to_pydantic_ai` gives equal ones back.

    They are as equal as ``ModelMessagesTypeAdapter`` makes them: a tool's result that is an
    object of yours comes back as the data it was dumped to. What models understand is
    ``content`` in Anthropic's form; the rest goes to ``metadata["pydantic_ai"]``. A request that
    begins with a system prompt becomes two messages, so that summaries leave the prompt alone.
    Ids follow from what a message says, in which run, and when: converted again, it has the same.

    Raises:
        InvalidRequestError: an item is not a message, or cannot be dumped.
    """
    dumps = _dump(list(messages))
    named = zip(dumps, _names(dumps), strict=True)
    return [message for dump, name in named for message in load(dump, name)]


def to_pydantic_ai(messages: Iterable[ConversationMessage]) -> list[ModelMessage]:
    """Make Pydantic AI's messages, exactly those that :func:`from_pydantic_ai` was given.

    A message of any other origin (a summary, one in a provider's own form) is converted by what
    it says; its ``metadata["agent_memory_id"]`` is the id it has here.
    """
    return _validated(dump_all(messages))


def _dump(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    for index, message in enumerate(messages):
        if not isinstance(message, ModelRequest | ModelResponse):
            raise InvalidRequestError(
                f"message {index} must be a ModelRequest or ModelResponse, "
                f"not {type(message).__name__}"
            )
    try:
        dumps: list[dict[str, Any]] = ModelMessagesTypeAdapter.dump_python(
            list(messages), mode="json"
        )
        return dumps
    except (PydanticSerializationError, ValueError) as error:
        raise InvalidRequestError(f"a message cannot be dumped: {error}") from error


def _validated(dumps: Sequence[Dumped]) -> list[ModelMessage]:
    # As JSON, because only there bytes are read as the base64 text that they were dumped to.
    text = json.dumps([dumped.dump for dumped in dumps])
    return ModelMessagesTypeAdapter.validate_json(text)


def _names(dumps: Iterable[Mapping[str, Any]]) -> list[str]:
    """The messages' ids. Equal ones in one list are several all the same: they are numbered."""
    counts: Counter[str] = Counter()
    names: list[str] = []
    for name in map(identity_of, dumps):
        counts[name] += 1
        names.append(name if counts[name] == 1 else f"{name}-{counts[name]}")
    return names


# ---------------------------------------------------------------------------------- history


class AgentMemoryHistory:
    """One chat of any store as the message history of Pydantic AI's agents.

    Over a :class:`~agent_memory.SummarizingChatStorage` an agent is given the short view, while
    the store keeps every message. It holds nothing but the ids; make one wherever you need one.

    Args:
        storage: any store; it is never closed from here.
        user_id, session_id, agent_id: which chat.
        max_history_size: at most this many of the newest messages are shown; None for all.

    Every method raises what the store's own raise (:class:`~agent_memory.ChatStorage`).

    Raises:
        InvalidRequestError: an id is invalid, or `storage` is not a store.
    """

    def __init__(
        self,
        storage: ChatStorage,
        *,
        user_id: str,
        session_id: str,
        agent_id: str = "assistant",
        max_history_size: int | None = None,
    ) -> None:
        self._key = ChatKey(user_id, session_id, agent_id)
        self._ids = (user_id, session_id, agent_id)
        self._storage = checked_storage(storage)
        self._limit = max_history_size

    async def messages(self) -> list[ModelMessage]:
        """Return what a run should start with, as its ``message_history``."""
        return to_pydantic_ai(await self._storage.fetch_chat(*self._ids, self._limit))

    async def save(self, messages: Sequence[ModelMessage]) -> None:
        """Append those messages that the chat does not have yet, in one atomic step.

        Call it after each run; it may be called with the same messages again, and with all
        messages of a run that began with :meth:`messages`. What was made for a view (a summary)
        is never saved.

        Args:
            messages: ``result.new_messages()`` or ``result.all_messages()``.

        Raises:
            InvalidRequestError: a message cannot be stored; none is.
        """
        await self._add(_Given(messages), await self._storage.fetch_chat(*self._ids, _KNOWN))

    async def process(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Save what is new and return the view: a history processor.

        It runs before each request to the model, so that a run of many tool rounds is saved and
        kept short while it goes on. The request that is about to be sent is passed on as it is
        and saved the next time: Pydantic AI still fills it in. So the last reply of a run, which
        no request follows, has to be saved with :meth:`save`.

        Args:
            messages: the history of the run so far, ending in the request to be sent.
        """
        # A request that a caller gave, to go on with it, has no run yet and is nowhere new.
        is_given = bool(messages) and messages[-1].run_id is None
        given = _Given(messages if is_given else messages[:-1])
        view = await self._storage.fetch_chat(*self._ids, self._limit)
        if await self._add(given, view):
            view = await self._storage.fetch_chat(*self._ids, self._limit)
        shown = given.instead_of(dump_all(view))
        places = [place for place, message in enumerate(shown) if message is messages[-1]]
        return shown[: places[-1] + 1] if places else [*shown, *messages[-1:]]

    async def clear(self, *, erase: bool = False) -> None:
        """Forget the chat.

        Args:
            erase: False: the messages stay in the log, and a note hides them from every view.
                True: they are deleted for good.
        """
        if erase:
            await self._storage.delete_chat(*self._ids)
        else:
            await self._storage.clear(*self._ids)

    async def _add(self, given: _Given, view: Sequence[ConversationMessage]) -> bool:
        new = given.after(view)
        if new is None:  # a summarizer may keep none of the messages
            newest = await self._storage.read_log(*self._ids, last=_KNOWN)
            new = given.after([*view, *newest.messages]) or given.all()
        # A reply that calls tools would leave the log with an open exchange, and a summary waits
        # until that is closed: what comes before the reply is saved by itself.
        closed = len(new) - (bool(new) and new[-1].role is ParticipantRole.ASSISTANT)
        for batch in (new[:closed], new[closed:]):
            if batch:
                await self._storage.save_chat_messages(*self._ids, batch)
        return bool(new)


def history_processor(choose: Callable[[RunContext[Any]], AgentMemoryHistory]) -> Processor:
    """Make a history processor for an agent that serves many chats.

    Args:
        choose: gives a run's history; say, ``lambda ctx: ctx.deps.history``.
    """

    async def process(ctx: RunContext[Any], messages: list[ModelMessage]) -> list[ModelMessage]:
        return await choose(ctx).process(messages)

    return process


class _Given:
    """Messages that Pydantic AI handed over, each with its id."""

    def __init__(self, messages: Sequence[ModelMessage]) -> None:
        self._messages = list(messages)
        self._dumps = _dump(self._messages)
        self._names = _names(self._dumps)
        # A request that a caller made has no run until Pydantic AI gives it one.
        self._runless = [identity_of({**dump, "run_id": None}) for dump in self._dumps]

    def after(self, known: Sequence[ConversationMessage]) -> list[ConversationMessage] | None:
        """Those behind the newest one that is known; None when none is.

        What comes before that was saved before it.
        """
        ids = {message.id for message in known}
        said = {part for dumped in dump_all(known) for part in parts_of(dumped.dump)}
        for index in range(len(self._names) - 1, -1, -1):
            names = {self._names[index], self._runless[index]}
            if names & ids or self._is_merged(index, said):
                return self._loaded(index + 1)
        return None

    def all(self) -> list[ConversationMessage]:
        """All of them."""
        return self._loaded(0)

    def _is_merged(self, index: int, said: set[str]) -> bool:
        """Whether this is made of shown requests, which Pydantic AI merges when a run begins."""
        dump = self._dumps[index]
        merged = dump["kind"] == "request" and dump.get("run_id") is None
        return merged and bool(dump["parts"]) and parts_of(dump) <= said

    def _loaded(self, start: int) -> list[ConversationMessage]:
        new: list[ConversationMessage] = []
        for dump, name in zip(self._dumps[start:], self._names[start:], strict=True):
            if MARK not in (dump.get("metadata") or {}):
                new += load(dump, name)
        return new

    def instead_of(self, view: Sequence[Dumped]) -> list[ModelMessage]:
        """A view, with the objects handed over in place of their stored copies.

        Pydantic AI may have changed them since, as it does with dynamic system prompts.
        """
        mine: dict[str, ModelMessage] = {}
        for index, message in enumerate(self._messages):
            name = self._names[index]
            mine[name] = mine[self._runless[index]] = message
            prompts = [part for part in message.parts if isinstance(part, SystemPromptPart)]
            if prompts and len(prompts) < len(message.parts):
                lone = system_id(name)
                mine.setdefault(lone, ModelRequest(parts=prompts, metadata={MARK: lone}))
        stored = _validated(view)
        return [mine.get(dumped.id, message) for dumped, message in zip(view, stored, strict=True)]
