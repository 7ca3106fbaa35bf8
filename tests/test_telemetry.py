"""Spans, with OpenTelemetry's own SDK."""

import pytest

from agent_memory import ConversationMessage
from rig import IDS, Rig, dialogue

trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402
    InMemorySpanExporter,
)


@pytest.fixture
def spans(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


async def test_save_fetch_and_compaction_have_spans_with_the_conventions_names(spans):
    """What an operator looks for: which conversation, which agent, what happened."""
    rig = Rig()
    await rig.save(*dialogue(7))
    await rig.view()
    finished = {span.name: span.attributes for span in spans.get_finished_spans()}
    assert set(finished) == {"agent_memory.save", "agent_memory.fetch", "agent_memory.compact"}
    for attributes in finished.values():
        assert attributes["gen_ai.conversation.id"] == "session"
        assert attributes["gen_ai.agent.id"] == "agent"
    assert finished["agent_memory.compact"]["agent_memory.compaction.outcome"] == "Compacted"


async def test_no_content_gets_into_a_span_not_even_through_an_error(spans):
    """Traces go to places where chats must not."""

    def leaky(history, keep_last):
        raise RuntimeError(f"cannot summarize {history[0].content}")

    rig = Rig(summarizer=leaky)
    await rig.save(ConversationMessage("user", "my secret"), *dialogue(6))
    await rig.view()
    assert "my secret" not in str([span.to_json() for span in spans.get_finished_spans()])
    errors = [span.attributes.get("error.type") for span in spans.get_finished_spans()]
    assert "SummarizerError" in errors


async def test_without_a_provider_nothing_is_made():
    """Who does not trace pays nothing."""
    rig = Rig()
    await rig.save(*dialogue(7))
    assert len(await rig.view()) == 3
    assert IDS == ("user", "session", "agent")
