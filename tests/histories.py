"""Random histories in the four providers' forms, for property tests.

A history is drawn once, as a list of :class:`Said`, and can then be rendered in any shape::

    @given(history=histories("bedrock"))
    def test_something(history): ...            # a list of ConversationMessage

    @given(said=conversations(), shape=st.sampled_from(SHAPES))
    def test_all(said, shape):
        history = render(said, shape)

They hold parallel calls, results out of order, in one message or in several, images, reasoning,
blank and empty content, system messages; and, unless ``wild=False``, what goes wrong in the
field: dead calls, stray, duplicate and late results, ids used again, an assistant who speaks
first. Message ids are ``m0``, ``m1``, …, timestamps a minute apart, so that equal draws are
equal.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs
from hypothesis import strategies as st

from agent_memory.messages import ConversationMessage

SHAPES = ("openai_chat", "openai_responses", "anthropic", "bedrock")
_PNG = b"\x89PNG\r\n\x1a\n\x00"
_PNG_TEXT = "iVBORw0KGgoA"
_START = datetime(2026, 3, 1, tzinfo=UTC)


@attrs.frozen
class Piece:
    """Text, an image, reasoning, a call or a result."""

    kind: str
    text: str = ""
    id: str = ""
    is_error: bool = False


@attrs.frozen
class Said:
    """One message before it is written in a provider's form."""

    role: str
    pieces: tuple[Piece, ...]


def _texts(wild):
    spoken = st.sampled_from(["hello", "book it", "42 seats", "Привет", "你好", "ok?"])
    return st.one_of(spoken, st.sampled_from(["", "  ", "\n"])) if wild else spoken


@st.composite
def _user(draw, wild):
    pieces = [Piece("text", draw(_texts(wild)))]
    if draw(st.integers(0, 4)) == 0:
        pieces.append(Piece("image"))
    if wild and draw(st.integers(0, 9)) == 0:
        pieces = []
    return [Said("user", tuple(pieces))]


@st.composite
def _answer(draw, wild):
    pieces = [Piece("text", draw(_texts(wild)))]
    if draw(st.integers(0, 3)) == 0:
        pieces.insert(0, Piece("reasoning", "let me think"))
    if wild and draw(st.integers(0, 9)) == 0:
        pieces = draw(st.sampled_from([[], [Piece("reasoning", "cut off")]]))
    return [Said("assistant", tuple(pieces))]


@st.composite
def _exchange(draw, wild):
    count = draw(st.integers(1, 3))
    # Few numbers, so that ids come back now and then when they may.
    ids = draw(st.lists(st.integers(0, 999_999), min_size=count, max_size=count, unique=True))
    if wild and draw(st.integers(0, 4)) == 0:
        ids = [number % 3 for number in ids]
    names = [f"call_{number}" for number in ids]
    calls = [Piece("call", "lookup", name) for name in names]
    if draw(st.booleans()):
        calls.insert(0, Piece("text", draw(_texts(wild))))
    if draw(st.integers(0, 2)) == 0:
        calls.insert(0, Piece("reasoning", "I need a tool"))
        if wild and draw(st.integers(0, 3)) == 0:
            calls.append(Piece("reasoning", "and then"))
            calls.append(Piece("call", "lookup", f"call_{ids[0]}x"))
            names.append(f"call_{ids[0]}x")
    said = [Said("assistant", tuple(calls))]
    answered = draw(st.permutations(names))
    if wild and draw(st.integers(0, 3)) == 0:
        answered = [*answered, draw(st.sampled_from([*names, "call_lost"]))]
    if wild and draw(st.integers(0, 3)) == 0:
        answered = answered[: draw(st.integers(0, len(answered)))]
    results = [
        Piece("result", draw(st.sampled_from(["found 3", '{"n": 1}'])), name, draw(st.booleans()))
        for name in answered
    ]
    said += _spread(draw, results, wild)
    return said


def _spread(draw, results, wild):
    if not results:
        return []
    if draw(st.booleans()):
        pieces = tuple(results)
        if wild and draw(st.integers(0, 5)) == 0:
            pieces = (*pieces, Piece("text", "and be quick"))
        return [Said("tool", pieces)]
    said = [Said("tool", (piece,)) for piece in results]
    if wild and draw(st.integers(0, 5)) == 0:
        said.insert(draw(st.integers(0, len(said))), Said("user", (Piece("text", "hurry"),)))
    return said


def _system():
    return st.just([Said("system", (Piece("text", "be brief"),))])


