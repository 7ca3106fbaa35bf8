"""The report in a real browser: no errors, no script runs, it works by keyboard and on a phone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from browser import open_browser
from executable import done, with_store

from agent_memory import ConversationMessage, SummarizingChatStorage
from agent_memory.summarizers import SlidingWindowSummarizer
from chats_to_move import fill
from engines import missing
from servers import EngineMissingError, chromium_binaries

ATTACKS = [
    "<script>document.title = 'owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<svg onload=\"document.title='owned'\"></svg>",
    "</div></article></style><script>document.title='owned'</script>",
    '"><a href="javascript:document.title=\'owned\'">click</a>',
    "{{ 7 * 7 }} {% for x in y %} ${document.title='owned'}",
    "<iframe srcdoc=\"<script>parent.document.title='owned'</script>\"></iframe>",
    '<meta http-equiv=refresh content="0;url=data:text/html,owned"><base href=//evil.example/>',
]


@pytest.fixture(scope="module")
def browser():
    try:
        chromium_binaries()
    except EngineMissingError as error:
        missing(error)
    with open_browser() as browser:
        yield browser


async def _attack(storage):
    await fill(storage)
    attack = "\n".join(ATTACKS)
    calls = [
        {"toolUse": {"toolUseId": attack[:60], "name": attack[:60], "input": {attack: attack}}}
    ]
    async with SummarizingChatStorage(
        storage, SlidingWindowSummarizer(2), 2, 1, close_inner=False
    ) as short:
        for number in range(10):
            content = attack if number % 2 else [{"text": attack}, *calls]
            role = ("assistant", "user")[number % 2]
            message = ConversationMessage(role, content, id=f"a{number}", run_id=attack[:99])
            await short.save_chat_message("ada", "hike", ATTACKS[0], message)
            await short.fetch_chat("ada", "hike", ATTACKS[0])


@pytest.fixture(scope="module")
def page(tmp_path_factory, browser):
    """The report of a session whose every field attacks, opened."""
    directory = tmp_path_factory.mktemp("report")
    url, path = f"sqlite:///{directory}/chats.db", directory / "report.html"
    with_store(url, _attack)
    done("report", "ada", "hike", "-o", str(path), "--store", url)
    browser.resize(1300, 1600)
    browser.open(path)
    if keep := os.environ.get("AGENT_MEMORY_SCREENSHOTS"):
        browser.screenshot(Path(keep) / "report.png")
    return browser


def test_no_errors(page):
    """The console stays empty: nothing is refused, nothing fails, nothing is fetched."""
    assert page.complaints() == []
    assert page.run("return performance.getEntriesByType('resource').length") == 0


def test_no_script_runs(page):
    """What attacks is shown as text, and nothing of it has become markup."""
    assert page.run("return document.title") == "hike: session report"
    wild = "script, img, iframe, object, base, form, [onload], [onerror], a[href^=javascript]"
    assert page.run("return document.querySelectorAll(arguments[0]).length", wild) == 0
    text = page.run("return document.body.textContent")
    assert all(line in text for line in ATTACKS)


def test_even_markup_that_got_through_would_not_run(page, tmp_path):
    """The page's policy stops scripts and styles that are not its own."""
    html = page.run("return document.documentElement.outerHTML")
    attack = ATTACKS[0] + ATTACKS[1] + '<p id=styled style="color: red">x</p>'
    path = tmp_path / "broken.html"
    path.write_text(html.replace("<main", attack + "<main"), encoding="utf-8")
    url = page.run("return location.href")
    page.open(path)
    assert page.run("return document.title") == "hike: session report"
    assert "Content Security Policy" in "".join(page.complaints())
    page.open(Path(url.removeprefix("file://")))
    page.complaints()


def test_what_it_shows(page):
    """A time line, a chart with summaries marked for each chat, raw and view side by side."""
    counted = "return document.querySelectorAll(arguments[0]).length"
    assert page.run(counted, "section.chat") == 3
    assert page.run(counted, "svg[role=img][aria-label]") >= 3
    assert page.run(counted, "line.mark") > 1
    assert page.run(counted, "details.summary details.covered li a") > 10
    sides = page.run(
        "return [...document.querySelectorAll('.sides')[0].children].map("
        "child => child.getBoundingClientRect().left)"
    )
    assert sides[0] < sides[1]


def test_a_link_opens_what_a_summary_covers(page):
    """A covered message is folded, and a link to it opens the fold it is in."""
    target = page.run("return document.querySelector('details.covered li a').hash")
    folded = "return document.querySelector(arguments[0]).closest('details.stretch').open"
    assert page.run(folded, target) is False
    page.run("location.hash = arguments[0]", target)
    assert page.run(folded, target) is True


def test_a_dot_leads_to_its_message(page):
    """A click on the time line shows that message, also one that is folded."""
    target = page.run(
        "const dots = [...document.querySelectorAll('svg a')];"
        "const folded = a => document.querySelector(a.getAttribute('href')).closest('details');"
        "const dot = dots.find(a => folded(a) && !folded(a).open);"
        "dot.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}));"
        "return dot.getAttribute('href')"
    )
    assert page.run("return location.hash") == target
    assert page.run("return document.querySelector(':target').closest('details').open") is True
    assert page.run(
        "return [...document.querySelectorAll('svg a')].every("
        "a => document.querySelector(a.getAttribute('href')).matches('.message'))"
    )


def test_the_keyboard(page):
    """The first stop skips to the chats; folds open with Enter, and focus can be seen."""
    page.run("history.replaceState(null, '', location.pathname); window.scrollTo(0, 0)")
    page.run("document.activeElement.blur(); document.body.tabIndex = -1; document.body.focus()")
    page.press("tab")
    active = "return document.activeElement[arguments[0]]"
    assert page.run(active, "className") == "skip"
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.run("document.querySelector('details:not([open]) > summary').focus()")
    opened = "return document.activeElement.parentElement.open"
    assert page.run(opened) is False
    page.press("enter")
    assert page.run(opened) is True


def test_a_phone(page):
    """At 500 pixels nothing sticks out to the side, and the columns follow one another."""
    page.resize(500, 900)
    try:
        width = "return [document.documentElement.scrollWidth, innerWidth]"
        scrolled, inner = page.run(width)
        assert scrolled <= inner
        assert page.run(
            "const [a, b] = document.querySelector('.sides').children;"
            "return a.getBoundingClientRect().bottom <= b.getBoundingClientRect().top"
        )
    finally:
        page.resize(1300, 1600)


def test_print(page):
    """It prints, and folded messages are printed too."""
    assert page.pdf().startswith(b"%PDF")
    style = page.run(
        "return [...document.styleSheets[0].cssRules].map(rule => rule.cssText).join()"
    )
    assert "details-content" in style.partition("@media print")[2]
