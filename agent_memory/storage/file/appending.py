"""Appending to a chat's file: one lock, one write and one sync for all that wait."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import cast

import attrs

from agent_memory.messages import ChatKey
from agent_memory.storage._engine.handoff import own_copy
from agent_memory.storage.file.disk import (
    Durability,
    UncertainError,
    interrupted,
    sync_behind,
    sync_directory,
    sync_file,
    unavailable,
    write_behind,
)
from agent_memory.storage.file.lock import ChatLock, release
from agent_memory.storage.file.names import ChatPaths, paths_of
from agent_memory.storage.file.planning import Batch, Encoded, Outcome, Plan, encoded
from agent_memory.storage.file.state import StateCache, load_state


@attrs.frozen
class Appender:
    """Appends batches to chats' files.

    Args:
        root: the store's directory.
        cache: what is known of the files.
        lock: how chats are locked.
        durability: what "stored" means.
    """

    root: Path
    cache: StateCache
    lock: ChatLock
    durability: Durability

    def group(self, key: ChatKey, batches: Sequence[Batch]) -> AppendGroup:
        """Return what appends batches to one chat together."""
        return AppendGroup(self, key, paths_of(self.root, key), batches)


@attrs.define(eq=False)
class AppendGroup:
    """Batches that are appended to one chat together, whole with :meth:`run` or in three steps.

    The steps are for one thread that appends to several chats: :meth:`begin` writes,
    :meth:`sync` waits for the disk, :meth:`end` gives the chat back. No method raises.

    Args:
        appender: who appends.
        key: which chat.
        paths: its files.
        batches: in the order in which they are to be stored.

    Attributes:
        outcomes: what each batch's caller is told; empty until that is known.
    """

    appender: Appender
    key: ChatKey
    paths: ChatPaths
    batches: Sequence[Batch]
    outcomes: list[Outcome] = attrs.field(factory=list[Outcome], init=False)
    _encoded: list[Encoded | Exception] = attrs.field(init=False)
    _file: FileIO | None = attrs.field(default=None, init=False)
    _plan: Plan | None = attrs.field(default=None, init=False)
    _planned: list[Outcome] = attrs.field(factory=list[Outcome], init=False)

    def run(self) -> None:
        """Append them; wait for other processes that hold the chat."""
        if not self._encode():
            return
        try:
            with self.appender.lock.hold(self.paths, self.key) as file:
                plan = self._write(file)
                self._bring_to_disk(plan)
                self._remember(plan)
        except Exception as error:  # noqa: BLE001 - else whoever waits would wait for ever
            if not self.outcomes:
                self._fail(error)

    def begin(self) -> None:
        """Write them, unless the chat is new or another process holds it: then do nothing."""
        if not self._encode():
            return
        try:
            self._file = self.appender.lock.take_free(self.paths)
        except Exception:  # noqa: BLE001 - run() meets it again, and tells
            return
        if self._file is not None:
            try:
                self._write(self._file)
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(error)

    def sync(self) -> None:
        """Bring to the disk what :meth:`begin` wrote."""
        if self._plan is not None:
            try:
                self._bring_to_disk(self._plan)
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(error)

    def end(self) -> None:
        """Give back the chat that :meth:`begin` took."""
        if self._plan is not None:
            try:
                self._remember(self._plan)
            except Exception as error:  # noqa: BLE001 - as above
                if not self.outcomes:
                    self._fail(error)
        if self._file is not None:
            release(self._file)
            self._file = None

    def _encode(self) -> bool:
        """Encode the batches; return whether there is anything to store."""
        self._encoded = [*map(encoded, self.batches)]
        errors = [batch for batch in self._encoded if isinstance(batch, Exception)]
        if len(errors) == len(self._encoded):
            self.outcomes = [*errors]
        return not self.outcomes

    def _fail(self, error: Exception) -> None:
        """Have every batch's caller told, but those whose batch has an error of its own."""
        self._plan = None
        self.outcomes = [
            batch if isinstance(batch, Exception) else self._told(error) for batch in self._encoded
        ]

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, OSError):
            return unavailable(error, self.key, "saving to the chat")
        return cast("Exception", own_copy(error))

    def abandon(self, error: BaseException) -> None:
        """Have every batch's caller told that something ended the thread's work."""
        if not self.outcomes:
            self.outcomes = [interrupted(self.key, error) for _ in self.batches]
        if self._file is not None:
            release(self._file)
            self._file = None

    # ------------------------------------------------------------ each with the chat's lock held

    def _write(self, file: FileIO) -> Plan:
        state = self.appender.cache.take(self.paths.log, os.fstat(file.fileno()))
        state = load_state(file, self.paths, self.key) if state is None else state
        plan = Plan(self.key, file, state)
        try:
            self._planned = [plan.outcome(batch) for batch in self._encoded]
            if plan.marks:
                write_behind(file, state.end, plan.data)
        except BaseException:
            self._remove_if_empty(plan)
            raise
        self._plan = plan
        return plan

    def _bring_to_disk(self, plan: Plan) -> None:
        state, durability = plan.state, self.appender.durability
        try:
            if plan.marks:
                sync_behind(plan.file, state.end, durability)
            elif not state.settled:
                # All were known. Whoever wrote them may have crashed before the disk had them.
                sync_file(plan.file.fileno(), durability)
            if not state.settled:
                self._sync_names()
                state.settled = True
        except BaseException:
            self._remove_if_empty(plan)
            raise

    def _sync_names(self) -> None:
        """Bring the names of a file that another may have made to the disk."""
        try:
            for directory in self.paths.directories:
                sync_directory(directory, self.appender.durability)
        except OSError as error:
            raise UncertainError(*error.args) from error

    def _remember(self, plan: Plan) -> None:
        if plan.marks:
            plan.state.grow(plan.marks, len(plan.data))
        self._remove_if_empty(plan)
        self.outcomes = self._planned
        if plan.state.end:
            with suppress(OSError):  # it is stored all the same, and read anew by the next save
                stat = os.fstat(plan.file.fileno())
                self.appender.cache.put(self.paths.log, stat, plan.state)

    def _remove_if_empty(self, plan: Plan) -> None:
        if plan.state.end == 0:  # nothing was written to a new file
            with suppress(OSError):
                os.unlink(self.paths.log)  # noqa: PTH108 - a string
