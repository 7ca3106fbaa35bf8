"""Opening stores by URL."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent_memory import (
    FileChatStorage,
    InMemoryChatStorage,
    InvalidRequestError,
    SqlChatStorage,
    StorageError,
    open_storage,
)
from agent_memory.messages import ConversationMessage
from agent_memory.storage.urls import without_secrets

KEY = ("user", "session", "agent")


@pytest.fixture(autouse=True)
def _in_temporary_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def names_here() -> list[str]:
    return [path.name for path in Path().iterdir()]


async def saved_and_read_again(url: str) -> list[str]:
    async with open_storage(url) as storage:
        await storage.save_chat_message(*KEY, ConversationMessage("user", "hello"))
    async with open_storage(url) as storage:
        return [message.content for message in await storage.fetch_chat(*KEY)]


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("sqlite:///chats.db", "chats.db"),
        ("sqlite+aiosqlite:///chats.db", "chats.db"),
        ("file:./chats", "chats"),
        ("file:chats", "chats"),
        ("file:my%20chats%23%3F", "my chats#?"),
        ("FILE:chats", "chats"),
    ],
)
async def test_a_url_names_a_place_that_keeps(url, place):
    """What is saved under a URL is read under the same URL, and lies where the URL says."""
    assert await saved_and_read_again(url) == ["hello"]
    assert place in names_here()


async def test_an_absolute_path(tmp_path):
    """An absolute path is one, whether for a database file or a directory."""
    assert await saved_and_read_again(f"sqlite:///{tmp_path}/deep.db") == ["hello"]
    assert await saved_and_read_again(f"file://{tmp_path}/deep") == ["hello"]
    assert (tmp_path / "deep").is_dir()


async def test_a_home_directory(tmp_path, monkeypatch):
    """A tilde is the home directory, as in a shell, which leaves it alone behind a colon."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    assert await saved_and_read_again("file:~/chats") == ["hello"]
    assert (tmp_path / "home" / "chats").is_dir()


async def test_a_postgresql_server(postgres_url):
    """A database of a PostgreSQL server is named by its URL."""
    assert await saved_and_read_again(postgres_url) == ["hello"]


async def test_a_mariadb_server(mariadb_url):
    """A database of a MariaDB server is named by its URL."""
    assert await saved_and_read_again(mariadb_url) == ["hello"]


async def test_a_dynamodb_table(dynamodb_endpoint, dynamodb_table):
    """A table is named by its URL; without create_table it has to be there."""
    url = f"dynamodb://{dynamodb_table}?region=eu-central-1&endpoint={dynamodb_endpoint}"
    with pytest.raises(StorageError, match="create_table"):
        await saved_and_read_again(url)
    assert await saved_and_read_again(f"{url}&create_table=true&ttl_seconds=60") == ["hello"]


