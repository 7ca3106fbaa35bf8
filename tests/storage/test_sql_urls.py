"""What SqlChatStorage can be opened with, and what it says of the rest."""

from __future__ import annotations

import logging
import sys
import traceback

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import QueuePool

from agent_memory import (
    ChatKey,
    ConversationMessage,
    InvalidRequestError,
    SqlChatStorage,
    StorageUnavailableError,
    SummarizingChatStorage,
)
from agent_memory.errors import MissingDependencyError
from agent_memory.storage.sql.urls import parse_target
from agent_memory.summarizers import SlidingWindowSummarizer

IDS = "user", "session", "agent"


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:///chats.db", "sqlite+pysqlite"),
        ("sqlite+aiosqlite:///chats.db", "sqlite+pysqlite"),
        ("postgres://host/db", "postgresql+asyncpg"),
        ("postgresql://host/db", "postgresql+asyncpg"),
        ("postgresql+asyncpg://host/db", "postgresql+asyncpg"),
        ("mysql://host/db", "mysql+asyncmy"),
        ("mariadb://host/db", "mariadb+asyncmy"),
        ("mysql+asyncmy://host/db", "mysql+asyncmy"),
    ],
)
def test_plain_urls_get_the_right_driver(url, driver):
    """People write the database's name; the driver is ours to choose."""
    assert parse_target(url).url.drivername == driver
    assert parse_target(make_url(url)).url.drivername == driver


@pytest.mark.parametrize(
    ("url", "scope"),
    [
        ("sqlite://", "process"),
        ("sqlite:///:memory:", "process"),
        ("sqlite:///file:some?mode=memory&uri=true", "process"),
        ("sqlite:///chats.db", "host"),
        ("postgresql://host/db", "network"),
        ("mysql://host/db", "network"),
    ],
)
def test_the_scope_follows_from_the_url(url, scope):
    """Whose writers are kept in order depends on where the database is."""
    assert SqlChatStorage(url).scope == scope


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("chats.db", "sqlite:///chats.db"),
        ("", "sqlite:///chats.db"),
        ("postgresql://user:p@ss@host:port/db", "percent-encoded"),
        ("oracle://host/db", "PostgreSQL"),
        ("nonesuch://host/db", "no database driver 'nonesuch'"),
        ("mssql+aioodbc://host/db", "not supported"),
        ("mysql+aiomysql://host/db", "'aiomysql' of the URL is not installed"),
        ("sqlite:///", "names no file"),
        ("sqlite:chats.db", "three slashes .* sqlite:///chats.db;"),
        ("sqlite:/var/chats.db", "three slashes .* sqlite:////var/chats.db;"),
        ("sqlite+aiosqlite:", "three slashes .* sqlite:///chats.db;"),
        ("sqlite://chats.db", "three slashes .* sqlite:///chats.db"),
        ("sqlite:///chats.db?mode=ro", r"'mode' .* ignored: write .*\?mode=ro&uri=true"),
        (None, "not NoneType"),
        (42, "not int"),
    ],
)
def test_other_urls_are_refused_with_advice(given, advice):
    """A URL that cannot work is refused when the store is made, with what to write instead."""
    with pytest.raises(InvalidRequestError, match=advice):
        SqlChatStorage(given)


def test_a_blocking_driver_is_refused_with_advice(monkeypatch):
    """A blocking driver's URL would stop the event loop; its engine is welcome."""
    monkeypatch.setitem(sys.modules, "pymysql", sys)  # any module will do as a driver
    with pytest.raises(InvalidRequestError, match=r"blocking driver; write mysql:// .* Engine"):
        SqlChatStorage("mysql+pymysql://host/db")


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [("postgresql://host/db", "asyncpg", "postgres"), ("mysql://host/db", "asyncmy", "mysql")],
)
def test_a_missing_driver_names_the_extra(monkeypatch, url, driver, extra):
    """What to install is in the error."""
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(MissingDependencyError, match=rf"{driver}.*\[{extra}\]"):
        SqlChatStorage(url)


@pytest.mark.parametrize(
    "given",
    [
        "postgresql://user:topsecret@host/db?password=topsecret",
        make_url("mysql://user:topsecret@host/db?program_name=topsecret"),
    ],
)
def test_no_password_is_shown(given):
    """What repr gives ends up in logs."""
    shown = repr(SqlChatStorage(given))
    assert "topsecret" not in shown
    assert "user" in shown
    assert "host/db" in shown


