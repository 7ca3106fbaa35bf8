"""Spans for OpenTelemetry, where ``opentelemetry-api`` is installed; nothing otherwise.

Attribute names follow the GenAI semantic conventions where these have one (opentelemetry.io,
"Semantic conventions for GenAI agent and framework spans", status: development); the others
begin with ``agent_memory``. Content of messages never becomes an attribute.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias

from agent_memory._version import __version__
from agent_memory.keys import ChatKey


@functools.cache
def _api() -> tuple[Any, tuple[type, ...]]:
    """OpenTelemetry's API, if it is installed, and the providers whose spans go nowhere."""
    try:
        from opentelemetry import trace  # noqa: PLC0415  optional, and slow to import
    except ImportError:
        return None, ()
    return trace, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)


Attributes: TypeAlias = dict[str, str | int | float | bool]
"""What a span says."""


def span(operation: str, key: ChatKey) -> AbstractContextManager[Attributes]:
    """Trace what happens in a ``with`` block.

    Args:
        operation: ``"save"``, ``"fetch"`` or ``"compact"``.
        key: which chat.

    Returns:
        A context manager that yields a dict for attributes that become known on the way.
    """
    trace, silent = _api()
    # Asked each time: an application may set its provider after it has made its stores.
    if trace is None or isinstance(trace.get_tracer_provider(), silent):
        return nullcontext({})
    return _span(trace.get_tracer("agent_memory", __version__), operation, key)


@contextmanager
def _span(tracer: Any, operation: str, key: ChatKey) -> Generator[Attributes, None, None]:
    attributes: Attributes = {}
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
