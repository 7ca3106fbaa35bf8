"""The layout of a store's directory: ids to file names and back, and listing.

Names are readable. They stay distinct on file systems that ignore case, normalize Unicode,
reserve device names or drop trailing dots: lower-case ASCII letters, digits and ``-_.@`` are
kept, every other UTF-8 byte becomes ``%`` and two lower-case hex digits.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote

import attrs

from agent_memory.errors import CorruptedRecordError, InvalidRequestError
from agent_memory.keys import check_id
from agent_memory.log import ChatInfo
from agent_memory.messages import ChatKey
from agent_memory.storage.file.chat_log import (
    ChangedError,
    ChatLog,
    FileSnapshot,
    lines,
)
from agent_memory.storage.file.disk import NotRegularError, open_to_read, refuse_links
from agent_memory.storage.file.line_format import FileHeader, decode_header

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOG: Final = ".jsonl"
SUMMARIES: Final = ".summaries"
TEMPORARY: Final = ".tmp"
LOCK: Final = ".lock"

_LONGEST: Final = 120  # with a suffix under every file system's 255 bytes, three in Windows' 260+
_HASHED: Final = "~"  # never in a name that is not hashed: "~" itself is encoded
_KEPT: Final = 48  # how much of a hashed name stays readable
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.@")
# Windows reserves these with any extension, so the part before the first dot counts.
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_DEVICE: Final = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)")


def name_of(identifier: str) -> str:
    """Return the file name, without suffix, that stands for an id and for no other."""
    raw = identifier.encode()
    name = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in raw)
    # A leading "." hides, a leading "-" reads as an option, a trailing "." Windows drops.
    if name[0] in ".-" or _DEVICE.match(name):
        name = f"%{raw[0]:02x}{name[1:]}"
    if name[-1] == ".":
        name = f"{name[:-1]}%2e"
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_KEPT]}{_HASHED}{hashlib.sha256(raw).hexdigest()}"


def id_of(name: str) -> str | None:
    """Return the id a name stands for; None for a hashed name or one not made here."""
    try:
        identifier = check_id(unquote(name, errors="strict"), "name")
    except (UnicodeDecodeError, InvalidRequestError):
        return None
    return identifier if name_of(identifier) == name else None


@attrs.frozen
class ChatPaths:
    """The files of one chat, in ``root/user/session/``.

    Args:
        root: the store's directory.
        directory: the session's directory.
        log: the chat itself.
    """

    root: Path
    directory: Path
    log: str

    @property
    def summaries(self) -> str:
        """The chat's summary records."""
        return self.log.removesuffix(LOG) + SUMMARIES

    @property
    def temporary(self) -> str:
        """What a trim writes before it replaces the log."""
        return self.log + TEMPORARY

    @property
    def lock(self) -> str:
        """What is locked where a file that is open cannot be replaced."""
        return self.log + LOCK

    @cached_property
    def directories(self) -> tuple[Path, ...]:
        """The directories that must exist, innermost first."""
        return self.directory, self.directory.parent, self.root


@lru_cache(4096)  # called for every operation
def paths_of(root: Path, key: ChatKey) -> ChatPaths:
    """Return the paths of a chat's files, whether or not they exist."""
    directory = root / name_of(key.user_id) / name_of(key.session_id)
    return ChatPaths(root, directory, str(directory / (name_of(key.agent_id) + LOG)))


_EFFECTIVE: Final = os.access in os.supports_effective_ids

INACCESSIBLE: Final = (PermissionError, NotRegularError)
"""Errors that concern one file or directory, not the whole store."""


def find_infos(
    root: Path, user_id: str | None = None, session_id: str | None = None
) -> Iterator[ChatInfo]:
    """Yield the info of every chat of a scope, see :func:`find_keys`, that can be read."""
    for key in find_keys(root, user_id, session_id):
        info = _read_info(paths_of(root, key), key)
        if info is not None:
            yield info


def find_keys(
    root: Path, user_id: str | None = None, session_id: str | None = None, *, strict: bool = False
) -> Iterator[ChatKey]:
    """Yield the key of every chat that has a file, sorted; of a user or session if given.

    An inaccessible directory is left out, with a warning, unless it was asked for by its name.

    Args:
        root: the store's directory.
        user_id, session_id: restrict it to a user or session.
        strict: whether an inaccessible session is an error too.

    Raises:
        NotRegularError: a directory that was asked for is a link.
        OSError: it cannot be read.
    """
    strict = strict or session_id is not None
    for user in _ids(root, 0) if user_id is None else [user_id]:
        if session_id is not None:
            sessions = [session_id]
        else:
            sessions = _listed(_list_sessions, root, user, strict=user_id is not None)
        for session in sessions:
            yield from _listed(list_keys, root, user, session, strict=strict)