async def test_no_password_is_in_errors():
    """Nor do errors tell it, with all their causes."""
    storage = SqlChatStorage("postgresql://user:topsecret@127.0.0.1:1/db")
    with pytest.raises(StorageUnavailableError) as caught:
        await storage.fetch_chat(*IDS)
    error = caught.value
    while error is not None:
        assert "topsecret" not in str(error)
        error = error.__cause__ or error.__context__
    with pytest.raises(InvalidRequestError) as refused:
        SqlChatStorage("postgresql://user:topsecret@host:notaport/db")
    assert "topsecret" not in str(refused.value)
    await storage.aclose()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:topsecret@127.0.0.1:1/db",
        "postgresql://user@127.0.0.1:1/db?password=topsecret&sslpassword=topsecret",
        "mysql://user:topsecret@127.0.0.1:1/db",
        "mysql://user@127.0.0.1:1/db?password=topsecret",
        "postgresql://user:p%40topsecret@127.0.0.1:1/db?sslmode=require",
    ],
)
async def test_c102_no_password_is_in_logs_or_events(caplog, url):
    """Whatever is logged or told on the way to a server that does not answer."""
    caplog.set_level(logging.DEBUG)
    events = []
    inner = SqlChatStorage(url, timeout=0.2)
    storage = SummarizingChatStorage(inner, SlidingWindowSummarizer(), on_event=events.append)
    with pytest.raises(StorageUnavailableError) as caught:
        await storage.save_chat_message(*IDS, ConversationMessage("user", "hello"))
    await storage.aclose()
    told = "".join(traceback.format_exception(caught.value))
    shown = repr((storage, inner, inner._target, inner.path, events))
    assert "topsecret" not in caplog.text + told + shown


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"table_prefix": ""}, "table_prefix"),
        ({"table_prefix": "a-b"}, "table_prefix"),
        ({"table_prefix": "x" * 41}, "table_prefix"),
        ({"table_prefix": "1a"}, "table_prefix"),
        ({"schema": "a.b"}, "schema"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"durability": "none"}, "durability"),
    ],
)
def test_bad_options_are_refused(options, told):
    """What can never work is refused when the store is made."""
    with pytest.raises(InvalidRequestError, match=told):
        SqlChatStorage("sqlite://", **options)


def test_options_of_other_engines_are_refused():
    """An option that would have no effect is a misunderstanding."""
    with pytest.raises(InvalidRequestError, match="durability is for SQLite"):
        SqlChatStorage("postgresql://host/db", durability="normal")
    with pytest.raises(InvalidRequestError, match="engine_options are for URLs"):
        SqlChatStorage(create_engine("sqlite://"), engine_options={"echo": True})


@pytest.mark.parametrize("option", ["pool", "poolclass"])
@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///chats.db"])
def test_a_pool_for_sqlite_is_refused_at_once(url, option):
    """The store's threads would share connections, or lose them in a transaction."""
    with pytest.raises(InvalidRequestError, match=f"'{option}'.* Engine of your own"):
        SqlChatStorage(url, engine_options={option: QueuePool})


async def test_unknown_engine_options_are_refused():
    """SQLAlchemy knows its options; its complaint is passed on."""
    storage = SqlChatStorage("sqlite://", engine_options={"pool_sise": 3})
    with pytest.raises(InvalidRequestError, match="pool_sise"):
        await storage.fetch_chat(*IDS)
    await storage.aclose()


@pytest.mark.parametrize(
    "url", ["sqlite://", "postgresql://u:p@127.0.0.1:1/d", "mysql://u:p@127.0.0.1:1/d"]
)
async def test_c99_unknown_connect_arguments_are_refused(url):
    """The driver's complaint is no bare TypeError."""
    storage = SqlChatStorage(url, engine_options={"connect_args": {"conect_timeout": 3}})
    with pytest.raises(InvalidRequestError, match="conect_timeout"):
        await storage.fetch_chat(*IDS)
    await storage.aclose()


async def test_c99_a_wrong_value_in_a_sqlite_url_is_told():
    """The driver's complaint is no bare ValueError."""
    storage = SqlChatStorage("sqlite:///chats.db?timeout=soon")
    with pytest.raises(InvalidRequestError, match="soon"):
        await storage.fetch_chat(*IDS)
    await storage.aclose()


async def test_engine_options_are_passed_on(tmp_path):
    """Pool and engine options reach SQLAlchemy, and do not undo ours."""
    url = f"sqlite:///{tmp_path / 'chats.db'}"
    options = {"echo": False, "connect_args": {"cached_statements": 7}}
    async with SqlChatStorage(url, engine_options=options) as storage:
        await storage.save_chat_message(*IDS, ConversationMessage("user", "hi"))
        mode = await storage._query(
            lambda chats: chats.connection.exec_driver_sql("PRAGMA journal_mode").fetchone()[0]
        )
        assert mode == "wal"


async def test_a_missing_directory_is_told(tmp_path):
    """SQLite's own words would be 'unable to open database file'."""
    storage = SqlChatStorage(f"sqlite:///{tmp_path}/missing/chats.db")
    with pytest.raises(StorageUnavailableError, match="missing' of the SQLite file does not"):
        await storage.fetch_chat(*IDS)
    await storage.aclose()


def test_engines_are_understood():
    """A caller's engine is taken as it is."""
    blocking, asynchronous = create_engine("sqlite://"), create_async_engine("mysql+asyncmy://h/d")
    assert SqlChatStorage(blocking).scope == "process"
    assert SqlChatStorage(asynchronous).scope == "network"
    assert repr(SqlChatStorage(asynchronous)) == "SqlChatStorage('mysql://h/d')"


def test_keys_are_ordered_as_the_engine_orders_them():
    """Groups lock chats in the order that Python sorts them in; bytes and text agree."""
    keys = [ChatKey(a, b, "x") for a in ("a", "A", "é", "é", "z", "😀", "￿") for b in "ab"]
    as_text = sorted((key.user_id, key.session_id) for key in keys)
    as_bytes = sorted((key.user_id.encode(), key.session_id.encode()) for key in keys)
    assert [(a.encode(), b.encode()) for a, b in as_text] == as_bytes
