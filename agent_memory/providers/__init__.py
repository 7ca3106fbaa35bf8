"""Providers' message formats: the only code of this library that looks inside content.

:func:`parts` says what a message is made of, whichever provider's form it is in. ``from_x`` and
``to_x`` go between lists of a provider's dicts and messages, exactly; :func:`convert` goes
across providers and tells what it could not carry. :func:`validate` names what a provider would
refuse, and :func:`repair` gives a view without it.
"""

from typing import TYPE_CHECKING

from agent_memory._lazy import lazy_names

if TYPE_CHECKING:
    from agent_memory.providers.anthropic import from_anthropic
    from agent_memory.providers.bedrock import from_bedrock
    from agent_memory.providers.conversion import (
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
    from agent_memory.providers.making import text_message
    from agent_memory.providers.media import Media
    from agent_memory.providers.openai_chat import from_openai
    from agent_memory.providers.openai_responses import from_openai_responses
    from agent_memory.providers.part import Part, PartKind, Shape
    from agent_memory.providers.reading import media_in, parts, shape_of, text_of
    from agent_memory.providers.repairing import repair
    from agent_memory.providers.validation import Violation, validate

__all__ = [
    "Conversion",
    "LeftOut",
    "Media",
    "Part",
    "PartKind",
    "Provider",
    "Shape",
    "Violation",
    "convert",
    "from_anthropic",
    "from_bedrock",
    "from_openai",
    "from_openai_responses",
    "media_in",
    "parts",
    "repair",
    "reshape",
    "shape_of",
    "text_message",
    "text_of",
    "to_anthropic",
    "to_bedrock",
    "to_openai",
    "to_openai_responses",
    "validate",
]

_MODULES = {
    "anthropic": ("from_anthropic",),
    "bedrock": ("from_bedrock",),
    "conversion": (
        *("Conversion", "LeftOut", "Provider", "convert", "reshape"),
        *("to_anthropic", "to_bedrock", "to_openai", "to_openai_responses"),
    ),
    "making": ("text_message",),
    "media": ("Media",),
    "openai_chat": ("from_openai",),
    "openai_responses": ("from_openai_responses",),
    "part": ("Part", "PartKind", "Shape"),
    "reading": ("media_in", "parts", "shape_of", "text_of"),
    "repairing": ("repair",),
    "validation": ("Violation", "validate"),
}
__getattr__, __dir__ = lazy_names(
    __name__,
    {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names},
    globals(),
)
