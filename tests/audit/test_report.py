"""What a report and a Markdown export tell, and that no content becomes markup in them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from io import BytesIO

import pytest
from markdown_it import MarkdownIt

from agent_memory import ConversationMessage, InMemoryChatStorage, SummarizingChatStorage
from agent_memory.audit.exporting import export
from agent_memory.audit.report import page as page_module
from agent_memory.audit.report import render, session_report
from agent_memory.audit.report.charts import context_chart, time_line
from agent_memory.audit.report.collecting import ModelRequest
from agent_memory.audit.selection import Scope
from agent_memory.cli.demo import demo_conversation
from agent_memory.errors import MissingDependencyError
from agent_memory.summarizers import ExtractiveSummarizer, SlidingWindowSummarizer
from agent_memory.tokens import HeuristicTokenCounter
from chats_to_move import HOSTILE, IDS, call, fill, result, said, user

COUNT = HeuristicTokenCounter().count


@pytest.mark.parametrize("summarizer", [SlidingWindowSummarizer(6), ExtractiveSummarizer()])
@pytest.mark.parametrize("trigger", [(4, 2), (10, 2), (6, 1)])
async def test_the_context_at_each_turn_is_what_the_model_was_given(summarizer, trigger):
    """The chart's figures, worked out afterwards, are those of the views as they were."""
    given = []
    async with InMemoryChatStorage() as storage:
        async with SummarizingChatStorage(
            storage, summarizer, *trigger, close_inner=False
        ) as short:
            (messages,) = demo_conversation().values()
            for message in messages:
                if message.role.value == "assistant":
                    given.append(sum(map(COUNT, await short.fetch_chat(*IDS))))
                await short.save_chat_message(*IDS, message)
                await short.fetch_chat(*IDS)
        report = await session_report(storage, *IDS[:2])
    requests = report.chats[0].requests
    assert [request.seen for request in requests] == given
    assert sum(request.summaries for request in requests) > 1
    sizes = [request.unshortened for request in requests]
    assert sizes == sorted(sizes)


async def test_a_session_across_its_agents():
    """Every message has its dot on its agent's lane, in the order of the session."""
    async with InMemoryChatStorage() as storage:
        await fill(storage)
        report = await session_report(storage, "ada", "hike")
        line = time_line(report)
        assert [lane.name for lane in line.lanes] == ["guide", "weather"]
        assert sum(len(lane.dots) for lane in line.lanes) == len(report.order) == 37
        html = render(report)
    assert html.count('class="chat"') == 2
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", html)


