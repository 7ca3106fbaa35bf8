"""PostgreSQL: a whole group of appends in one statement, hence in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Dialect, text

from agent_memory.records import LogSlice
from agent_memory.storage.sql.appending import Head, counted, now, placed
from agent_memory.storage.sql.entries import Append
from agent_memory.storage.sql.schema import Tables
from agent_memory.storage.sql.statements import Executor, Place, StatementSet

# Arrays, so that one text serves groups of any size. The rows come in key order and are locked
# in that order. What a statement cannot finish it undoes, so that it needs no transaction.
_TEXT: Final = """\
WITH head AS (
  INSERT INTO {chats} AS chat
    (user_id, session_id, agent_id, floor, last, created_at, updated_at)
  SELECT user_id, session_id, agent_id, 0, count, CAST(:now AS bigint), CAST(:now AS bigint)
  FROM unnest(
    CAST(:user_ids AS text[]), CAST(:session_ids AS text[]), CAST(:agent_ids AS text[]),
    CAST(:counts AS bigint[])
  ) AS given (user_id, session_id, agent_id, count)
  ON CONFLICT (user_id, session_id, agent_id) DO UPDATE
    SET last = chat.last + excluded.last, updated_at = excluded.updated_at
  RETURNING chat.user_id, chat.session_id, chat.agent_id, chat.number, chat.floor, chat.last
), added AS (
  INSERT INTO {entries} (chat, position, id, note, body)
  SELECT head.number, head.last - back, id, note, body
  FROM unnest(
    CAST(:entry_user_ids AS text[]), CAST(:entry_session_ids AS text[]),
    CAST(:entry_agent_ids AS text[]), CAST(:backs AS bigint[]),
    CAST(:ids AS text[]), CAST(:notes AS smallint[]), CAST(:bodies AS text[])
  ) AS entry (user_id, session_id, agent_id, back, id, note, body)
  JOIN head USING (user_id, session_id, agent_id)
)
SELECT user_id, session_id, agent_id, number, floor, last FROM head
"""


# The same for one entry: arrays of one cost the client more than the rest.
_TEXT_FOR_ONE: Final = """\
WITH head AS (
  INSERT INTO {chats} AS chat
    (user_id, session_id, agent_id, floor, last, created_at, updated_at)
  VALUES (
    :user_id, :session_id, :agent_id, 0, 1, CAST(:now AS bigint), CAST(:now AS bigint)
  )
  ON CONFLICT (user_id, session_id, agent_id) DO UPDATE
    SET last = chat.last + 1, updated_at = excluded.updated_at
  RETURNING chat.number, chat.floor, chat.last
), added AS (
  INSERT INTO {entries} (chat, position, id, note, body)
  SELECT number, last, CAST(:id AS text), CAST(:note AS smallint), CAST(:body AS text) FROM head
)
SELECT number, floor, last FROM head
"""


class AtOnce(StatementSet):
    """Appends groups in one statement; see :class:`StatementSet` for the arguments."""

    def __init__(self, tables: Tables, dialect: Dialect) -> None:
        super().__init__(tables, dialect)
        names: Any = dialect.identifier_preparer
        chats, entries = names.format_table(tables.chats), names.format_table(tables.entries)
        compiled = (
            self._compile(text(written.format(chats=chats, entries=entries)))
            for written in (_TEXT, _TEXT_FOR_ONE)
        )
        self._statement, self._for_one = compiled

    def append(self, connection: Executor, appends: Sequence[Append]) -> list[LogSlice]:
        """Do what ``append_group`` does; `connection` is in autocommit mode."""
        counts = counted(appends)
        if len(appends) == 1 and len(appends[0].rows) == 1:
            heads = self._append_one(connection, appends[0])
            return [stored for stored, _rows in placed(appends, heads, counts)]
        values = {**_chat_values(counts), **_entry_values(appends, counts), "now": now()}
        rows = self._statement.rows(connection, values)
        heads = {(row[0], row[1], row[2]): Head(*row[3:]) for row in rows}
        return [stored for stored, _rows in placed(appends, heads, counts)]

    def _append_one(self, connection: Executor, append: Append) -> dict[Place, Head]:
        ((entry_id, note, body),) = append.rows
        values = self.key_values(append.key)
        values.update({"id": entry_id, "note": note, "body": body, "now": now()})
        (head,) = self._for_one.rows(connection, values)
        return {append.place: Head(*head)}


def _chat_values(counts: dict[Place, int]) -> dict[str, list[Any]]:
    places = sorted(counts)
    return {
        "user_ids": [place[0] for place in places],
        "session_ids": [place[1] for place in places],
        "agent_ids": [place[2] for place in places],
        "counts": [counts[place] for place in places],
    }


def _entry_values(appends: Sequence[Append], counts: dict[Place, int]) -> dict[str, list[Any]]:
    left = dict(counts)  # how many entries of a chat are still to come: how far it is to `last`
    columns: tuple[list[Any], ...] = ([], [], [], [], [], [], [])
    for append in appends:
        place = append.place
        for row in append.rows:
            left[place] -= 1
            for column, value in zip(columns, (*place, left[place], *row), strict=True):
                column.append(value)
    names = ("entry_user_ids", "entry_session_ids", "entry_agent_ids", "backs")
    return dict(zip((*names, "ids", "notes", "bodies"), columns, strict=True))
