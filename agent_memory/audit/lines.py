"""Reading the lines of a file, with their numbers and places in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Self

import attrs

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@attrs.frozen
class Line:
    """One line that holds something.

    Args:
        number: from 1, blank lines counted.
        text: without line end and white space around.
        start: the byte it begins at.
        end: the byte after its line end.
    """

    number: int
    text: bytes
    start: int
    end: int


class Reader:
    """Iterates over the lines of a file; blank ones are passed over."""

    def __init__(self, path: Path) -> None:
        # Bytes, because text mode would also end lines at a lone carriage return.
        self._file: BinaryIO = path.open("rb")
        self._at = 0
        self.number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Line]:
        return self

    def __next__(self) -> Line:
        for line in self._file:
            self.number += 1
            start, self._at = self._at, self._at + len(line)
            text = line.removeprefix(_BYTE_ORDER_MARK).strip()
            if text:
                return Line(self.number, text, start, self._at)
        raise StopIteration
