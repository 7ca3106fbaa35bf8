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
first. With ``rare=True`` they also hold what fewer chats have: tools that the provider runs (also
paused, without their result), typed and free-text calls, empty ids, pictures in results, cache
marks, compaction items, reasoning without a signature. Message ids are ``m0``, ``m1``, …,
timestamps a minute apart, so that equal draws are equal.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import attrs
from hypothesis import strategies as st

from agent_memory.messages import ConversationMessage

SHAPES = ("openai_chat", "openai_responses", "anthropic", "bedrock")
_PNG = b"\x89PNG\r\n\x1a\n\x00"
_PNG_TEXT = "iVBORw0KGgoA"
_IMAGE_URL = f"data:image/png;base64,{_PNG_TEXT}"
_FREE = "*** Begin Patch"
HOSTED_TOOLS = ("search", "code", "mcp", "tools")
"""Which tools a provider runs itself; each provider has its own of the kind."""
_START = datetime(2026, 3, 1, tzinfo=UTC)


@attrs.frozen
class Piece:
    """Text, an image, reasoning, a call or a result; rarely a hosted tool or a compaction.

    Args:
        kind: "text", "image", "reasoning", "call", "result", "hosted" (a call that the provider
            ran, with its result), "paused" (one without) or "compaction".
        text: what is said; of a hosted call, which tool it is.
        id: of a call and its result.
        is_error: a result that reports a failure.
        rare: the piece has what few have: reasoning no signature, a text a cache mark, a call and
            its result a type of their own, a result a picture.
    """

    kind: str
    text: str = ""
    id: str = ""
    is_error: bool = False
    rare: bool = False


@attrs.frozen
class Said:
    """One message before it is written in a provider's form."""

    role: str
    pieces: tuple[Piece, ...]


def _texts(wild):
    spoken = st.sampled_from(["hello", "book it", "42 seats", "Привет", "你好", "ok?"])
    return st.one_of(spoken, st.sampled_from(["", "  ", "\n"])) if wild else spoken


def _seldom(draw, rare, one_in=6):
    return rare and draw(st.integers(1, one_in)) == 1


@st.composite
def _user(draw, wild, rare=False):
    pieces = [Piece("text", draw(_texts(wild)), rare=_seldom(draw, rare))]
    if draw(st.integers(0, 4)) == 0:
        pieces.append(Piece("image"))
    if wild and draw(st.integers(0, 9)) == 0:
        pieces = []
    return [Said("user", tuple(pieces))]


@st.composite
def _answer(draw, wild, rare=False):
    pieces = [Piece("text", draw(_texts(wild)))]
    if draw(st.integers(0, 3)) == 0:
        pieces.insert(0, Piece("reasoning", "let me think", rare=_seldom(draw, rare, 3)))
    if _seldom(draw, rare, 3):
        place = draw(st.integers(0, len(pieces)))
        kind = draw(st.sampled_from(["hosted", "hosted", "paused", "compaction"]))
        pieces.insert(place, Piece(kind, draw(st.sampled_from(HOSTED_TOOLS))))
    if wild and draw(st.integers(0, 9)) == 0:
        pieces = draw(st.sampled_from([[], [Piece("reasoning", "cut off")]]))
    return [Said("assistant", tuple(pieces))]


