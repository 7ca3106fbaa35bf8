"""PostgreSQL: a whole group of appends in one statement, hence in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from agent_memory.log import LogSlice
from agent_memory.storage.sql.appending import Save, SaveGroup
from agent_memory.storage.sql.statements import AnyConnection, ChatRow, KeyValues, Statements, now

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


class PostgresAppend:
    """Appends groups in one statement."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._statement = statements.compile(_TEXT)
        self._for_one = statements.compile(_TEXT_FOR_ONE)

    def append(self, connection: AnyConnection, saves: Sequence[Save]) -> list[LogSlice]:
        """Do what ``append_group`` does; `connection` is in autocommit mode."""
        group = SaveGroup(self._statements, saves)
        if len(saves) == 1 and len(saves[0].encoded) == 1:
            chats = self._append_one(connection, saves[0])
        else:
            values = {**_chat_values(group), **_entry_values(group), "now": now()}
            rows = self._statement.rows(connection, values)
            chats = {(row[0], row[1], row[2]): ChatRow(*row[3:]) for row in rows}
        return [stored for stored, _rows in group.placed(chats)]

    def _append_one(self, connection: AnyConnection, save: Save) -> dict[KeyValues, ChatRow]:
        ((entry_id, note, body),) = save.encoded
        values = self._statements.key_values(save.key)
        values.update({"id": entry_id, "note": note, "body": body, "now": now()})
        (row,) = self._for_one.rows(connection, values)
        return {self._statements.key_tuple(save.key): ChatRow(*row)}


def _chat_values(group: SaveGroup) -> dict[str, list[Any]]:
    chats = sorted(group.counts)
    return {
        "user_ids": [chat[0] for chat in chats],
        "session_ids": [chat[1] for chat in chats],
        "agent_ids": [chat[2] for chat in chats],
        "counts": [group.counts[chat] for chat in chats],
    }


def _entry_values(group: SaveGroup) -> dict[str, list[Any]]:
    left = dict(group.counts)  # how many of a chat are still to come: how far it is to `last`
    columns: tuple[list[Any], ...] = ([], [], [], [], [], [], [])
    for save, chat in group.saves:
        for row in save.encoded:
            left[chat] -= 1
            for column, value in zip(columns, (*chat, left[chat], *row), strict=True):
                column.append(value)
    names = ("entry_user_ids", "entry_session_ids", "entry_agent_ids", "backs")
    return dict(zip((*names, "ids", "notes", "bodies"), columns, strict=True))
