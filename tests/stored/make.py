"""Writes what a release stores on each backend, as test data for the releases after it.

``release-0.1`` was made once, with release 0.1 checked out and this directory copied into its
``tests``::

    python tests/stored/make.py tests/stored/release-0.1

It fills every backend with ``contents.fill`` and keeps

- ``files``: the directory of a file store, as it is,
- ``chats.db``: a SQLite file, as it is,
- ``postgresql.sql``, ``mariadb.sql``: the tables as the release made them, and their rows, a
  statement a line,
- ``dynamodb.json``: the items of a table, as DynamoDB's API writes them, an item a line,
- ``chats.json``: what the release itself said of each backend's chats (``list_chats``).

Bodies that DynamoDB cuts into parts are cut after 1,000 bytes here instead of 300,000.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

# ruff: noqa: E402  (the modules of the tests are found from here on)
import contents
from sqlalchemy import text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.schema import CreateTable

from agent_memory import (
    ChatStorage,
    DynamoDbChatStorage,
    FileChatStorage,
    SqlChatStorage,
)
from agent_memory.storage.dynamodb import table_layout, writer
from emulators import running_emulator
from engines import running_mariadb, running_postgres
from servers import (
    dynalite_command,
    mariadb_binaries,
    postgres_binaries,
    private_directory,
    unprivileged_user,
)


async def filled(storage: ChatStorage) -> list[list[Any]]:
    """Fill a store; gives what it says of its chats."""
    async with storage:
        await contents.fill(storage)
        return await described(storage)


async def described(storage: ChatStorage) -> list[list[Any]]:
    return [
        [
            info.key.user_id,
            info.key.session_id,
            info.key.agent_id,
            info.floor,
            info.last,
            info.created_at and info.created_at.isoformat(),
            info.updated_at and info.updated_at.isoformat(),
        ]
        async for info in storage.list_chats()
    ]


# ------------------------------------------------------------------------------- SQL servers


async def dumped(url: str, dialect: Any, quoted: Any) -> tuple[list[str], list[list[Any]]]:
    storage = SqlChatStorage(url)
    chats = await filled(storage)
    async with SqlChatStorage(url) as storage:
        tables = storage._tables

        def read(chats: Any) -> list[str]:
            lines = []
            for table in tables.all:
                statement = str(CreateTable(table).compile(dialect=dialect))
                lines.append(" ".join(statement.split()))
                names = ", ".join(column.name for column in table.columns)
                order = ", ".join(column.name for column in table.primary_key.columns)
                rows = chats.connection.execute(
                    text(f"SELECT {names} FROM {table.name} ORDER BY {order}")
                )
                for row in rows:
                    values = ", ".join(quoted(value) for value in row)
                    lines.append(f"INSERT INTO {table.name} ({names}) VALUES ({values})")
            return lines

        return await storage._query(read), chats


def postgres_literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def mysql_literal(value: Any) -> str:
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


async def postgres(url: str, target: Path) -> list[list[Any]]:
    lines, chats = await dumped(url, postgresql.dialect(), postgres_literal)
    counter = "pg_get_serial_sequence('agent_memory_chats', 'number')"
    lines.append(f"SELECT setval({counter}, max(number)) FROM agent_memory_chats")
    (target / "postgresql.sql").write_text(";\n".join(lines) + ";\n", encoding="utf-8")
    return chats


async def mariadb(url: str, target: Path) -> list[list[Any]]:
    import asyncmy  # noqa: PLC0415

    parts = url.split("@")[1].split(":")
    connection = await asyncmy.connect(
        host=parts[0], port=int(parts[1].strip("/")), user="tester", password="secret"
    )
    async with connection.cursor() as cursor:
        await cursor.execute("CREATE DATABASE stored")
    await connection.ensure_closed()
    lines, chats = await dumped(f"{url}stored", mysql.dialect(), mysql_literal)
    (target / "mariadb.sql").write_text(";\n".join(lines) + ";\n", encoding="utf-8")
    return chats


# ---------------------------------------------------------------------------------- DynamoDB


def parted(plain: str, _room: int) -> table_layout.Body:
    """A body in parts, which are smaller than real ones."""
    return table_layout.Body(parts=table_layout.split(table_layout.zipped(plain), 1_000))


async def dynamodb(endpoint: str, target: Path) -> list[list[Any]]:
    options = {"region": "eu-central-1", "endpoint_url": endpoint, "create_table": True}
    await filled(DynamoDbChatStorage("stored", **options))
    for ids, extra in ((contents.ZIPPED, {}), (contents.EXPIRING, {"ttl_seconds": 3_000_000_000})):
        async with DynamoDbChatStorage("stored", **options, **extra) as storage:
            await storage.save_chat_message(*ids, long_message())
            for one in contents.numbered("z", 2, 3):
                await storage.save_chat_message(*ids, contents.message(one))
    plain, writer.pack = writer.pack, parted
    try:
        async with DynamoDbChatStorage("stored", **options) as storage:
            await storage.save_chat_message(*contents.PARTED, long_message())
    finally:
        writer.pack = plain
    async with DynamoDbChatStorage("stored", **options) as storage:
        chats = await described(storage)
    lines = await dumped_items(endpoint)
    (target / "dynamodb.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return chats


def long_message() -> Any:
    fields = {"id": "z1", "role": "user", "content": contents.LONG}
    return contents.message({**fields, "timestamp": contents.moment(1)})


async def dumped_items(endpoint: str) -> list[str]:
    import aioboto3  # noqa: PLC0415

    making = aioboto3.Session().client(
        "dynamodb", endpoint_url=endpoint, region_name="eu-central-1"
    )
    items = []
    async with making as client:
        async for page in client.get_paginator("scan").paginate(TableName="stored"):
            items += page["Items"]
    return sorted(json.dumps(plain(item), sort_keys=True) for item in items)


def plain(value: Any) -> Any:
    """Attributes with bytes as base64 text, as the API writes them."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


# ------------------------------------------------------------------------------------- all


def main(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    chats = {
        "files": asyncio.run(filled(FileChatStorage(target / "files"))),
        "sqlite": asyncio.run(filled(SqlChatStorage(f"sqlite:///{target / 'chats.db'}"))),
    }
    os.environ.update(AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing")
    with ExitStack() as stack:
        user = unprivileged_user()
        base = stack.enter_context(private_directory("postgres", user))
        url = stack.enter_context(running_postgres(postgres_binaries(), base, user))
        chats["postgresql"] = asyncio.run(postgres(url, target))
        base = stack.enter_context(private_directory("mariadb", user))
        url = stack.enter_context(running_mariadb(*mariadb_binaries(), base, user))
        chats["mariadb"] = asyncio.run(mariadb(url, target))
        command = [*dynalite_command(), "--host", "127.0.0.1", "--port", "{port}"]
        command += ["--createTableMs", "0"]
        endpoint = stack.enter_context(running_emulator("dynalite", command))
        chats["dynamodb"] = asyncio.run(dynamodb(endpoint, target))
    rows = {name: [json.dumps(row) for row in told] for name, told in chats.items()}
    blocks = (f'"{name}": [' + ",\n".join(told) + "]" for name, told in rows.items())
    (target / "chats.json").write_text("{" + ",\n".join(blocks) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
