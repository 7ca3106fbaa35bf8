"""Where a chat's files lie: ids to file names that every file system keeps apart.

Names are readable, and injective also where case, Unicode normalisation, device names or
trailing dots are not distinguished: lower-case ASCII letters, digits and ``-_.@`` stand for
themselves, every other UTF-8 byte is ``%`` and two lower-case hex digits.
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import attrs

from agent_memory.errors import InvalidRequestError
from agent_memory.ids import check_id
from agent_memory.messages import ChatKey

LOG: Final = ".jsonl"
SUMMARIES: Final = ".summaries"
TEMPORARY: Final = ".tmp"
LOCK: Final = ".lock"

_LONGEST: Final = 120  # with a suffix under every file system's 255 bytes, three in Windows' 260+
_HASHED: Final = "~"  # never in a name that is not hashed: "~" itself is encoded
_KEPT: Final = 48  # how much of a hashed name stays readable
_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.@")
# Windows reserves these whatever the extension, so the part before the first dot counts.
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


@lru_cache(4096)  # it is asked for at every call
def paths_of(root: Path, key: ChatKey) -> ChatPaths:
    """Return where a chat lies, whether or not it exists."""
    directory = root / name_of(key.user_id) / name_of(key.session_id)
    return ChatPaths(root, directory, str(directory / (name_of(key.agent_id) + LOG)))
