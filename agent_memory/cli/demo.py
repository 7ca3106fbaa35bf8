"""``agent-memory demo``: the main job, done on a real conversation, and proved."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from agent_memory.cli.app import FAILED
from agent_memory.cli.conversations import Conversation, demo_conversation, read_conversations
from agent_memory.cli.demo_report import Report, as_json, print_report
from agent_memory.cli.drawing import progress_bar
from agent_memory.cli.replay import Played, Player
from agent_memory.events import Event
from agent_memory.keys import new_id
from agent_memory.messages import ConversationMessage
from agent_memory.storage.base import ChatStorage
from agent_memory.storage.urls import open_storage, without_secrets
from agent_memory.summarizers.base import Summarizer
from agent_memory.summarizers.extractive import ExtractiveSummarizer
from agent_memory.summarizing import SummarizingChatStorage
from agent_memory.summarizing.options import SummarizingOptions


def demo(
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
    trigger = SummarizingOptions(trigger_at=trigger_at, keep_last=keep_last)
    conversations = [demo_conversation()] if input_file is None else read_conversations(input_file)
    with ExitStack() as stack:
        if store is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="agent-memory-"))
            store = f"sqlite:///{Path(directory).as_posix()}/chats.db"
        report = asyncio.run(_run(store, conversations, trigger, show_progress=not json))
    print(as_json(report)) if json else print_report(report)  # noqa: T201  (a command line)
    if report.broken:
        raise typer.Exit(FAILED)


async def _run(
    url: str,
    conversations: Sequence[Conversation],
    trigger: SummarizingOptions,
    *,
    show_progress: bool,
) -> Report:
    # A user of its own, so that the demo can be run again on the same store.
    player = Player(f"demo-{new_id()}")
    async with open_storage(url) as raw:
        played = await _play(raw, player, conversations, trigger, show_progress=show_progress)
        can_reopen = raw.scope != "process"
        if not can_reopen:  # closing it would be the end of what it holds
            await _prove(raw, player, played, trigger)
    if can_reopen:
        async with open_storage(url) as raw:
            await _prove(raw, player, played, trigger)
    return Report(
        store=without_secrets(url),
        user_id=player.user_id,
        reopened=can_reopen,
        played=tuple(played),
    )


class _NoSummarizer:
    """Declines, so that the views of a store opened anew are those that it has kept."""

    def summarize(self, messages: list[ConversationMessage], context_tokens: int) -> None:
        """Say "not yet", always."""


def _short_view(
    raw: ChatStorage,
    summarizer: Summarizer,
    trigger: SummarizingOptions,
    on_event: Callable[[Event], object] | None = None,
) -> SummarizingChatStorage:
    return SummarizingChatStorage(
        raw,
        summarizer,
        trigger.trigger_at,
        trigger.keep_last,
        on_event=on_event,
        close_inner=False,
    )


async def _play(
    raw: ChatStorage,
    player: Player,
    conversations: Sequence[Conversation],
    trigger: SummarizingOptions,
    *,
    show_progress: bool,
) -> list[Played]:
    total = sum(len(conversation.messages) for conversation in conversations)
    with progress_bar(shown=show_progress) as bar:
        task = bar.add_task("storing", total=total)
        async with _short_view(raw, ExtractiveSummarizer(), trigger, player.on_event) as storage:
            return [
                await player.play(storage, conversation, lambda: bar.advance(task))
                for conversation in conversations
            ]


async def _prove(
    raw: ChatStorage, player: Player, played: Sequence[Played], trigger: SummarizingOptions
) -> None:
    async with _short_view(raw, _NoSummarizer(), trigger) as storage:
        for one in played:
            await player.prove(storage, one)
