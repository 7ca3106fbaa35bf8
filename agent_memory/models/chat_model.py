"""The protocol for language models, and the errors of models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

import attrs

from agent_memory.errors import (
    InvalidRequestError,
    InvalidSummaryError,
    SummarizerError,
    SummarizerTimeoutError,
)
from agent_memory.messages import Usage


class ModelError(SummarizerError):
    """A model gave no usable answer.

    Args:
        message: what happened.
        transient: whether the same request may succeed later.
        retry_after: seconds the provider asks to wait, or None.
        usage: what the failed request cost, where the provider said so.
    """

    def __init__(
        self,
        message: str,
        *,
        transient: bool = False,
        retry_after: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.transient = transient
        self.retry_after = retry_after
        self.usage = usage or Usage()


class ModelTimeoutError(ModelError, SummarizerTimeoutError):
    """The model did not answer in time."""


class BlankAnswerError(ModelError, InvalidSummaryError):
    """The model answered with nothing but white space, or with reasoning alone."""


class ContextOverflowError(ModelError):
    """The request is longer than the model's window. A shorter one may succeed."""


class TruncatedAnswerError(ModelError):
    """The answer ended at its limit of tokens, not where the model would have ended it."""


class RefusedError(ModelError):
    """The model, or a filter around it, refused to answer."""


_SAID: Final = (None, "text", "output_text")
"""The types of parts that are said aloud; Bedrock's have none."""


def answered_text(content: object, *, usage: Usage | None = None) -> str:
    """Return what a model said, of an answer's content as its provider wrote it.

    Args:
        content: a text, a list of parts (dicts or an SDK's objects, of any provider), or None.
            The texts of parts are joined as they are; reasoning and what is unknown is left out.
        usage: what the answer cost, for the errors.

    Raises:
        RefusedError: if a part is a refusal.
        ModelError: if the content is neither text nor a list of parts.
    """
    if isinstance(content, str):
        return content
    if content is not None and not isinstance(content, list | tuple):
        raise ModelError(
            f"the model's answer must be a text or a list of parts, not {type(content).__name__}",
            usage=usage,
        )
    said: list[str] = []
    for part in cast("Sequence[object]", content or ()):
        check_refusal(_field(part, "refusal"), usage=usage)
        text = part if isinstance(part, str) else _field(part, "text")
        if isinstance(text, str) and _field(part, "type") in _SAID:
            said.append(text)
    return "".join(said)


def check_refusal(refusal: object, *, usage: Usage | None = None) -> None:
    """Raise an error if the model refused.

    Raises:
        RefusedError: if there is a refusal.
    """
    if isinstance(refusal, str) and refusal:
        raise RefusedError(f"the model refused: {refusal[:200]}", usage=usage)


def _field(part: object, name: str) -> object:
    found: Any = part
    return found.get(name) if isinstance(part, dict) else getattr(found, name, None)


@attrs.frozen
class Completion:
    """A model's answer.

    Args:
        text: what it said, reasoning left out. A list of parts, as some providers give, is
            read as :func:`answered_text` does.
        usage: what the provider reported; None where it reported nothing, so that the cost is
            unknown.

    Raises:
        RefusedError: if a part of the answer is a refusal.
        ModelError: if the text is not a string or a list of parts.
    """

    text: str
    usage: Usage | None = None

    def __attrs_post_init__(self) -> None:
        given: object = self.text
        if not isinstance(given, str):
            object.__setattr__(self, "text", answered_text(given, usage=self.usage))


@runtime_checkable
class ChatModel(Protocol):
    """A language model that answers one instruction about one text."""

    async def complete(self, instruction: str, transcript: str, **parameters: Any) -> Completion:
        """Return the model's answer.

        Args:
            instruction: what to do; the system prompt.
            transcript: what to do it with; the user's message.
            parameters: whatever the provider takes, such as ``temperature``, and
                ``max_output_tokens``, the longest answer, under that name for all providers.

        Raises:
            ModelError: if there is no usable answer. Other exceptions are classified by
                :func:`as_model_error`.
        """
        ...


ModelFunction: TypeAlias = Callable[..., Awaitable["Completion | str | list[Any]"]]
"""``async def ask(instruction, transcript, **parameters)`` serves as a model, too.

It returns a :class:`Completion`, or the content alone (a text or a list of parts), whose cost
is then unknown.
"""


@attrs.frozen
class _FunctionModel:
    function: ModelFunction

    async def complete(self, instruction: str, transcript: str, **parameters: Any) -> Completion:
        answer = await self.function(instruction, transcript, **parameters)
        return Completion(cast("str", answer)) if isinstance(answer, str | list) else answer


def as_chat_model(llm: ChatModel | ModelFunction) -> ChatModel:
    """Return a model for what callers pass: a :class:`ChatModel` or an async function.

    Raises:
        InvalidRequestError: if it is neither of them.
    """
    if isinstance(llm, ChatModel):
        return llm
    if callable(llm):
        return _FunctionModel(llm)
    raise InvalidRequestError(
        "llm must have an async method complete(instruction, transcript, **parameters) or be "
        f"such a function; {type(llm).__name__} is neither"
    )


_TRANSIENT_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Request time-out, conflict, too early, rate limit, server trouble, overloaded (529 is
Anthropic's, https://docs.anthropic.com/en/api/errors)."""
_TRANSIENT_NAMES: Final = ("connect", "throttl", "unavailable", "disconnected")


def as_model_error(error: Exception) -> ModelError:
    """Return a foreign exception as a :class:`ModelError`, with the original as its cause.

    An HTTP status decides whether it is transient, wherever the SDK keeps it; else the name.
    """
    if isinstance(error, ModelError):
        return error
    name = type(error).__name__.lower()
    if isinstance(error, TimeoutError) or "timeout" in name:
        timed_out = ModelTimeoutError("the model did not answer in time", transient=True)
        timed_out.__cause__ = error
        return timed_out
    status = http_status(error)
    if status is not None:
        transient = status in _TRANSIENT_STATUS
    else:
        transient = isinstance(error, ConnectionError) or any(
            word in name for word in _TRANSIENT_NAMES
        )
    translated = ModelError(f"{type(error).__name__}: {error}", transient=transient)
    translated.__cause__ = error
    return translated


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status that an SDK's exception carries, if it carries one."""
    status = getattr(error, "status_code", None)
    if type(status) is int:
        return status
    # botocore's ClientError keeps the whole answer, as dicts.
    metadata = _entry(getattr(error, "response", None), "ResponseMetadata")
    status = _entry(metadata, "HTTPStatusCode")
    return status if type(status) is int else None


def _entry(mapping: object, name: str) -> Any:
    return cast("dict[str, Any]", mapping).get(name) if isinstance(mapping, dict) else None
