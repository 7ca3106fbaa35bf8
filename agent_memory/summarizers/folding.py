"""One summary of a conversation of any length, from a model with a bounded window."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import attrs

from agent_memory.messages import ConversationMessage, ParticipantRole, Usage
from agent_memory.models.chat_model import (
    BlankAnswerError,
    ChatModel,
    Completion,
    ContextOverflowError,
    ModelError,
    TruncatedAnswerError,
    as_model_error,
)
from agent_memory.summarizers.retrying import Retry
from agent_memory.summarizers.transcript import as_data, framed, packed, shortened
from agent_memory.tokens import TokenCounter

_log = logging.getLogger(__name__)

_FRAME: Final = 200
"""Tokens of a request beside instruction, summary and conversation: tags and what is asked."""
_SMALLEST_PIECE: Final = 300
_WORDS_A_TOKEN: Final = 0.7
_LIMIT: Final = "max_output_tokens"
_NOTHING_SAID: Final = "(no text)"


@attrs.frozen(kw_only=True)
class Folding:
    """Asks a model to summarize a conversation, in as many pieces as its window takes.

    Args:
        model: the model to ask.
        parameters: go with each request.
        max_input_tokens: the longest request.
        max_summary_tokens: the longest summary.
        counter: counts tokens.
        timeout: seconds a request may take, or None.
        retry: how often to ask again.
    """

    model: ChatModel
    parameters: Mapping[str, Any]
    max_input_tokens: int
    max_summary_tokens: int
    counter: TokenCounter
    timeout: float | None
    retry: Retry

    async def fold(self, instruction: str, anchor: str, entries: Sequence[str]) -> Completion:
        """Return the summary, and what all requests for it cost: None if that is unknown.

        Args:
            instruction: what the model is told to do.
            anchor: the summary so far, to be updated; ``""`` for none.
            entries: the conversation, see :func:`~.transcript.entries_of`.

        Raises:
            ModelError: a request failed for good; its ``usage`` is that of all requests.
        """
        # However long the conversation is, the loop goes on while its tokens are counted.
        anchor, pieces = await asyncio.to_thread(
            self._begun, instruction, anchor, entries or [_NOTHING_SAID]
        )
        spent: Usage | None = Usage()
        done = 0
        while pieces:
            total = done + len(pieces)
            part = f"{done + 1} of {total}" if total > 1 else ""
            try:
                answer = await self._answer(instruction, anchor, pieces[0], part)
            except ModelError as error:
                error.usage += spent or Usage()
                if not isinstance(error, ContextOverflowError):
                    raise
                spent = None if spent is None else error.usage
                pieces = await asyncio.to_thread(self._halved, pieces, error)
            else:
                anchor, spent = self._bounded(answer.text), _total(spent, answer.usage)
                pieces, done = pieces[1:], done + 1
        return Completion(anchor, spent)

    def _begun(
        self, instruction: str, anchor: str, entries: Sequence[str]
    ) -> tuple[str, list[list[str]]]:
        room = self.max_input_tokens - self._tokens(instruction) - _FRAME
        if self._tokens(anchor) * 2 > room:
            # Too long to be carried along: a foreign summary, or the limits were lowered.
            anchor, entries = "", [f"summary so far: {as_data(anchor)}", *entries]
        # The summary may grow to its limit while the conversation is folded in.
        kept = max(self._tokens(anchor), self.max_summary_tokens)
        size = max(room - kept, _SMALLEST_PIECE)
        return anchor, packed(entries, size, self._tokens)

    def _halved(self, pieces: list[list[str]], error: ContextOverflowError) -> list[list[str]]:
        """Pack what is left in half the size, for a window that is smaller than was said."""
        size = max(self._tokens("\n".join(piece)) for piece in pieces) // 2
        if size < _SMALLEST_PIECE // 2:
            raise error
        _log.warning("the request exceeds the model's window; it is sent in smaller pieces")
        return packed([entry for piece in pieces for entry in piece], size, self._tokens)

    async def _answer(
        self, instruction: str, anchor: str, piece: Sequence[str], part: str
    ) -> Completion:
        """Ask for the summary of one piece; a truncated answer gets twice the room once."""
        text = framed(anchor, piece, self._request(anchor), part)
        parameters = dict(self.parameters)
        try:
            return await self.retry.run(lambda: self._ask(instruction, text, parameters))
        except TruncatedAnswerError as error:
            limit = parameters.get(_LIMIT)
            if type(limit) is not int:
                raise
            _log.warning("the summary reached %d tokens; asked again with twice that", limit)
            parameters[_LIMIT] = 2 * limit
            cost = error.usage
        try:
            answer = await self.retry.run(lambda: self._ask(instruction, text, parameters))
        except ModelError as error:
            error.usage += cost
            raise
        return Completion(answer.text, _total(answer.usage, cost))

    async def _ask(self, instruction: str, text: str, parameters: Mapping[str, Any]) -> Completion:
        try:
            async with asyncio.timeout(self.timeout):
                answer = cast("object", await self.model.complete(instruction, text, **parameters))
        except ModelError:
            raise
        except Exception as error:
            # Any SDK's own exception; told apart by the HTTP status it carries.
            raise as_model_error(error) from error
        if not isinstance(answer, Completion):
            raise ModelError(f"the model gave a {type(answer).__name__}, not a Completion")
        if not answer.text.strip():
            raise BlankAnswerError(
                "the model's answer is blank", transient=True, usage=answer.usage
            )
        return answer

    def _request(self, anchor: str) -> str:
        words = int(self.max_summary_tokens * _WORDS_A_TOKEN)
        what = "the updated summary" if anchor else "the summary"
        return (
            f"Write {what} now, in the language of the conversation and in at most {words} words."
        )

    def _bounded(self, text: str) -> str:
        text = text.strip()
        tokens = self._tokens(text)
        if tokens <= self.max_summary_tokens:
            return text
        _log.warning(
            "the model's summary has about %d tokens, more than max_summary_tokens=%d; "
            "its middle is left out",
            tokens,
            self.max_summary_tokens,
        )
        chars = len(text) * self.max_summary_tokens // tokens
        short = shortened(text, chars)
        while self._tokens(short) > self.max_summary_tokens:
            chars = chars * 9 // 10
            short = shortened(text, chars)
        return short

    def _tokens(self, text: str) -> int:
        return self.counter.count(ConversationMessage(ParticipantRole.USER, text))


def _total(spent: Usage | None, usage: Usage | None) -> Usage | None:
    """Add costs up; with one that is unknown, so is the sum."""
    return None if spent is None or usage is None else spent + usage
