"""Message formats of the providers: the only code of this library that looks inside content.

:func:`parts` splits a message of any provider into its parts. The ``from_x`` and ``to_x``
functions convert between a provider's dicts and messages without loss; :func:`convert` writes a
request for another provider and reports what it had to leave out. :func:`validate` lists what a
provider would reject, and :func:`repair` returns a view without it.
"""

from typing import TYPE_CHECKING

from agent_memory._lazy import lazy_names

if TYPE_CHECKING:
    from agent_memory.providers.conversion import (
        Conversion,
        LeftOut,
        convert,
        from_anthropic,
        from_bedrock,
        from_openai,
        from_openai_responses,
        reshape,
        to_anthropic,
        to_bedrock,
        to_openai,
        to_openai_responses,
    )
    from agent_memory.providers.media import Media
    from agent_memory.providers.parsing import Provider, format_of, media_in, parts, text_of
    from agent_memory.providers.part import FormatName, Part, PartKind
    from agent_memory.providers.repairing import repair
    from agent_memory.providers.text import text_message
    from agent_memory.providers.violations import Violation, validate

__all__ = [
    "Conversion",
    "FormatName",
    "LeftOut",
    "Media",
    "Part",
    "PartKind",
    "Provider",
    "Violation",
    "convert",
    "format_of",
    "from_anthropic",
    "from_bedrock",
    "from_openai",
    "from_openai_responses",
    "media_in",
    "parts",
    "repair",
    "reshape",
    "text_message",
    "text_of",
    "to_anthropic",
    "to_bedrock",
    "to_openai",
    "to_openai_responses",
    "validate",
]

_MODULES = {
    "conversion": (
        *("Conversion", "LeftOut", "convert", "reshape"),
        *("from_anthropic", "from_bedrock", "from_openai", "from_openai_responses"),
        *("to_anthropic", "to_bedrock", "to_openai", "to_openai_responses"),
    ),
    "media": ("Media",),
    "part": ("FormatName", "Part", "PartKind"),
    "parsing": ("Provider", "format_of", "media_in", "parts", "text_of"),
    "repairing": ("repair",),
    "text": ("text_message",),
    "violations": ("Violation", "validate"),
}
__getattr__, __dir__ = lazy_names(
    __name__,
    {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names},
    globals(),
)
