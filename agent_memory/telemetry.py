"""Spans for OpenTelemetry, where ``opentelemetry-api`` is installed; nothing otherwise.

Attribute names follow the GenAI semantic conventions where these have one (opentelemetry.io,
"Semantic conventions for GenAI agent and framework spans", status: development); the others
begin with ``agent_memory``. Content of messages never becomes an attribute.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

from agent_memory._version import __version__
from agent_memory.keys import ChatKey


def is_traced() -> bool:
    """Whether spans go anywhere now: the quick way past :func:`span` on hot paths."""
    trace = _trace()
    return trace is not None and not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider
    )


@functools.cache
def _trace() -> Any:
    try:
        from opentelemetry import trace  # noqa: PLC0415  optional, and slow to import
    except ImportError:
        return None
    return trace


Attributes: TypeAlias = dict[str, str | int | float | bool]
"""What a span says."""


@contextmanager
def span(operation: str, key: ChatKey) -> Generator[Attributes, None, None]:
    """Trace what happens in a ``with`` block.

    Args:
        operation: ``"save"``, ``"fetch"`` or ``"compact"``.
        key: which chat.

    Yields:
        A dict for attributes that become known on the way.
    """
    attributes: Attributes = {}
    if not is_traced():
        yield attributes
        return
    tracer = _trace().get_tracer("agent_memory", __version__)
    # Exceptions are not recorded: their texts may quote a chat.
    with tracer.start_as_current_span(
        f"agent_memory.{operation}", record_exception=False, set_status_on_exception=False
    ) as current:
        if not current.is_recording():
            yield attributes
            return
        current.set_attribute("gen_ai.conversation.id", key.session_id)
        current.set_attribute("gen_ai.agent.id", key.agent_id)
        try:
            yield attributes
        except BaseException as error:
            attributes["error.type"] = type(error).__qualname__
            raise
        finally:
            current.set_attributes(attributes)