def conversations(*, wild=True, max_turns=8):
    """Strategy for lists of :class:`Said`.

    Args:
        wild: with the faults of the field; otherwise a chat any provider takes (it begins with
            a user's message, alternates, and answers every call).
        max_turns: at most so many turns (an exchange is one, of several messages).
    """
    if wild:
        turn = st.one_of(_user(wild), _answer(wild), _exchange(wild), _exchange(wild), _system())
        stray = st.just([Said("tool", (Piece("result", "late", "call_1"),))])
        turns = st.lists(st.one_of(turn, turn, turn, stray), max_size=max_turns)
        return turns.map(_flat)
    rounds = st.tuples(
        _user(wild), st.lists(_exchange(wild), max_size=3).map(_flat), _answer(wild)
    )
    head = st.one_of(st.just([]), _system())
    body = st.lists(rounds.map(_flat), max_size=max(1, max_turns // 3)).map(_flat)
    return st.tuples(head, body).map(_flat)


def _flat(nested):
    return [said for part in nested for said in part]


def histories(shape=None, *, wild=True, max_turns=8):
    """Strategy for lists of messages in `shape`; None draws one of the four."""
    shapes = st.sampled_from(SHAPES) if shape is None else st.just(shape)
    drawn = st.tuples(conversations(wild=wild, max_turns=max_turns), shapes)
    return drawn.map(lambda pair: render(*pair))


def mixtures(*, max_turns=8):
    """Strategy for histories whose turns are each in a shape of their own."""
    turn = st.tuples(conversations(max_turns=2), st.sampled_from(SHAPES))

    def together(drawn):
        plain = [message for said, shape in drawn for message in render(said, shape)]
        return [_message(i, m.role, m.content, m.extra) for i, m in enumerate(plain)]

    return st.lists(turn, max_size=max_turns // 2).map(together)


def render(said, shape):
    """Write what was said in one provider's form, as messages."""
    write = {
        "openai_chat": _chat,
        "openai_responses": _responses,
        "anthropic": _anthropic,
        "bedrock": _bedrock,
    }[shape]
    written = [made for each in said for made in write(each)]
    return [_message(index, *made) for index, made in enumerate(written)]


def _message(index, role, content, extra):
    when = _START + timedelta(minutes=index)
    return ConversationMessage(role, content, extra=extra, id=f"m{index}", timestamp=when)


def _by_kind(said, kind):
    return [piece for piece in said.pieces if piece.kind == kind]


def _chat(said):
    for result in _by_kind(said, "result"):
        yield "tool", result.text, {"tool_call_id": result.id}
    calls, texts = _by_kind(said, "call"), _by_kind(said, "text")
    if said.role == "tool" and not texts:
        return
    extra = {}
    if calls:
        function = {"name": "lookup", "arguments": '{"q": "x"}'}
        extra["tool_calls"] = [
            {"id": call.id, "type": "function", "function": function} for call in calls
        ]
    for thought in _by_kind(said, "reasoning")[:1]:
        extra["reasoning_content"] = thought.text
    content = texts[0].text if texts else (None if said.role == "assistant" else [])
    if _by_kind(said, "image"):
        url = f"data:image/png;base64,{_PNG_TEXT}"
        image = {"type": "image_url", "image_url": {"url": url}}
        content = [{"type": "text", "text": content}, image]
    yield "user" if said.role == "tool" else said.role, content, extra


def _responses(said):
    for number, piece in enumerate(said.pieces):
        if piece.kind == "call":
            call = {"type": "function_call", "call_id": piece.id, "name": "lookup"}
            yield "assistant", None, {**call, "arguments": '{"q": "x"}'}
        elif piece.kind == "result":
            output = {"type": "function_call_output", "call_id": piece.id}
            yield "tool", None, {**output, "output": piece.text}
        elif piece.kind == "reasoning":
            summary = [{"type": "summary_text", "text": piece.text}]
            item = {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
            yield "assistant", None, item
        elif piece.kind == "text":
            yield _responses_message(said, piece)
    if not said.pieces:
        yield said.role, [], {}


def _responses_message(said, piece):
    role = "user" if said.role == "tool" else said.role
    if role == "assistant":
        block = {"type": "output_text", "text": piece.text, "annotations": []}
        return role, [block], {"type": "message", "id": "msg_1", "status": "completed"}
    if not _by_kind(said, "image"):
        return role, piece.text, {}
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{_PNG_TEXT}"}
    return role, [{"type": "input_text", "text": piece.text}, image], {}


def _anthropic(said):
    blocks = [_anthropic_block(piece) for piece in said.pieces]
    role = "user" if said.role == "tool" else said.role
    if len(said.pieces) == 1 and said.pieces[0].kind == "text":
        return [(role, said.pieces[0].text, {})]
    return [(role, blocks, {})]


def _anthropic_block(piece):
    match piece.kind:
        case "text":
            return {"type": "text", "text": piece.text}
        case "image":
            source = {"type": "base64", "media_type": "image/png", "data": _PNG_TEXT}
            return {"type": "image", "source": source}
        case "reasoning":
            return {"type": "thinking", "thinking": piece.text, "signature": "c2ln"}
        case "call":
            return {"type": "tool_use", "id": piece.id, "name": "lookup", "input": {"q": "x"}}
        case _:
            block = {"type": "tool_result", "tool_use_id": piece.id, "content": piece.text}
            return {**block, "is_error": True} if piece.is_error else block


def _bedrock(said):
    role = "user" if said.role == "tool" else said.role
    return [(role, [_bedrock_block(piece) for piece in said.pieces], {})]


def _bedrock_block(piece):
    match piece.kind:
        case "text":
            return {"text": piece.text}
        case "image":
            return {"image": {"format": "png", "source": {"bytes": _PNG}}}
        case "reasoning":
            text = {"text": piece.text, "signature": "c2ln"}
            return {"reasoningContent": {"reasoningText": text}}
        case "call":
            return {"toolUse": {"toolUseId": piece.id, "name": "lookup", "input": {"q": "x"}}}
        case _:
            status = {"status": "error"} if piece.is_error else {}
            body = {"toolUseId": piece.id, "content": [{"text": piece.text}], **status}
            return {"toolResult": body}
