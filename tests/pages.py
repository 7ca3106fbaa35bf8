"""The programs in the pages for people: README.md and docs/.

Each block of Python is a whole program, or a whole file of tests, which runs as it stands. An
HTML comment before it says what it needs: ``model`` (a key; the tests let a scripted server
stand in for the providers), ``needs: package`` (skipped without it), ``pytest`` (it is a file of
tests).

    python tests/pages.py DIRECTORY

writes them as files, for the type checkers.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    if page.exists()
]

_BLOCK = re.compile(
    r"(?P<comments>(?:<!--(?:(?!-->).)*-->\s*\n)*)```python\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
_COMMENT = re.compile(r"<!--\s*(\S.*?)\s*-->", re.DOTALL)


@attrs.frozen
class Block:
    """A block of Python on a page, and what is said about it."""

    page: Path
    line: int
    code: str
    output: str | None
    notes: dict[str, str]

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def source(self) -> str:
        """The code, moved down so that errors name the page's lines."""
        return "\n" * (self.line - 1) + self.code


def blocks() -> list[Block]:
    """All blocks of all pages, in order."""
    return [block for page in PAGES for block in _blocks_of(page)]


def _blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        comments = [comment.partition(":") for comment in _COMMENT.findall(match["comments"])]
        notes = {name.strip(): rest.strip() for name, _, rest in comments}
        line = text.count("\n", 0, match.start("code")) + 1
        found.append(Block(page, line, match["code"], match["output"], notes))
    return found


def write(directory: Path) -> None:
    """Write each block whose packages are here as a file of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    for block in blocks():
        package = block.notes.get("needs")
        if package and importlib.util.find_spec(package) is None:
            continue
        name = re.sub(r"\W+", "_", block.name.removesuffix(".md"))
        (directory / f"{name}.py").write_text(block.code, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