async def test_one_transcript_across_agents_and_dots_that_lead_to_it():
    """Every message is there once, in the order of the session, and its dot is a link to it."""
    start = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
    async with InMemoryChatStorage() as storage:
        async with SummarizingChatStorage(
            storage, SlidingWindowSummarizer(4), 4, 2, close_inner=False
        ) as short:
            for number in range(60):
                agent = ("guide", "weather")[number // 2 % 2]
                moment = start + timedelta(seconds=7 * number)
                message = ConversationMessage("user", f"line {number}", timestamp=moment)
                await short.save_chat_message("ada", "hike", agent, message)
                await short.fetch_chat("ada", "hike", agent)
        report = await session_report(storage, "ada", "hike")
    html = render(report)
    main, _, views = html.partition('<section class="views"')
    shown = re.findall(r'id="(m\d-\d+)"', main.partition('id="transcript"')[2])
    index = {"guide": 0, "weather": 1}
    assert shown == [f"m{index[m.agent_id]}-{m.position}" for m in report.order]
    assert len(shown) == 60
    assert sorted(re.findall(r'<a href="#(m\d-\d+)" tabindex="-1"><circle', html)) == sorted(shown)
    assert "08:06:53</text>" in html
    folds = re.findall(r'<details class="stretch"><summary>(.*?)</summary>', html)
    assert 4 < len(folds) < 20
    assert all(fold.count("guide") <= 1 and fold.count("weather") <= 1 for fold in folds)
    assert re.search(
        r"guide #1 to #\d+: \d+ messages, \d+ tokens, seen through summary 1; weather #1 ",
        folds[0],
    )
    assert views.count('<details class="view"') == 2
    assert 'class="agent"' not in views


async def test_a_report_of_three_thousand_messages_is_small_enough_to_send():
    """Under 5 MB, each message in it."""
    start = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
    async with InMemoryChatStorage() as storage:
        for agent in ("a", "b"):
            talk = [
                ConversationMessage(
                    ("user", "assistant")[n % 2], "word " * 40, timestamp=start + timedelta(0, n)
                )
                for n in range(1_500)
            ]
            await storage.save_chat_messages("ada", "hike", agent, talk)
        html = render(await session_report(storage, "ada", "hike"))
    assert len(re.findall(r'<article class="message \w+" id="', html)) == 3_000
    assert len(html.encode()) < 5_000_000


async def test_long_chats_and_long_messages_are_cut_and_say_so(monkeypatch):
    """A report stays of a size that a browser opens: the newest messages, the beginnings."""
    monkeypatch.setattr(page_module, "MOST_MESSAGES", 20)
    async with InMemoryChatStorage() as storage:
        await storage.save_chat_messages(*IDS, [*said(50), user("y" * 50_000)])
        html = render(await session_report(storage, *IDS[:2]))
    assert "31 older messages from #1 on are stored and not shown here" in html
    assert "30,000 more characters are stored" in html
    assert 'id="m0-32"' in html
    assert 'id="m0-31"' not in html
    assert "#m0-32" in html
    assert "#m0-31" not in html.replace("#m0-31-", "")


async def test_a_turn_is_a_question_with_all_that_follows():
    """The model is asked once for each tool call; for people that is one turn."""
    log = [said(1)[0], call("a"), result("a"), call("b"), result("b"), said(1, start=2)[0]]
    log += [user("one thing"), user("and another"), said(1, start=4)[0]]
    async with InMemoryChatStorage() as storage:
        await storage.save_chat_messages(*IDS, log)
        report = await session_report(storage, *IDS[:2])
    (chat,) = report.chats
    assert [request.turn for request in chat.requests] == [1, 1, 1, 2]
    assert chat.turns == 2
    assert "9 messages in 2 turns" in render(report)


def test_a_chart_s_axis_and_size():
    """Rows have round figures, and a long chat does not make a large drawing."""
    requests = [
        ModelRequest(n, n // 2, n * 3, n * 50, None, int(n % 500 == 0)) for n in range(1, 5_001)
    ]
    chart = context_chart(requests)
    assert [tick.label for tick in chart.rows] == ["0", "80,000", "160,000", "240,000", "320,000"]
    assert len(chart.seen.split()) <= 700
    assert len(chart.marks) == 10
    assert context_chart(requests[:1]) is None


async def test_without_jinja2(monkeypatch):
    """Where jinja2 is missing, the error names the extra."""
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    async with InMemoryChatStorage() as storage:
        await fill(storage)
        report = await session_report(storage, "ada", "hike")
    with pytest.raises(MissingDependencyError, match=r"agent-memory-storage\[cli\]"):
        render(report)


@pytest.mark.parametrize(
    "text",
    [HOSTILE, "```\n</code></pre><script>alert(1)</script>\n````", "# x\n<b>bold</b>", "~~~\n<i>"],
)
async def test_markdown_holds_content_as_text(text):
    """Rendered, nothing of a chat has become markup, and all of it is there."""
    name = "<b>*x*</b> [a](javascript:b) `c`"
    call = [{"toolUse": {"toolUseId": "t", "name": name, "input": {text: text}}}]
    async with InMemoryChatStorage() as storage:
        made = [user(text), ConversationMessage("assistant", call)]
        await storage.save_chat_messages(name, name, name, made)
        out = BytesIO()
        await export(storage, Scope(), out, "markdown")
    written = out.getvalue().decode()
    html = MarkdownIt("commonmark").render(written)
    tags = set(re.findall(r"<(/?\w+)", html))
    assert tags <= {"h1", "/h1", "h2", "/h2", "p", "/p", "pre", "/pre", "code", "/code"}
    assert html.count("<h2>") == 2
    assert "\x1b" not in written
