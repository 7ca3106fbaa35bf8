"""Group commit: appends that wait at the same moment share one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from agent_memory.errors import AgentMemoryError
from agent_memory.records import LogSlice
from agent_memory.storage._engine.handoff import Handoff, answer_all, own_copy
from agent_memory.storage.sql.appending import append_group, append_known
from agent_memory.storage.sql.entries import Append, RowCodec
from agent_memory.storage.sql.errors import Failure, TransactionFailedError, kind_of
from agent_memory.storage.sql.jobs import told
from agent_memory.storage.sql.postgresql import AtOnce
from agent_memory.storage.sql.session import Session
from agent_memory.storage.sql.statements import Statements

MAX_ROWS: Final = 1_000
MAX_CHARACTERS: Final = 4_000_000
"""Where a group ends: a transaction should not grow without bound, and callers wait for it."""

_UNAVAILABLE: Final = (Failure.LOST, Failure.BUSY, Failure.CONTENDED)


@attrs.frozen
class Appender:
    """Commits groups of appends for one store.

    Args:
        statements: for engines that take a few of them in a transaction.
        codec: decodes what is known already.
        at_once: for PostgreSQL, which takes a group in one.
    """

    statements: Statements
    codec: RowCodec
    at_once: AtOnce | None

    def commit(self, session: Session, group: Sequence[PendingAppend]) -> None:
        """Store a group in one transaction and tell every caller how it went.

        When a row of the group is refused, say because an id is known already, each append is
        done again in a transaction of its own, so that one caller's trouble is nobody else's.
        """
        appends = [pending.append for pending in group]
        try:
            stored = self._store(session, appends)
        except TransactionFailedError as error:
            if kind_of(error.error) in _UNAVAILABLE:
                _fail(group, error)
            else:
                self._commit_each(session, group)
        except BaseException as error:
            # Whatever it is, callers wait for these replies and must be told.
            _fail(group, error)
            if not isinstance(error, Exception):
                raise
        else:
            answer_all(zip([pending.reply for pending in group], stored, strict=True))

    def _store(self, session: Session, appends: Sequence[Append]) -> list[LogSlice]:
        at_once = self.at_once
        if at_once is not None and sum(append.size for append in appends) <= MAX_CHARACTERS:
            return session.single(lambda connection: at_once.append(connection, appends))
        return session.transact(
            lambda connection: append_group(connection, self.statements, appends),
            repeatable=True,
        )

    def _commit_each(self, session: Session, group: Sequence[PendingAppend]) -> None:
        for index, pending in enumerate(group):
            try:
                pending.reply.set_result(self._commit_known(session, pending.append))
            except (TransactionFailedError, AgentMemoryError) as error:
                _fail([pending], error)
            except BaseException as error:
                # As above: nobody may be left waiting.
                _fail(group[index:], error)
                if not isinstance(error, Exception):
                    raise
                return

    def _commit_known(self, session: Session, append: Append) -> LogSlice:
        return session.transact(
            lambda connection: append_known(connection, self.statements, self.codec, append),
            repeatable=True,
        )


@attrs.define(eq=False)
class PendingAppend:
    """An append that waits, who commits it, and the reply its caller waits for."""

    append: Append
    appender: Appender
    # Handoff[LogSlice]() costs more than all the rest of it.
    reply: Handoff[LogSlice] = attrs.field(factory=Handoff)  # pyright: ignore[reportUnknownVariableType]


def _fail(group: Iterable[PendingAppend], error: BaseException) -> None:
    for pending in group:
        pending.reply.set_exception(told(own_copy(error), pending.append.key))


def groups(waiting: Sequence[PendingAppend]) -> Iterator[list[PendingAppend]]:
    """Split what waits, in order, into groups of bounded size."""
    group: list[PendingAppend] = []
    rows = characters = 0
    for pending in waiting:
        more_rows, more = len(pending.append.rows), pending.append.size
        if group and (rows + more_rows > MAX_ROWS or characters + more > MAX_CHARACTERS):
            yield group
            group, rows, characters = [], 0, 0
        group.append(pending)
        rows, characters = rows + more_rows, characters + more
    if group:
        yield group


def commit_all(waiting: Sequence[PendingAppend], session: Session) -> None:
    """Store what waits, all of one store's, in groups of bounded size."""
    for group in groups(waiting):
        group[0].appender.commit(session, group)