def _listed(find: Callable[..., list[T]], root: Path, *ids: str, strict: bool) -> list[T]:
    try:
        return find(root, *ids)
    except INACCESSIBLE as error:
        if strict:
            raise
        _left_out(root.joinpath(*map(name_of, ids)), error)
        return []


def _list_sessions(root: Path, user_id: str) -> list[str]:
    directory = root / name_of(user_id)
    refuse_links(directory)
    return _ids(directory, 1)


def list_keys(root: Path, user_id: str, session_id: str) -> list[ChatKey]:
    """Return the keys of a session's chats that have a file, sorted.

    Raises:
        NotRegularError: the user's or the session's directory is a link.
    """
    directory = root / name_of(user_id) / name_of(session_id)
    refuse_links(directory.parent, directory)
    keys: list[ChatKey] = []
    with suppress(FileNotFoundError):
        for name in os.listdir(directory):  # noqa: PTH208 - names are wanted, not paths
            agent_id = _agent_of(directory / name) if name.endswith(LOG) else None
            if agent_id is not None:
                keys.append(ChatKey(user_id, session_id, agent_id))
    return sorted(keys)


def _read_info(paths: ChatPaths, key: ChatKey) -> ChatInfo | None:
    while True:
        try:
            with open_to_read(paths.log) as file:
                log = ChatLog(FileSnapshot(file), paths.log, key)
                created = None if log.header is None else log.header.created_at
                updated = datetime.fromtimestamp(log.snapshot.stat.st_mtime, UTC)
                return ChatInfo(key, log.floor, log.last, created, updated)
        except FileNotFoundError:
            return None
        except ChangedError:
            continue
        except (CorruptedRecordError, *INACCESSIBLE) as error:
            _left_out(paths.log, error)
            return None


def _left_out(path: str | Path, error: Exception) -> None:
    logger.warning("%s is left out of the list: %s", path, error)


def _ids(directory: Path, level: int) -> list[str]:
    """Return the ids of a directory's subdirectories: users (level 0) or sessions (level 1)."""
    found: list[str | None] = []
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink():
                _left_out(entry.path, NotRegularError("it is a symbolic link"))
            elif entry.is_dir():
                found.append(_directory_id(Path(entry.path), level))
    return sorted(identifier for identifier in found if identifier is not None)


def _directory_id(directory: Path, level: int) -> str | None:
    plain = id_of(directory.name)
    if plain is not None:
        return plain
    # The name is a hash; the id is in the first lines of the files.
    for header in map(_read_header_at, directory.rglob(f"*{LOG}")):
        if header is not None:
            identifier = (header.key.user_id, header.key.session_id)[level]
            if name_of(identifier) == directory.name:
                return identifier
    return None


def _agent_of(path: Path) -> str | None:
    name = path.name.removesuffix(LOG)
    plain = id_of(name)
    if plain is not None:
        return plain
    header = _read_header_at(path)
    if header is not None and name_of(header.key.agent_id) == name:
        return header.key.agent_id
    logger.warning("%s is left out of the list: nothing says which chat it is", path)
    return None


def _read_header_at(path: Path) -> FileHeader | None:
    """Return the header of a file, or None if it is missing or unreadable."""
    try:
        with open_to_read(str(path)) as file:
            snapshot = FileSnapshot(file)
            first = next(lines(snapshot, 0, snapshot.size), None)
            return None if first is None else decode_header(first[1], str(path))
    except (OSError, CorruptedRecordError):
        return None


def find_strays(root: Path) -> list[tuple[str, str]]:
    """Return paths that belong to no chat, and why."""
    above = [*root.glob("*"), *root.glob("*/*")]
    files = [*root.glob(f"*/*/*{LOG}")]
    links = [str(path) for path in (*above, *files) if path.is_symlink()]
    found = [(link, "a symbolic link, which a store leaves alone") for link in links]
    found += [
        (str(path), "a directory that may not be read")
        for path in above
        if path.is_dir() and not os.access(path, os.R_OK | os.X_OK, effective_ids=_EFFECTIVE)
    ]
    known = {paths_of(root, key).log for key in find_keys(root)}
    found += [
        (path, "neither its name nor its first line says which chat it is")
        for path in map(str, files)
        if path not in known and not any(map(path.startswith, links))
    ]
    return sorted(found)
