"""Results of OpenAI's hosted tools that lie in the item of their call (``mcp_call``, …)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from agent_memory.providers.part import Block, Part, as_dict, as_list, as_text, readable


def _read_mcp(item: Block) -> Part | None:
    output, error = item.get("output"), item.get("error")
    if error is None:
        return None if output is None else Part("result", as_text(output), payload=output)
    failure = error if isinstance(error, str) else readable(error)
    said = "\n".join(filter(None, [failure or "failed", as_text(output)]))
    return Part("result", said, payload=error, is_error=True)


def _read_found(item: Block) -> Part | None:
    results = item.get("results")
    return Part("result", readable(results), payload=results) if results else None


def _read_executed(item: Block) -> Part | None:
    outputs = item.get("outputs")
    if not outputs:
        return None
    blocks = [as_dict(output) or {} for output in as_list(outputs)]
    logs = [as_text(block.get("logs")) for block in blocks if block.get("type") == "logs"]
    inner = tuple(_hosted_image(block.get("url")) for block in blocks if block.get("url"))
    return Part("result", "\n".join(filter(None, logs)), payload=outputs, inner=inner)


def _read_generated(item: Block) -> Part | None:
    result = item.get("result")
    return None if not result else Part("result", payload=None, inner=(_hosted_image(result),))


def _hosted_image(url: object) -> Part:
    """A picture that a hosted tool made: part of its item, with no block of its own."""
    return Part("media", name="image", payload=url)


OWN_RESULTS: Final[Mapping[str, Callable[[Block], Part | None]]] = {
    "mcp_call": _read_mcp,
    "file_search_call": _read_found,
    "code_interpreter_call": _read_executed,
    "image_generation_call": _read_generated,
}
"""The hosted calls whose item holds the result too."""
