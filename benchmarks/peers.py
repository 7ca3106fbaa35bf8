"""The peers in the table, each installed or left out: other libraries' stores on SQLite.

Each runs with the durability that it has when made as its documentation shows; on SQLite that
is ``synchronous=FULL``, in WAL where the library sets it.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import warnings
from typing import Any

from benchmarks.contenders import Contender, text_of

ROLES = ("user", "assistant")


def _item(number: int) -> dict[str, str]:
    return {"role": ROLES[number % 2], "content": text_of(number)}


class OpenAiSqlite(Contender):
    name = "OpenAI Agents SQLiteSession (WAL, FULL)"
    package = "agents"

    async def open(self) -> None:
        self._sessions: dict[str, Any] = {}

    async def save(self, chat: str, number: int) -> None:
        await self._session(chat).add_items([_item(number)])

    async def fill(self, chat: str, count: int) -> None:
        await self._session(chat).add_items([_item(number) for number in range(count)])

    async def newest(self, chat: str, count: int) -> list[str] | None:
        return [item["content"] for item in await self._session(chat).get_items(count)]

    async def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def _session(self, chat: str) -> Any:
        if chat not in self._sessions:
            made: Any = importlib.import_module("agents.memory.sqlite_session")
            self._sessions[chat] = made.SQLiteSession(chat, self._directory / "openai.db")
        return self._sessions[chat]


class OpenAiAlchemy(Contender):
    name = "OpenAI Agents SQLAlchemySession (its settings)"
    package = "agents"

    async def open(self) -> None:
        alchemy: Any = importlib.import_module("sqlalchemy.ext.asyncio")
        self._engine = alchemy.create_async_engine(f"sqlite+aiosqlite:///{self._directory}/oa.db")
        self._sessions: dict[str, Any] = {}

    async def save(self, chat: str, number: int) -> None:
        await self._session(chat).add_items([_item(number)])

    async def fill(self, chat: str, count: int) -> None:
        await self._session(chat).add_items([_item(number) for number in range(count)])

    async def close(self) -> None:
        await self._engine.dispose()

    def _session(self, chat: str) -> Any:
        if chat not in self._sessions:
            made: Any = importlib.import_module("agents.extensions.memory.sqlalchemy_session")
            self._sessions[chat] = made.SQLAlchemySession(
                chat, engine=self._engine, create_tables=True
            )
        return self._sessions[chat]


class LangChain(Contender):
    """Its store is a blocking one, as most of its users call it."""

    name = "LangChain SQLChatMessageHistory (its settings)"
    package = "langchain_community"

    async def open(self) -> None:
        self._messages: Any = importlib.import_module("langchain_core.messages")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it announces that it will be split up
            self._made: Any = importlib.import_module(
                "langchain_community.chat_message_histories"
            ).SQLChatMessageHistory
        alchemy: Any = importlib.import_module("sqlalchemy")
        self._engine = alchemy.create_engine(f"sqlite:///{self._directory}/langchain.db")
        self._histories: dict[str, Any] = {}

    async def save(self, chat: str, number: int) -> None:
        self._history(chat).add_message(self._messages.HumanMessage(text_of(number)))

    async def fill(self, chat: str, count: int) -> None:
        made = [self._messages.HumanMessage(text_of(number)) for number in range(count)]
        self._history(chat).add_messages(made)

    async def close(self) -> None:
        self._engine.dispose()

    def _history(self, chat: str) -> Any:
        if chat not in self._histories:
            self._histories[chat] = self._made(chat, connection=self._engine)
        return self._histories[chat]


class AgentSquad(Contender):
    """It reads the whole chat before and after each save."""

    name = "agent-squad SqlChatStorage (its settings)"
    package = "agent_squad"
    longest = 5_000

    async def open(self) -> None:
        logging.getLogger("agent_squad").setLevel(logging.ERROR)
        self._types: Any = importlib.import_module("agent_squad.types")
        module: Any = importlib.import_module("agent_squad.storage.sql_chat_storage")
        self._storage = module.SqlChatStorage(f"file:{self._directory}/squad.db")
        await self._storage.initialize()

    async def save(self, chat: str, number: int) -> None:
        await self._storage.save_chat_message("user", "session", chat, self._message(number))

    async def fill(self, chat: str, count: int) -> None:
        made = [self._message(number) for number in range(count)]
        await self._storage.save_chat_messages("user", "session", chat, made)

    async def close(self) -> None:
        await self._storage.client.close()

    def _message(self, number: int) -> Any:
        content = [{"text": text_of(number)}]
        return self._types.ConversationMessage(role=ROLES[number % 2], content=content)


def installed() -> tuple[list[type[Contender]], list[str]]:
    """Return the peers that are here, and the names of the others."""
    found: list[type[Contender]] = []
    absent: list[str] = []
    for peer in (OpenAiSqlite, OpenAiAlchemy, LangChain, AgentSquad):
        needed = [peer.package, *(["libsql_client"] if peer is AgentSquad else [])]
        if all(importlib.util.find_spec(name) for name in needed):
            found.append(peer)
        else:
            absent.append(peer.name)
    return found, absent
