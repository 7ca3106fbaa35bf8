"""``agent-memory demo``: a conversation stored, shortened for a model, read again, compared."""

from __future__ import annotations

import json as json_
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import attrs
import typer
from rich.padding import Padding
from rich.text import Text

from agent_memory.audit.chunks import DefaultIds, Tally
from agent_memory.audit.escaping import one_line, visible
from agent_memory.audit.findings import Finding
from agent_memory.audit.sources import read_file
from agent_memory.audit.verification import CallWatch
from agent_memory.audit.view_inspection import NoSummarizer, stretches_of, tokens_of
from agent_memory.cli.app import FAILED
from agent_memory.cli.drawing import Column, console, print_table, progress_bar
from agent_memory.errors import InvalidRequestError
from agent_memory.keys import new_id
from agent_memory.messages import ConversationMessage, ParticipantRole
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
    json: Annotated[bool, typer.Option("--json", help="Write the result as JSON.")] = False,
) -> None:
    """Store a conversation turn by turn, show what a model sees, and prove nothing is lost.

    The summaries are made without a model, of the conversation's own sentences.
    """
    conversations = demo_conversation() if input_file is None else read_conversations(input_file)
    with ExitStack() as stack:
        if store is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="agent-memory-"))
            store = f"sqlite:///{Path(directory).as_posix()}/chats.db"
        run = _DemoRun(store, trigger_at, keep_last)
        await run.play(conversations, show_progress=not json)
    print(run.as_json()) if json else run.print()
    if run.broken:
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
class _Played:
    """The figures of one conversation; tokens are estimated."""

    id: str
    messages: Sequence[ConversationMessage]
    tokens: int = 0
    view: list[ConversationMessage] = attrs.field(factory=list[ConversationMessage])
    answers: int = 0
    tokens_read: int = 0
    tokens_unshortened: int = 0
    compactions: int = 0
    standing: list[str] = attrs.field(factory=list[str])

    @property
    def summary(self) -> str:
        return "\n".join(text_of(message) for message in self.view if message.position is None)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON data."""
        return {
            "id": self.id,
            "messages": len(self.messages),
            "tokens": self.tokens,
            "view_messages": len(self.view),
            "view_tokens": tokens_of(self.view),
            "compactions": self.compactions,
            "answers": self.answers,
            "tokens_read": self.tokens_read,
            "tokens_unshortened": self.tokens_unshortened,
            "summary": self.summary,
            "standing": self.standing,
        }

    def figures(self) -> tuple[int, ...]:
        seen = tokens_of(self.view)
        return len(self.messages), self.tokens, len(self.view), seen, self.compactions


@attrs.define
class _DemoRun:
    """A run of the demo on one store."""

    url: str
    trigger_at: int
    keep_last: int
    user_id: str = attrs.field(factory=lambda: f"demo-{new_id()}")
    """Of its own, so that the demo can be run again on the same store."""
    reopened: bool = False
    played: list[_Played] = attrs.field(factory=list[_Played])
    splits: list[str] = attrs.field(factory=list[str])
    faults: list[str] = attrs.field(factory=list[str])

    @property
    def broken(self) -> bool:
        return bool(self.splits or self.faults)

    def total(self, of: Callable[[_Played], int]) -> int:
        return sum([of(one) for one in self.played])

    def _shortened(self, raw: ChatStorage, summarizer: Any) -> SummarizingChatStorage:
        return SummarizingChatStorage(
            raw, summarizer, self.trigger_at, self.keep_last, close_inner=False
        )

    async def play(self, conversations: Conversations, *, show_progress: bool) -> None:
        """Save every message, look at the view after each, and compare all of it afterwards."""
        async with open_storage(self.url) as raw:
            async with self._shortened(raw, ExtractiveSummarizer()) as storage:
                with progress_bar(shown=show_progress) as bar:
                    task = bar.add_task("storing", total=sum(map(len, conversations.values())))
                    for name, messages in conversations.items():
                        one = _Played(name, messages)
                        self.played.append(one)
                        await self._play_one(storage, one, lambda: bar.advance(task))
            # Reading through a new connection shows that the database holds the messages, not a
            # cache.
            self.reopened = raw.scope != "process"
            if not self.reopened:  # a store in memory would lose everything when closed
                await self._compare(raw)
        if self.reopened:
            async with open_storage(self.url) as raw:
                await self._compare(raw)

    async def _play_one(
        self, storage: SummarizingChatStorage, one: _Played, on_saved: Callable[[], object]
    ) -> None:
        ids, watch, usual = (self.user_id, one.id, _AGENT), CallWatch(), set[str]()
        for number, message in enumerate(one.messages, 1):
            if message.role is ParticipantRole.ASSISTANT:
                one.answers += 1
                one.tokens_read += tokens_of(one.view)
                one.tokens_unshortened += one.tokens
            await storage.save_chat_message(*ids, message)
            one.tokens += tokens_of([message])
            one.view = await storage.fetch_chat(*ids)
            # A call that the conversation itself leaves unanswered is not the view's fault.
            usual |= unpaired([message], watch)
            torn = unpaired(one.view, CallWatch()) - usual
            self.splits += [
                f"{one.id}, after message {number}: {reason}" for reason in sorted(torn)
            ]
            on_saved()
        explanation = await storage.explain(*ids)
        one.compactions = len(explanation.summaries)
        for stretch in stretches_of(explanation):
            first, last = stretch.messages[0].position, stretch.messages[-1].position
            span = f"{first}" if first == last else f"{first} to {last}"
            by = f" by summary {stretch.number} of {one.compactions}" if stretch.number else ""
            one.standing.append(f"{span}: {stretch.standing}{by}")

    async def _compare(self, raw: ChatStorage) -> None:
        async with self._shortened(raw, NoSummarizer()) as storage:
            for one in self.played:
                ids = self.user_id, one.id, _AGENT
                if await raw.fetch_chat_since(*ids, 0) != list(one.messages):
                    self.faults.append(f"{one.id}: the stored messages are not those saved")
                if await storage.fetch_chat(*ids) != one.view:
                    self.faults.append(f"{one.id}: the view is another one than before")

    def as_json(self) -> str:
        """Return the result as JSON, in ASCII, so that no content can command a terminal."""
        plain = {
            "store": without_secrets(self.url),
            "user_id": self.user_id,
            "reopened": self.reopened,
            "conversations": [one.as_dict() for one in self.played],
            "messages": self.total(lambda one: len(one.messages)),
            "views_checked": self.total(lambda one: len(one.messages)),
            "exchanges_split": self.splits,
            "faults": self.faults,
        }
        return json_.dumps(plain, indent=2)

    def print(self) -> None:
        """Write the result for people to standard output."""
        out, by_size = console(), sorted(self.played, key=lambda one: -one.tokens)
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
        read = self.total(lambda one: one.tokens_read)
        whole = self.total(lambda one: one.tokens_unshortened)
        share = f"{read / whole:.0%} of it" if whole else "nothing"
        answers = self.total(lambda one: one.answers)
        out.print(f"\nThe model was asked {answers:,} times. It read {read:,} tokens (estimated)")
        out.print(f"instead of {whole:,}, which is {share}.")
        how = "was closed, reopened and read" if self.reopened else "was read again"
        out.print(f"\nThe store {one_line(without_secrets(self.url))} {how}.", soft_wrap=True)
        for line in (*self.splits, *self.faults):
            out.print(Text(f"BROKEN  {one_line(line)}", style="bold red"))
        if not self.broken:
            count = self.total(lambda one: len(one.messages))
            for line in (
                f"OK  All {count:,} messages came back equal.",
                f"OK  None of {count:,} views split a tool exchange.",
                "OK  The views came back equal, and nothing was summarized again.",
            ):
                out.print(Text(line, style="green"))


def unpaired(messages: Iterable[ConversationMessage], watch: CallWatch) -> set[str]:
    """Return a line for each tool call or result among messages whose counterpart is missing."""
    found = {reason for message in messages for reason in watch.look(message)}
    return found | {f"no result follows the call {name!r}" for _, name in watch.unanswered()}


def _row(name: str, rows: Sequence[_Played]) -> list[str]:
    sums = [sum(column) for column in zip(*[one.figures() for one in rows], strict=True)]
    return [name, *[f"{figure:,}" for figure in sums]]
