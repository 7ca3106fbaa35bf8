"""Spans, with OpenTelemetry's own SDK."""

import pytest

from agent_memory import ConversationMessage, LLMSummarizer, Usage
from agent_memory.models import Completion
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


async def model(instruction, transcript, **_parameters):
    return Completion("They talked.", Usage(120, 7))


async def test_a_compaction_s_span_says_why_what_it_saved_and_what_it_cost(spans):
    """The trigger, messages and tokens before and after, and the model's tokens."""
    rig = Rig(summarizer=LLMSummarizer(model))
    await rig.save(*dialogue(7))
    await rig.view()
    (record,) = await rig.storage.compaction_history(*IDS)
    found = compaction_in(spans)
    assert found.pop("agent_memory.compaction.tokens_before") == record.tokens_before > 0
    assert found.pop("agent_memory.compaction.tokens_after") == record.tokens_after > 0
    assert found == {
        "gen_ai.conversation.id": "session",
        "gen_ai.agent.id": "agent",
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 7,
        "agent_memory.compaction.trigger": "trigger_at",
        "agent_memory.compaction.outcome": "Compacted",
        "agent_memory.compaction.messages_before": 7,
        "agent_memory.compaction.messages_after": 3,
    }


async def test_a_skipped_compaction_s_span_says_why(spans):
    """And nothing of a cost that is not known."""
    rig = Rig(before_compaction=lambda _request: False)
    await rig.save(*dialogue(7))
    await rig.storage.compact_now(*IDS)
    assert compaction_in(spans) == {
        "gen_ai.conversation.id": "session",
        "gen_ai.agent.id": "agent",
        "agent_memory.compaction.trigger": "manual",
        "agent_memory.compaction.outcome": "CompactionSkipped",
        "agent_memory.compaction.reason": "vetoed",
    }


async def test_a_failed_compaction_s_span_keeps_its_trigger(spans):
    """What failed, and why it was begun."""

    def down(_history, _keep_last):
        raise RuntimeError("down")

    rig = Rig(summarizer=down)
    await rig.save(*dialogue(7))
    await rig.view()
    found = compaction_in(spans)
    assert found["agent_memory.compaction.trigger"] == "trigger_at"
    assert found["error.type"] == "SummarizerError"


def compaction_in(spans):
    """The attributes of the first compaction's span."""
    found = [s for s in spans.get_finished_spans() if s.name == "agent_memory.compact"]
    return dict(found[0].attributes)


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
