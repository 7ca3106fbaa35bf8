"""What is done to a view before a model sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from agent_memory.errors import InvalidRequestError
from agent_memory.messages import ConversationMessage
from agent_memory.providers import Provider


def presenter(
    provider: Provider | None,
) -> Callable[[list[ConversationMessage]], list[ConversationMessage]] | None:
    """Return what makes a view valid for a provider, None where nothing is to be done.

    Raises:
        InvalidRequestError: there is no such provider.
    """
    if provider is None:
        return None
    if provider not in get_args(Provider):
        known = ", ".join(map(repr, get_args(Provider)))
        raise InvalidRequestError(f"provider must be one of {known}, not {provider!r}")
    from agent_memory.providers import repair  # noqa: PLC0415  only who asks for it loads it

    return lambda messages: repair(messages, provider)
