"""Who said what, where several agents share a conversation: pure functions of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from agent_memory.messages import ConversationMessage, ParticipantRole
from agent_memory.providers import parts, text_message
from agent_memory.providers.text import with_prefix
from agent_memory.turns import group

__all__ = ["attribute_senders", "attribute_to_agents", "filter_messages"]


def attribute_to_agents(messages: Iterable[ConversationMessage]) -> list[ConversationMessage]:
    """Begin what each agent said with ``[agent_id] ``, as the classifiers of orchestrators want.

    The first text of each assistant's message gets the prefix; every block is kept. A message
    that says nothing, or has no `agent_id`, stays as it is.

    Args:
        messages: as ``fetch_all_chats`` gives them: with their `agent_id`.
    """
    return [
        with_prefix(message, f"[{message.agent_id}] ")
        if message.role == ParticipantRole.ASSISTANT and message.agent_id is not None
        else message
        for message in messages
    ]


def attribute_senders(
    messages: Sequence[ConversationMessage],
    agent_id: str,
    names: Mapping[str, str] | None = None,
) -> list[ConversationMessage]:
    """Return a conversation of several agents as one of them should see it.

    What the others said becomes the user's, ``(Agent) name said: …``: a model takes whatever the
    assistant said for its own words. Their tool calls, results and reasoning are left out, since
    their tools are not this agent's, and their system messages; pictures and files are named.
    Users' messages and the agent's own stay as they are.

    Args:
        messages: as ``fetch_all_chats`` gives them: with their `agent_id`.
        agent_id: the agent that will see them.
        names: what the agents are called; by default by their ids.
    """
    seen = (_as_seen(message, agent_id, names or {}) for message in messages)
    return [message for message in seen if message is not None]


def _as_seen(
    message: ConversationMessage, agent_id: str, names: Mapping[str, str]
) -> ConversationMessage | None:
    other = message.agent_id
    if other is None or other == agent_id or _asks(message):
        return message
    text = _spoken(message) if message.role == ParticipantRole.ASSISTANT else ""
    return _said(message, names.get(other, other), text) if text else None


def _asks(message: ConversationMessage) -> bool:
    """Whether a user speaks; results of tools are nobody's words, whatever their role."""
    return message.role == ParticipantRole.USER and not any(
        part.kind == "result" for part in parts(message)
    )


def _spoken(message: ConversationMessage) -> str:
    said = [
        f"[{part.name or 'attachment'}]" if part.kind == "media" else part.text
        for part in parts(message)
        if part.kind in ("text", "media")
    ]
    return "\n".join(text for text in said if text.strip())


def _said(message: ConversationMessage, name: str, text: str) -> ConversationMessage:
    attributed = text_message(
        ParticipantRole.USER,
        f"(Agent) {name} said: {text}",
        like=message,
        id=message.id,
        timestamp=message.timestamp,
        run_id=message.run_id,
        pinned=message.pinned,
        metadata=message.metadata,
    )
    if message.position is None or message.agent_id is None:
        return attributed
    return attributed.placed(message.position, message.agent_id)


def filter_messages(
    messages: Sequence[ConversationMessage], keep: Callable[[ConversationMessage], bool]
) -> list[ConversationMessage]:
    """Return the messages for which `keep` is true, no tool exchange torn.

    A tool call, its results and what lies between them go together: if `keep` refuses one of
    them, all are left out.

    Args:
        messages: a history.
        keep: decides on each message, such as ``lambda message: message.agent_id == "billing"``.
    """
    wanted = [keep(message) for message in messages]
    return [
        messages[index]
        for part in group(messages)
        if all(wanted[part.start : part.stop])
        for index in range(part.start, part.stop)
    ]
