"""The formats that this library knows. A new one is a module and its entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final, Literal, TypeAlias

import attrs

from agent_memory.errors import InvalidRequestError
from agent_memory.providers import anthropic, bedrock, openai_chat, openai_responses
from agent_memory.providers.format import BlockReader, Format, TextReader
from agent_memory.providers.part import Block, Part, as_text

_BARE_TEXT: Final = 2  # type and text
Provider: TypeAlias = Literal["openai", "openai_chat", "openai_responses", "anthropic", "bedrock"]
"""A provider's API; ``"openai"`` is Chat Completions."""

FORMATS: Final[tuple[Format, ...]] = (
    openai_chat.FORMAT,
    openai_responses.FORMAT,
    anthropic.FORMAT,
    bedrock.FORMAT,
)

_NAMED: Final[Mapping[str, Format]] = {
    name: form for form in FORMATS for name in (form.provider, form.name) if name is not None
}
STRINGS: Final = frozenset(form.name for form in FORMATS if form.takes_strings)
"""The formats in which a plain string is content."""
TYPED: Final = frozenset(form.name for form in FORMATS if form.blocks)
"""The formats whose blocks have a ``type``."""
UNTYPED: Final = frozenset(form.name for form in FORMATS if form.untyped)
FIELDS: Final = frozenset(
    chain.from_iterable((*form.request_fields, *form.reply_fields) for form in FORMATS)
)
"""The fields of messages that any format knows."""


def format_named(provider: str) -> Format:
    """The format of a provider's messages.

    Raises:
        InvalidRequestError: the name is not one of :data:`Provider`.
    """
    form = _NAMED.get(provider)
    if form is None:
        known = ", ".join(repr(name) for name in _NAMED)
        raise InvalidRequestError(f"provider must be one of {known}, not {provider!r}")
    return form


def _shared(readers: tuple[BlockReader, ...]) -> BlockReader:
    """Reads a block type that several formats have: it may be sent in all that recognise it."""
    texts = [reader for reader in readers if isinstance(reader, TextReader)]
    if len(texts) == len(readers):
        return _shared_text(texts)

    def read(block: Block) -> Part | None:
        found = [part for part in (reader(block) for reader in readers) if part is not None]
        forms = frozenset(chain.from_iterable(part.forms for part in found))
        return attrs.evolve(found[0], forms=forms) if found else None

    return read


def _shared_text(readers: Sequence[TextReader]) -> BlockReader:
    """As :func:`_shared`, for the block that most messages are made of."""
    everybody = frozenset(reader.form for reader in readers)

    def read(block: Block) -> Part | None:
        forms = everybody
        if len(block) > _BARE_TEXT:
            keys = block.keys()
            forms = frozenset(reader.form for reader in readers if not reader.foreign & keys)
        if not forms:
            return None
        return Part("text", as_text(block.get("text")), raw=block, forms=forms)

    return read


def _merged(tables: tuple[Mapping[str, BlockReader], ...]) -> Mapping[str, BlockReader]:
    found: dict[str, tuple[BlockReader, ...]] = {}
    for table in tables:
        for kind, reader in table.items():
            found[kind] = (*found.get(kind, ()), reader)
    return {
        kind: readers[0] if len(readers) == 1 else _shared(readers)
        for kind, readers in found.items()
    }


READERS: Final = _merged(tuple(form.blocks for form in FORMATS))
"""How to read each type of content block."""
UNTYPED_READERS: Final = _merged(tuple(form.untyped for form in FORMATS))
RESULT_READERS: Final[tuple[tuple[str, Callable[[Block], Part]], ...]] = tuple(
    (form.result_suffix, form.read_result)
    for form in FORMATS
    if form.result_suffix is not None and form.read_result is not None
)