@st.composite
def _exchange(draw, wild, rare=False):
    count = draw(st.integers(1, 3))
    # Few numbers, so that ids come back now and then when they may.
    ids = draw(st.lists(st.integers(0, 999_999), min_size=count, max_size=count, unique=True))
    if wild and draw(st.integers(0, 4)) == 0:
        ids = [number % 3 for number in ids]
    names = [f"call_{number}" for number in ids]
    if _seldom(draw, rare):
        names = ["" if draw(st.booleans()) else name for name in names]
    typed = _seldom(draw, rare)
    calls = [Piece("call", "lookup", name, rare=typed) for name in names]
    if draw(st.booleans()):
        calls.insert(0, Piece("text", draw(_texts(wild))))
    if draw(st.integers(0, 2)) == 0:
        calls.insert(0, Piece("reasoning", "I need a tool", rare=_seldom(draw, rare, 3)))
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
    if _seldom(draw, rare):
        calls.insert(0, Piece("hosted", draw(st.sampled_from(HOSTED_TOOLS))))
    with_image = _seldom(draw, rare)
    results = [
        Piece(
            "result",
            draw(st.sampled_from(["found 3", '{"n": 1}'])),
            name,
            draw(st.booleans()),
            rare=typed or with_image,
        )
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


def conversations(*, wild=True, rare=False, max_turns=8):
    """Strategy for lists of :class:`Said`.

    Args:
        wild: with the faults of the field; otherwise a chat any provider takes (it begins with
            a user's message, alternates, and answers every call).
        rare: with what fewer chats have, such as hosted tools and empty ids; always wild.
        max_turns: at most so many turns (an exchange is one, of several messages).
    """
    if wild or rare:
        exchange = _exchange(wild=True, rare=rare)
        turn = st.one_of(
            _user(wild=True, rare=rare),
            _answer(wild=True, rare=rare),
            exchange,
            exchange,
            _system(),
        )
        stray = st.just([Said("tool", (Piece("result", "late", "call_1"),))])
        turns = st.lists(st.one_of(turn, turn, turn, stray), max_size=max_turns)
        return turns.map(_flat).map(_with_hosted_ids)
    rounds = st.tuples(
        _user(wild), st.lists(_exchange(wild), max_size=3).map(_flat), _answer(wild)
    )
    head = st.one_of(st.just([]), _system())
    body = st.lists(rounds.map(_flat), max_size=max(1, max_turns // 3)).map(_flat)
    return st.tuples(head, body).map(_flat)


def _with_hosted_ids(said):
    """What the provider itself calls has ids that it made, and made once."""
    numbers = itertools.count()

    def named(piece):
        hosted = piece.kind in ("hosted", "paused")
        return attrs.evolve(piece, id=f"srv_{next(numbers)}") if hosted else piece

    return [attrs.evolve(each, pieces=tuple(map(named, each.pieces))) for each in said]


def _flat(nested):
    return [said for part in nested for said in part]


def histories(shape=None, *, wild=True, rare=False, max_turns=8):
    """Strategy for lists of messages in `shape`; None draws one of the four."""
    shapes = st.sampled_from(SHAPES) if shape is None else st.just(shape)
    drawn = st.tuples(conversations(wild=wild, rare=rare, max_turns=max_turns), shapes)
    return drawn.map(lambda pair: render(*pair))


def mixtures(*, rare=False, max_turns=8):
    """Strategy for histories whose turns are each in a shape of their own."""
    turn = st.tuples(conversations(rare=rare, max_turns=2), st.sampled_from(SHAPES))

    def together(drawn):
        numbered = iter(_with_hosted_ids(_flat(said for said, _ in drawn)))
        plain = [
            message
            for said, shape in drawn
            for message in render([next(numbered) for _ in said], shape)
        ]
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
        image = {"type": "image_url", "image_url": {"url": _IMAGE_URL}}
        content = [{"type": "text", "text": result.text}, image] if result.rare else result.text
        yield "tool", content, {"tool_call_id": result.id}
    calls, texts = _by_kind(said, "call"), _by_kind(said, "text")
    if (said.role == "tool" and not texts) or _is_foreign(said, "hosted", "paused", "compaction"):
        return
    extra = {}
    if calls:
        extra["tool_calls"] = [_chat_call(call) for call in calls]
    for thought in _by_kind(said, "reasoning")[:1]:
        extra["reasoning_content"] = thought.text
    content = texts[0].text if texts else (None if said.role == "assistant" else [])
    if texts and texts[0].rare:
        mark = {"cache_control": {"type": "ephemeral"}}
        content = [{"type": "text", "text": content, **mark}]
    if _by_kind(said, "image"):
        image = {"type": "image_url", "image_url": {"url": _IMAGE_URL}}
        content = [{"type": "text", "text": texts[0].text}, image]
    yield "user" if said.role == "tool" else said.role, content, extra


def _is_foreign(said, *kinds):
    """Whether a message holds nothing but what a provider does not have."""
    return bool(said.pieces) and all(piece.kind in kinds for piece in said.pieces)


def _chat_call(call):
    if call.rare:
        return {"id": call.id, "type": "custom", "custom": {"name": "lookup", "input": _FREE}}
    function = {"name": "lookup", "arguments": '{"q": "x"}'}
    return {"id": call.id, "type": "function", "function": function}


def _responses(said):
    for number, piece in enumerate(said.pieces):
        match piece.kind:
            case "call":
                yield "assistant", None, _responses_call(piece)
            case "result":
                yield "tool", None, _responses_result(piece)
            case "hosted" | "paused":
                for role, item in _responses_hosted(piece):
                    yield role, None, item
            case "compaction":
                item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"}
                yield "assistant", None, item
            case "reasoning":
                summary = [{"type": "summary_text", "text": piece.text}]
                item = {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
                signed = {} if piece.rare else {"encrypted_content": "gAAAA"}
                yield "assistant", None, {**item, **signed}
            case "text":
                yield _responses_message(said, piece)
    if not said.pieces:
        yield said.role, [], {}


def _responses_call(piece):
    if piece.rare:
        call = {"type": "custom_tool_call", "call_id": piece.id, "name": "lookup"}
        return {**call, "input": _FREE}
    call = {"type": "function_call", "call_id": piece.id, "name": "lookup"}
    return {**call, "arguments": '{"q": "x"}'}


def _responses_result(piece):
    output = piece.text
    if piece.rare:
        image = {"type": "input_image", "image_url": _IMAGE_URL, "detail": "auto"}
        output = [{"type": "input_text", "text": piece.text}, image]
    kind = "custom_tool_call_output" if piece.rare else "function_call_output"
    return {"type": kind, "call_id": piece.id, "output": output}


def _responses_hosted(piece):
    done = {"id": piece.id, "status": "completed" if piece.kind == "hosted" else "in_progress"}
    output = "said the server" if piece.kind == "hosted" else None
    match piece.text:
        case "search":
            action = {"type": "search", "query": "x"}
            yield "assistant", {"type": "web_search_call", "action": action, **done}
        case "code":
            code = {"type": "code_interpreter_call", "container_id": "c", "code": "print(1)"}
            logs = [{"type": "logs", "logs": output}] if output else None
            yield "assistant", {**code, "outputs": logs, **done}
        case "mcp":
            call = {"type": "mcp_call", "server_label": "s", "name": "ask", "arguments": "{}"}
            yield "assistant", {**call, "output": output, "id": piece.id}
        case _:
            both = {"call_id": None, "execution": "server", "status": "completed"}
            yield "assistant", {"type": "tool_search_call", "arguments": {}, **both}
            if output:
                yield "tool", {"type": "tool_search_output", "tools": [], **both}


def _responses_message(said, piece):
    role = "user" if said.role == "tool" else said.role
    if role == "assistant":
        block = {"type": "output_text", "text": piece.text, "annotations": []}
        return role, [block], {"type": "message", "id": "msg_1", "status": "completed"}
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}} if piece.rare else {}
    text = {"type": "input_text", "text": piece.text, **mark}
    if not _by_kind(said, "image"):
        return role, [text] if piece.rare else piece.text, {}
    image = {"type": "input_image", "image_url": _IMAGE_URL, "detail": "auto"}
    return role, [text, image], {}


def _anthropic(said):
    blocks = [block for piece in said.pieces for block in _anthropic_blocks(piece)]
    role = "user" if said.role == "tool" else said.role
    if len(said.pieces) == 1 and said.pieces[0].kind == "text" and not said.pieces[0].rare:
        return [(role, said.pieces[0].text, {})]
    return [(role, blocks, {})]


def _anthropic_blocks(piece):
    if piece.kind in ("hosted", "paused"):
        found = list(_anthropic_hosted(piece))
        return found if piece.kind == "hosted" else found[:1]
    return [_anthropic_block(piece)]


def _anthropic_hosted(piece):
    call = {"id": piece.id, "input": {"q": "x"}}
    match piece.text:
        case "search":
            kind, name, content = "web_search_tool_result", "web_search", []
        case "code":
            kind, name = "code_execution_tool_result", "code_execution"
            content = {"type": "code_execution_result", "stdout": "said the server"}
            content |= {"stderr": "", "return_code": 0, "content": []}
        case "mcp":
            yield {"type": "mcp_tool_use", "name": "ask", "server_name": "s", **call}
            content = [{"type": "text", "text": "said the server"}]
            yield {"type": "mcp_tool_result", "tool_use_id": piece.id, "content": content}
            return
        case _:
            kind, name = "tool_search_tool_result", "tool_search_tool_bm25"
            content = {"type": "tool_search_tool_search_result", "tool_references": []}
    yield {"type": "server_tool_use", "name": name, **call}
    yield {"type": kind, "tool_use_id": piece.id, "content": content}


def _anthropic_block(piece):
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": _PNG_TEXT},
    }
    match piece.kind:
        case "text":
            mark = {"cache_control": {"type": "ephemeral"}} if piece.rare else {}
            return {"type": "text", "text": piece.text, **mark}
        case "image":
            return image
        case "reasoning":
            signature = "" if piece.rare else "c2ln"
            return {"type": "thinking", "thinking": piece.text, "signature": signature}
        case "call":
            caller = {"caller": {"type": "direct"}} if piece.rare else {}
            call = {"type": "tool_use", "id": piece.id, "name": "lookup", "input": {"q": "x"}}
            return {**call, **caller}
        case "compaction":
            return {"type": "compaction", "content": "what was said before"}
        case _:
            content = [{"type": "text", "text": piece.text}, image] if piece.rare else piece.text
            block = {"type": "tool_result", "tool_use_id": piece.id, "content": content}
            return {**block, "is_error": True} if piece.is_error else block


def _bedrock(said):
    if _is_foreign(said, "compaction"):
        return []
    role = "user" if said.role == "tool" else said.role
    return [(role, [block for piece in said.pieces for block in _bedrock_blocks(piece)], {})]


def _bedrock_blocks(piece):
    match piece.kind:
        case "compaction":
            return []
        case "hosted" | "paused":
            call = {"toolUseId": piece.id, "name": "nova_grounding", "input": {}}
            result = {"toolUseId": piece.id, "content": [{"text": "said the server"}]}
            blocks = [
                {"toolUse": {**call, "type": "server_tool_use"}},
                {"toolResult": {**result, "type": "nova_grounding_result"}},
            ]
            return blocks if piece.kind == "hosted" else blocks[:1]
        case "text" if piece.rare:
            return [{"text": piece.text}, {"cachePoint": {"type": "default"}}]
        case _:
            return [_bedrock_block(piece)]


def _bedrock_block(piece):
    image = {"image": {"format": "png", "source": {"bytes": _PNG}}}
    match piece.kind:
        case "text":
            return {"text": piece.text}
        case "image":
            return image
        case "reasoning":
            signature = {} if piece.rare else {"signature": "c2ln"}
            return {"reasoningContent": {"reasoningText": {"text": piece.text, **signature}}}
        case "call":
            kind = {"type": "tool_use"} if piece.rare else {}
            use = {"toolUseId": piece.id, "name": "lookup", "input": {"q": "x"}}
            return {"toolUse": {**use, **kind}}
        case _:
            status = {"status": "error"} if piece.is_error else {}
            content = [{"text": piece.text}, image] if piece.rare else [{"text": piece.text}]
            return {"toolResult": {"toolUseId": piece.id, "content": content, **status}}
