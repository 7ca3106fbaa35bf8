"""Providers' message forms: the only code of this library that looks inside content.

:func:`parts` says what a message is made of, whichever provider's form it is in. ``from_x`` and
``to_x`` go between lists of a provider's dicts and messages, exactly; :func:`convert` goes
across providers and tells what it could not carry.
"""

from __future__ import annotations

from agent_memory.shapes.anthropic import from_anthropic
from agent_memory.shapes.base import Part, PartKind, Shape
from agent_memory.shapes.bedrock import from_bedrock
from agent_memory.shapes.converting import (
    Conversion,
    LeftOut,
    Provider,
    convert,
    reshape,
    to_anthropic,
    to_bedrock,
    to_openai,
    to_openai_responses,
)
from agent_memory.shapes.making import text_message
from agent_memory.shapes.media import Media
from agent_memory.shapes.openai_chat import from_openai
from agent_memory.shapes.openai_responses import from_openai_responses
from agent_memory.shapes.reading import media_in, parts, shape_of, text_of

__all__ = [
    "Conversion",
    "LeftOut",
    "Media",
    "Part",
    "PartKind",
    "Provider",
    "Shape",
    "convert",
    "from_anthropic",
    "from_bedrock",
    "from_openai",
    "from_openai_responses",
    "media_in",
    "parts",
    "reshape",
    "shape_of",
    "text_message",
    "text_of",
    "to_anthropic",
    "to_bedrock",
    "to_openai",
    "to_openai_responses",
]
