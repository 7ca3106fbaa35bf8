"""``agent-memory demo``: a conversation stored, shortened for a model, read again, compared."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import attrs
import typer
from rich.padding import Padding
from rich.text import Text

from agent_memory.audit.chunks import DefaultIds, Tally
from agent_memory.audit.escaping import one_line, visible
from agent_memory.audit.findings import Finding
from agent_memory.audit.sources import read_file
from agent_memory.audit.verification import CallWatch
from agent_memory.audit.view_inspection import explanation_of, stretches_of, tokens_of
from agent_memory.cli.app import FAILED
from agent_memory.cli.drawing import Column, console, counting, print_table
from agent_memory.cli.stores import JsonOption, only_looking, print_json
from agent_memory.errors import InvalidRequestError
from agent_memory.keys import new_id
from agent_memory.messages import ChatKey, ConversationMessage, ParticipantRole
from agent_memory.providers import text_of
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.urls import open_storage, without_secrets
from agent_memory.summarizers.extractive import ExtractiveSummarizer
from agent_memory.summarizing import SummarizingChatStorage

Conversations: TypeAlias = Mapping[str, Sequence[ConversationMessage]]
_AGENT: Final = "agent"
_MOST_ROWS: Final = 12
_COLUMNS: Final = (
    Column("conversation", is_figure=False),
    *map(Column, ("kept", "tokens", "seen", "tokens", "summaries")),
)


async def demo(
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input",
            exists=True,
            dir_okay=False,
            help='JSONL file of conversations in OpenAI\'s format: {"id": …, "messages": […]} '
            "a line. Without it, a conversation that comes with the package.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Where to store: sqlite:///chats.db, postgresql://…, mysql://…, file:./chats, "
            "dynamodb://table?region=…, memory:. Without it, SQLite in a temporary directory.",
        ),
    ] = None,
    trigger_at: Annotated[
        int, typer.Option(help="Pairs of messages; a longer chat is summarized.")
    ] = 10,
    keep_last: Annotated[int, typer.Option(help="Pairs of messages that stay verbatim.")] = 2,
    json: JsonOption = False,
) -> None:
    """Store a conversation turn by turn, show what a model sees, and prove nothing is lost.

    The summaries are made without a model, of the conversation's own sentences.
    """
    conversations = demo_conversation() if input_file is None else read_conversations(input_file)
    with ExitStack() as stack:
        if store is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="agent-memory-"))
            store = f"sqlite:///{Path(directory).as_posix()}/chats.db"
        result = DemoResult(without_secrets(store))
        async with open_storage(store) as raw:
            async with SummarizingChatStorage(
                raw, ExtractiveSummarizer(), trigger_at, keep_last, close_inner=False
            ) as storage:
                views = await _play(storage, conversations, result, shown=not json)
            # A store in memory would lose everything when closed.
            result.reopened = raw.scope != "process"
            if not result.reopened:
                await _compare(raw, conversations, views, result)
        if result.reopened:
            # Through a new connection: the database holds the messages, not a cache.
            async with open_storage(store) as raw:
                await _compare(raw, conversations, views, result)
    if json:
        count = result.total(lambda one: one.messages)
        print_json({**attrs.asdict(result), "messages": count, "views_checked": count})
    else:
        _print(result)
    if result.exchanges_split or result.faults:
        raise typer.Exit(FAILED)


def demo_conversation() -> Conversations:
    """Return the conversation that comes with this package."""
    with resources.as_file(resources.files("agent_memory.cli") / "demo_conversation.json") as path:
        return read_conversations(path)


def read_conversations(path: Path) -> Conversations:
    """Read all conversations of a file, as ``agent-memory import`` does, by their ids.

    Raises:
        InvalidRequestError: a record cannot be read, an id comes twice, or there is none at all.
        OSError: the file cannot be read.
    """
    found: dict[str, list[ConversationMessage]] = {}
    sources: dict[str, str] = {}
    for chunk in read_file(path, "messages", DefaultIds("demo", _AGENT), Tally()):
        if isinstance(chunk, Finding):
            raise InvalidRequestError(str(chunk))
        name = chunk.key.session_id
        # The importer continues a chat with a known id; here two conversations would be mixed.
        if sources.setdefault(name, chunk.source) != chunk.source:
            raise InvalidRequestError(f"{path} holds two conversations with the id {name!r}")
        messages = [entry for entry in chunk.entries if isinstance(entry, ConversationMessage)]
        found.setdefault(name, []).extend(messages)
    if not found:
        looks = '{"id": …, "messages": [{"role": …, "content": …}, …]}'
        raise InvalidRequestError(f"{path} holds no conversation; a line looks like {looks}")
    return found


@attrs.define
class PlayedConversation:
    """The figures of one conversation; tokens are estimated."""

    id: str
    messages: int
    tokens: int = 0
    view_messages: int = 0
    view_tokens: int = 0
    compactions: int = 0
    answers: int = 0
    tokens_read: int = 0
    tokens_unshortened: int = 0
    summary: str = ""
    standing: list[str] = attrs.field(factory=list[str])


@attrs.define
class DemoResult:
    """What came of a run of the demo on one store."""

    store: str
    user_id: str = attrs.field(factory=lambda: f"demo-{new_id()}")
    """Of its own, so that the demo can be run again on the same store."""
    reopened: bool = False
    conversations: list[PlayedConversation] = attrs.field(factory=list[PlayedConversation])
    exchanges_split: list[str] = attrs.field(factory=list[str])
    faults: list[str] = attrs.field(factory=list[str])

    def total(self, of: Callable[[PlayedConversation], int]) -> int:
        """Sum a figure up."""
        return sum([of(one) for one in self.conversations])


async def _play(
    storage: SummarizingChatStorage,
    conversations: Conversations,
    result: DemoResult,
    *,
    shown: bool,
) -> dict[str, list[ConversationMessage]]:
    """Save every message, look at the view after each, and return the last views."""
    views: dict[str, list[ConversationMessage]] = {}
    with counting("storing", sum(map(len, conversations.values())), shown=shown) as advance:
        for name, messages in conversations.items():
            one = PlayedConversation(name, len(messages))
            result.conversations.append(one)
            ids, watch, usual = (result.user_id, name, _AGENT), CallWatch(), set[str]()
            view: list[ConversationMessage] = []
            for number, message in enumerate(messages, 1):
                if message.role is ParticipantRole.ASSISTANT:
                    one.answers += 1
                    one.tokens_read += tokens_of(view)
                    one.tokens_unshortened += one.tokens
                await storage.save_chat_message(*ids, message)
                one.tokens += tokens_of([message])
                view = await storage.fetch_chat(*ids)
                # A call that the conversation itself leaves unanswered is not the view's fault.
                usual |= unpaired([message], watch)
                torn = sorted(unpaired(view, CallWatch()) - usual)
                place = f"{name}, after message {number}"
                result.exchanges_split += [f"{place}: {reason}" for reason in torn]
                advance(1)
            views[name] = view
    return views


def unpaired(messages: Iterable[ConversationMessage], watch: CallWatch) -> set[str]:
    """Return a line for each tool call or result among messages whose counterpart is missing."""
    found = {reason for message in messages for reason in watch.look(message)}
    return found | {f"no result follows the call {name!r}" for _, name in watch.unanswered()}


async def _compare(
    raw: ChatStorage,
    conversations: Conversations,
    views: Mapping[str, Sequence[ConversationMessage]],
    result: DemoResult,
) -> None:
    """Compare what the store holds with what was saved and shown, and note how it stands."""
    for one in result.conversations:
        with only_looking():
            explanation = await explanation_of(raw, ChatKey(result.user_id, one.id, _AGENT))
        view = list(explanation.view)
        if [explained.message for explained in explanation.messages] != conversations[one.id]:
            result.faults.append(f"{one.id}: the stored messages are not those saved")
        if view != views[one.id]:
            result.faults.append(f"{one.id}: the view is another one than before")
        one.view_messages, one.view_tokens = len(view), tokens_of(view)
        one.compactions = len(explanation.summaries)
        one.summary = "\n".join(text_of(message) for message in view if message.position is None)
        for stretch in stretches_of(explanation):
            first, last = stretch.messages[0].position, stretch.messages[-1].position
            span = f"{first}" if first == last else f"{first} to {last}"
            by = f" by summary {stretch.number} of {one.compactions}" if stretch.number else ""
            one.standing.append(f"{span}: {stretch.standing}{by}")


def _print(result: DemoResult) -> None:
    out, by_size = console(), sorted(result.conversations, key=lambda one: -one.tokens)
    rows = [_row(one_line(one.id), [one]) for one in by_size[:_MOST_ROWS]]
    if rest := by_size[_MOST_ROWS:]:
        rows.append(_row(f"{len(rest)} more", rest))
    total = _row(f"all {len(by_size)}", by_size) if len(by_size) > 1 else None
    print_table(out, "What is kept, and what the model sees at the end", _COLUMNS, rows, total)
    longest = by_size[0]
    if longest.summary:
        name = one_line(longest.id)
        out.print(Text(f"\nWhat stands for the older messages of {name}:", style="bold"))
        out.print(Padding(Text(visible(longest.summary)), (0, 0, 0, 2), expand=False))
    out.print(Text("\nWhat became of its messages:", style="bold"))
    for line in longest.standing:
        out.print(Text(f"  {line}"))
    read = result.total(lambda one: one.tokens_read)
    whole = result.total(lambda one: one.tokens_unshortened)
    share = f"{read / whole:.0%} of it" if whole else "nothing"
    answers = result.total(lambda one: one.answers)
    out.print(f"\nThe model was asked {answers:,} times. It read {read:,} tokens (estimated)")
    out.print(f"instead of {whole:,}, which is {share}.")
    how = "was closed, reopened and read" if result.reopened else "was read again"
    out.print(f"\nThe store {one_line(result.store)} {how}.", soft_wrap=True)
    broken = [*result.exchanges_split, *result.faults]
    for line in broken:
        out.print(Text(f"BROKEN  {one_line(line)}", style="bold red"))
    if not broken:
        count = result.total(lambda one: one.messages)
        for line in (
            f"OK  All {count:,} messages came back equal.",
            f"OK  None of {count:,} views split a tool exchange.",
            "OK  The views came back equal, and nothing was summarized again.",
        ):
            out.print(Text(line, style="green"))


def _row(name: str, rows: Sequence[PlayedConversation]) -> list[str]:
    names = ("messages", "tokens", "view_messages", "view_tokens", "compactions")
    return [name, *[f"{sum([getattr(one, column) for one in rows]):,}" for column in names]]
