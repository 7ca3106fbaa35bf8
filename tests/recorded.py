"""Exchanges that live APIs answered with status 200, and how to compare with them.

The recordings lie beside the checkout, see their SOURCE.md; where they are absent, tests skip.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import attrs

from judge import converse_input, faults

FILE = Path(__file__).resolve().parents[2] / "shared" / "data" / "recorded.jsonl"
COUNTS = {"openai": 140, "openai_responses": 154, "anthropic": 158, "bedrock": 104}
"""How many exchanges of each provider there are."""

RESPONSE_ONLY = ("annotations", "tool_calls.[].index")
"""What Chat's replies have and its requests do not: openai's ChatCompletionMessage and, in
streams, ChoiceDeltaToolCall."""


@attrs.frozen
class Exchange:
    """A request that was accepted, and what came back."""

    id: str
    provider: str
    request: list
    reply: list

    @property
    def history(self):
        """What the application holds afterwards."""
        return [*self.request, *self.reply]

    def known_faults(self):
        """What the judge says of the recording itself, which an API took all the same."""
        found = {fault.kind for fault in faults(self.history, self.provider)}
        return {kind for kind in found if not kind.startswith(RESPONSE_ONLY)}


def exchanges(provider):
    """The recordings of one provider, as its SDK's user holds them."""
    with FILE.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [
        Exchange(each["id"], provider, *(_loaded(each[key], provider) for key in _PARTS))
        for each in records
        if each["provider"] == provider
    ]


_PARTS = ("request", "reply")


def _loaded(messages, provider):
    if provider != "bedrock":
        return messages
    return _with_bytes(messages, converse_input().members["messages"])


def _with_bytes(value, shape):
    """Bytes as boto3 takes and gives them; a recording holds them as base64 text."""
    if shape.type_name == "blob":
        # Text beyond 1,500 characters was cut; whole groups of four can still be decoded.
        return base64.b64decode(value[: len(value) // 4 * 4])
    if shape.type_name == "list":
        return [_with_bytes(item, shape.member) for item in value]
    if shape.type_name == "structure" and isinstance(value, dict):
        members = shape.members
        return {k: _with_bytes(v, members[k]) if k in members else v for k, v in value.items()}
    return value


def same(given, returned):
    """Whether two values are equal by type and order, but for the order of top-level keys."""
    if type(given) is not type(returned) or len(given) != len(returned):
        return False
    return all(
        before.keys() == after.keys() and all(_exactly(before[key], after[key]) for key in before)
        for before, after in zip(given, returned, strict=True)
    )


def _exactly(given, returned):
    if type(given) is not type(returned):
        return False
    if isinstance(given, dict):
        return list(given) == list(returned) and all(
            _exactly(v, returned[k]) for k, v in given.items()
        )
    if isinstance(given, list):
        return len(given) == len(returned) and all(map(_exactly, given, returned))
    return given == returned


_SAID = frozenset(
    {
        "content",
        "text",
        "refusal",
        "output",
        "arguments",
        "input",
        "code",
        "logs",
        "stdout",
        "stderr",
    }
)
"""Keys whose text is said by somebody, however short it is."""
_NOT_SAID = frozenset({
    # the model's own reasoning
    "thinking", "reasoning", "reasoning_content", "reasoning_details", "reasoningContent",
    "thought_signature", "extra_content",
    # opaque or encoded data, and where it lies
    "signature", "encrypted_content", "encrypted_stdout", "encrypted_index", "redactedContent",
    "data", "file_data", "bytes", "url", "document_url", "image_url", "file_url", "s3Location",
    # what says which, not what
    "id", "call_id", "tool_call_id", "tool_use_id", "toolUseId", "type",
    # where a text has its knowledge from stands in the text; definitions of tools are no chat
    "annotations", "citations", "tools",
})  # fmt: skip
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{400,}")
_A_FEW_WORDS = re.compile(r"\w+\W+\w+\W+\w+")


def texts_of(value, key=""):
    """What is said in a message: text under the usual keys, and any string of a few words.

    Knows nothing of formats, so that a block which nobody thought of counts too.
    """
    if isinstance(value, str):
        said = key in _SAID or _A_FEW_WORDS.search(value)
        if value.strip() and said and not _ENCODED.search(value):
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item, key)
    elif isinstance(value, dict) and value.get("type") not in ("reasoning", "thinking"):
        failed = "message" in value  # where `code` is that of an error, not of a program
        for name, inner in value.items():
            if name not in _NOT_SAID and not (failed and name == "code"):
                yield from texts_of(inner, name)


_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}|\\[nrt\"\\/]")


def letters(text):
    """A text without white space, marks and escapes: what must be found again in a transcript."""
    return re.sub(r"\W+", "", _ESCAPE.sub(" ", text))