async def test_the_kinds_of_store():
    """Each scheme gives its own kind of store."""
    found = {}
    for url in ("memory:", "memory://", "sqlite://", "file:chats"):
        async with open_storage(url) as storage:
            found[url] = type(storage)
    assert found == {
        "memory:": InMemoryChatStorage,
        "memory://": InMemoryChatStorage,
        "sqlite://": SqlChatStorage,
        "file:chats": FileChatStorage,
    }


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("", "sqlite:///chats.db"),
        ("chats.db", "sqlite:///chats.db"),
        ("./chats", "file:./chats"),
        ("C:\\chats", "file:./chats"),
        (None, "must be a text"),
        (Path("chats"), "must be a text"),
        ("redis://localhost", "no store of kind 'redis'"),
        ("oracle+asyncpg://localhost", "no store of kind"),
        ("sqlite+nonsense:///chats.db", "no database driver"),
        ("file:", "names no directory"),
        ("file://", "names no directory"),
        ("file://chats", "another host"),
        ("file:chats?mode=x", "no options"),
        ("file:chats#x", "%23"),
        ("file://[chats", "cannot be read"),
        ("memory:name", "write memory:"),
        ("memory://name", "write memory:"),
        ("dynamodb:", "dynamodb://table"),
        ("dynamodb://", "dynamodb://table"),
        ("dynamodb://table/path", "dynamodb://table"),
        ("dynamodb://host:80/", "endpoint="),
        ("dynamodb://table?regoin=x", "no option 'regoin'"),
        ("dynamodb://table?create_table=yes", "true or false"),
        ("dynamodb://table?ttl_seconds=-1", "whole number"),
    ],
)
def test_a_bad_url_says_what_to_write(url, advice):
    """A URL that names no store is refused at once, with advice, and makes nothing."""
    with pytest.raises(InvalidRequestError) as caught:
        open_storage(url)
    assert advice in str(caught.value)
    assert names_here() == []


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hunter2@host",
        "postgresql+nonsense://user:hunter2@host/db",
        "postgresql://user:hunter2@host:port/db",
        "file://user:hunter2@host/chats",
        "dynamodb://id:hunter2@table",
        "dynamodb://table?secret_key=hunter2",
        "memory:hunter2",
        "hunter2@host",
        "nosuch://bob:hunter2@host/db",
        "bob:hunter2@host/db",
        "nosuch:bob:hunter2@host",
        "postgresql:bob:hunter2@host/db",
        "postgresql://bob:hunter2/db",
        "postgresql://bob:p@hunter2@host/db",
        "postgresql://bob:p@ss/hunter2@host/db",
        "postgresql://bob:p@s?hunter2=@host/db",
        "postgresql://bob:pw@host/db?sslmode=hunter2@",
        "mysql://bob:p@hunter2@host/db",
    ],
)
def test_c102_errors_show_no_password(url):
    """Whatever is wrong with a URL, its password is not in the error."""
    with pytest.raises(InvalidRequestError) as caught:
        open_storage(url)
    told = [caught.value, caught.value.__cause__]
    assert not any("hunter2" in str(error) for error in told)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:hunter2@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:hun/ter@2?#@host/db", "postgresql://me:***@host/db"),
        ("mysql://me@host/db?password=hunter2&x=1", "mysql://me@host/db?password=***&x=1"),
        ("dynamodb://table?secret_key=a&region=b", "dynamodb://table?secret_key=***&region=b"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("memory:", "memory:"),
        ("nosuch://bob:hunter2@host/db", "nosuch://bob:***@host/db"),
        ("bob:hunter2@host/db", "bob:***@host/db"),
        ("//bob:hunter2@host/db", "//bob:***@host/db"),
        ("nosuch:bob:hunter2@host", "nosuch:***@host"),
        ("postgresql:bob:hunter2@host/db", "postgresql:***@host/db"),
        ("postgresql://bob:hunter2/db", "postgresql://bob:***/db"),
        ("postgresql://bob@host:5432/db?sslkey=a.key", "postgresql://bob@host:5432/db?sslkey=***"),
        ("postgresql://host/db?sslpassword=hunter2", "postgresql://host/db?sslpassword=***"),
        ("postgresql://[::1]:5432/db", "postgresql://[::1]:5432/db"),
        ("dynamodb://t?endpoint=http://u:hunter2@h:80", "dynamodb://t?endpoint=http://u:***@h:80"),
        ("dynamodb://t?endpoint=http://h:80", "dynamodb://t?endpoint=http://h:80"),
        ("file:chats@home", "file:chats@home"),
        ("sqlite:////var/chats.db", "sqlite:////var/chats.db"),
        ("sqlite:///C:/chats.db", "sqlite:///C:/chats.db"),
    ],
)
def test_c102_a_url_is_shown_without_secrets(url, shown):
    """Passwords are hidden, also those that should have been encoded; the rest stays."""
    assert without_secrets(url) == shown


SHAPES = (
    "postgresql://me:{}@host/db",
    "nosuch://me:{}@host/db",
    "me:{}@host/db",
    "//me:{}@host",
    "postgresql:me:{}@host/db",
    "dynamodb://t?endpoint=http://u:{}@host:80",
)


@given(st.text(min_size=6), st.sampled_from(SHAPES))
def test_c102_no_password_survives(password, shape):
    """No password of any characters is left in the URL that is shown, whatever the URL's form."""
    assume(password not in shape.format("***"))
    assert password not in without_secrets(shape.format(password))


@pytest.mark.parametrize("url", ["sqlite:///no.db", "file:./no", "sqlite:///file:no.db?uri=true"])
def test_who_only_looks_makes_nothing(url):
    """With create=False a missing file or directory is told, and none is made."""
    with pytest.raises(StorageError, match="there is no no"):
        open_storage(url, create=False)
    assert names_here() == []


async def test_who_only_looks_makes_no_tables(tmp_path):
    """A database without our tables stays without them; one that has them is read."""
    (tmp_path / "empty.db").touch()
    with pytest.raises(StorageError, match="does not exist and create_tables is False"):
        async with open_storage("sqlite:///empty.db", create=False):
            pass
    await saved_and_read_again("sqlite:///chats.db")
    async with open_storage("sqlite:///chats.db", create=False) as storage:
        assert len(await storage.fetch_chat(*KEY)) == 1
