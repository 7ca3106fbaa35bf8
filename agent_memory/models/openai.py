"""Models behind OpenAI's API, and behind the many servers that speak it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from agent_memory.errors import InvalidRequestError, MissingDependencyError
from agent_memory.messages import Usage
from agent_memory.models.chat_model import (
    Completion,
    ContextOverflowError,
    ModelError,
    RefusedError,
    TruncatedAnswerError,
    answered_text,
    as_model_error,
    check_refusal,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

try:
    import openai
except ImportError as error:
    raise MissingDependencyError("openai", "openai") from error

Api = Literal["chat", "responses"]

_OVERFLOW: Final = re.compile(
    r"context.{0,20}(?:length|window|size)|maximum context|too many (?:input )?tokens"
    r"|prompt is too long|string_above_max_length|request too large",
    re.IGNORECASE,
)
# Open models behind compatible servers put their reasoning into the text itself.
_THOUGHT: Final = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)
_TOKEN_LIMIT: Final = "max_output_tokens"  # noqa: S105  no password
_FAILED_FOR_NOW: Final = frozenset({"server_error", "rate_limit_exceeded"})


class OpenAIChatModel:
    """A model that the ``openai`` client reaches; needs the extra ``openai``.

    Args:
        client: an ``AsyncOpenAI`` (or Azure's), with any ``base_url``; the caller closes it,
            and it serves the event loop it was first used in. None makes a client for each
            answer from the environment (``OPENAI_API_KEY``, ``OPENAI_BASE_URL``), which
            serves any loop and needs no closing.
        model: the model's name.
        api: ``"chat"`` for Chat Completions, which most compatible servers offer, or
            ``"responses"``.
        token_limit_name: what the Chat API calls the longest answer: ``"max_tokens"`` on
            older compatible servers.

    The client's own retries are switched off for these requests: the summarizer retries.

    Raises:
        InvalidRequestError: if the client is not async, or `api` is unknown.
    """

    def __init__(
        self,
        client: AsyncOpenAI | None,
        model: str,
        api: Api = "chat",
        *,
        token_limit_name: str = "max_completion_tokens",  # noqa: S107  no password
    ) -> None:
        given = cast("object", client)
        if given is not None and not isinstance(given, openai.AsyncOpenAI):
            raise InvalidRequestError(
                f"client must be an openai.AsyncOpenAI or None, not {type(given).__name__}"
            )
        if api not in ("chat", "responses"):
            raise InvalidRequestError(f"api must be 'chat' or 'responses', not {api!r}")
        self._client = client
        self._model = model
        self._api: Api = api
        self._token_limit_name = token_limit_name

    async def complete(self, instruction: str, transcript: str, **parameters: Any) -> Completion:
        """Return the model's answer; see :class:`~agent_memory.models.chat_model.ChatModel`."""
        async with self._connected() as client:
            try:
                if self._api == "chat":
                    return await self._chat(client, instruction, transcript, parameters)
                return await self._respond(client, instruction, transcript, parameters)
            except (openai.OpenAIError, json.JSONDecodeError) as error:
                raise _translated(error) from error

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[AsyncOpenAI]:
        if self._client is not None:
            yield self._client.with_options(max_retries=0)
            return
        try:
            client = openai.AsyncOpenAI(max_retries=0)
        except openai.OpenAIError as error:
            raise _translated(error) from error
        async with client:
            yield client

    async def _chat(
        self, client: AsyncOpenAI, instruction: str, transcript: str, given: dict[str, Any]
    ) -> Completion:
        parameters = {
            self._token_limit_name if name == _TOKEN_LIMIT else name: value
            for name, value in given.items()
        }
        create: Any = client.chat.completions.create
        answer = await create(
            model=self._model,
            messages=[
                {"role": "system", "content": instruction},
                {"role": "user", "content": transcript},
            ],
            **parameters,
        )
        return _read_chat(answer)

    async def _respond(
        self, client: AsyncOpenAI, instruction: str, transcript: str, given: dict[str, Any]
    ) -> Completion:
        create: Any = client.responses.create
        answer = await create(
            model=self._model, instructions=instruction, input=transcript, **given
        )
        return _read_response(answer)


def _read_chat(answer: Any) -> Completion:
    """Read a Chat Completion; the SDK does not check what a server sent, so this does."""
    usage = _usage(getattr(answer, "usage", None), "prompt", "completion")
    choices: Any = getattr(answer, "choices", None) or [None]
    message = getattr(choices[0], "message", None)
    if message is None:
        raise ModelError("the model's answer holds no message", transient=True, usage=usage)
    finish = getattr(choices[0], "finish_reason", None)
    check_refusal(getattr(message, "refusal", None), usage=usage)
    # Compatible servers give a list of parts where the model reasons.
    text = answered_text(getattr(message, "content", None), usage=usage)
    _check_ending(finish, usage)
    return Completion(_THOUGHT.sub("", text), usage)


def _read_response(answer: Any) -> Completion:
    """Read a Response: the text of its messages, whatever items lie around them."""
    usage = _usage(getattr(answer, "usage", None), "input", "output")
    _check_status(answer, usage)
    output = getattr(answer, "output", None)
    if not isinstance(output, list):
        raise ModelError("the model's answer holds no output", transient=True, usage=usage)
    said: list[str] = [
        answered_text(getattr(item, "content", None), usage=usage)  # pyright: ignore[reportUnknownArgumentType]
        for item in output  # pyright: ignore[reportUnknownVariableType]
        if getattr(item, "type", None) == "message"  # pyright: ignore[reportUnknownArgumentType]
    ]
    return Completion("".join(said), usage)


def _check_status(answer: Any, usage: Usage | None) -> None:
    status = getattr(answer, "status", None)
    if status == "failed":
        problem = getattr(answer, "error", None)
        code = str(getattr(problem, "code", None))
        raise ModelError(
            f"the model failed: {code}: {getattr(problem, 'message', '')}",
            transient=code in _FAILED_FOR_NOW,
            usage=usage,
        )
    if status == "incomplete":
        reason = getattr(getattr(answer, "incomplete_details", None), "reason", None)
        _check_ending("length" if reason == "max_output_tokens" else reason, usage)


def _check_ending(finish: object, usage: Usage | None) -> None:
    if finish == "content_filter":
        raise RefusedError("the provider's content filter stopped the answer", usage=usage)
    if finish == "length":
        raise TruncatedAnswerError("the answer reached its limit of tokens", usage=usage)


def _usage(reported: Any, prompt: str, completion: str) -> Usage | None:
    """Return what was reported; None where that is nothing, as some servers leave it out."""
    figures = (getattr(reported, f"{name}_tokens", None) for name in (prompt, completion))
    if all(type(figure) is not int for figure in figures):
        return None
    return Usage(
        input_tokens=_figure(reported, f"{prompt}_tokens"),
        output_tokens=_figure(reported, f"{completion}_tokens"),
        cached_tokens=_figure(
            getattr(reported, f"{prompt}_tokens_details", None), "cached_tokens"
        ),
        reasoning_tokens=_figure(
            getattr(reported, f"{completion}_tokens_details", None), "reasoning_tokens"
        ),
    )


def _figure(reported: Any, name: str) -> int:
    figure = getattr(reported, name, None)
    return figure if type(figure) is int and figure >= 0 else 0


def _translated(error: Exception) -> ModelError:
    """Translate what the SDK raises; its message names neither key nor content."""
    if isinstance(error, json.JSONDecodeError | openai.APIResponseValidationError):
        return ModelError(f"the model's answer cannot be read: {error}", transient=True)
    if isinstance(error, openai.APIStatusError):
        if error.status_code in (400, 413, 422) and _OVERFLOW.search(f"{error.code} {error}"):
            return ContextOverflowError(str(error))
        known = as_model_error(error)
        # A used-up quota answers 429 like a rate limit, but waiting does not help.
        transient = known.transient and error.code != "insufficient_quota"
        return ModelError(
            str(known), transient=transient, retry_after=_retry_after(error.response.headers)
        )
    return as_model_error(error)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a provider asks to wait.

    Source: https://platform.openai.com/docs/guides/rate-limits; ``retry-after`` is seconds, or
    a date (RFC 9110, section 10.2.3), which is left to the usual back-off.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None
