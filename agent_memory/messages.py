"""Messages, and the usage that a provider reports for one."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from agent_memory.base_errors import InvalidRequestError
from agent_memory.content import freeze, thaw
from agent_memory.keys import ChatKey, id_field, new_id, optional_id_field
from agent_memory.validation import bool_field, count_field

__all__ = ["ChatKey", "ConversationMessage", "ParticipantRole", "Usage"]

_PREVIEW: Final = 60


class ParticipantRole(enum.StrEnum):
    """Who speaks. The values are the providers' own words."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    DEVELOPER = "developer"
    TOOL = "tool"


SYSTEM_ROLES: Final = frozenset({ParticipantRole.SYSTEM, ParticipantRole.DEVELOPER})
"""The roles that instruct a model: two names of providers for the same."""


@attrs.frozen
class Usage:
    """Tokens that a model's provider reported.

    Args:
        input_tokens: all of the prompt, cached tokens included.
        output_tokens: all of the reply, reasoning included.
        cached_tokens: how many of the input tokens came from the provider's cache.
        reasoning_tokens: how many of the output tokens were reasoning.

    Usages add up with ``+``.

    Raises:
        InvalidRequestError: a figure is not an int, or negative.
    """

    input_tokens: int = attrs.field(default=0, validator=count_field)
    output_tokens: int = attrs.field(default=0, validator=count_field)
    cached_tokens: int = attrs.field(default=0, validator=count_field)
    reasoning_tokens: int = attrs.field(default=0, validator=count_field)

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


ROLES: Final[Mapping[Any, ParticipantRole]] = {role.value: role for role in ParticipantRole}
"""The roles by their values; a role is its own value."""


def _role(value: Any) -> ParticipantRole:
    try:
        return ROLES[value]
    except (KeyError, TypeError):
        known = ", ".join(repr(role.value) for role in ParticipantRole)
        raise InvalidRequestError(f"role must be one of {known}, not {value!r}") from None


def utc_timestamp(value: object) -> datetime:
    """Return an aware datetime in UTC.

    Raises:
        InvalidRequestError: it is not a datetime, or has no time zone.
    """
    if not isinstance(value, datetime):
        raise InvalidRequestError(f"timestamp must be a datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise InvalidRequestError(
            f"timestamp {value.isoformat()} has no time zone; use datetime.now(timezone.utc)"
        )
    try:
        return value if value.tzinfo is UTC else value.astimezone(UTC)
    except OverflowError:
        raise InvalidRequestError(
            f"timestamp {value.isoformat()} lies outside the years 1 to 9999 in UTC"
        ) from None


def _usage(_instance: object, _attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, Usage):
        raise InvalidRequestError(f"usage must be a Usage or None, not {type(value).__name__}")


NOTHING: Final[Mapping[str, Any]] = freeze({})
"""The mapping of those who give none."""


def frozen_mapping(value: object, name: str) -> Mapping[str, Any]:
    """Return a dict frozen.

    Raises:
        InvalidRequestError: it is not a dict, or holds what content may not hold.
    """
    if value is NOTHING:
        return NOTHING
    if not isinstance(value, dict):
        raise InvalidRequestError(f"{name} must be a dict, not {type(value).__name__}")
    frozen: Mapping[str, Any] = freeze(value, name)
    return frozen


def _extra(value: object) -> Mapping[str, Any]:
    return frozen_mapping(value, "extra")


def _metadata(value: object) -> Mapping[str, Any]:
    return frozen_mapping(value, "metadata")


@attrs.frozen(eq=False, repr=False)
class ConversationMessage:
    """One message: an immutable value that stores, views and callers may share.

    Args:
        role: who speaks; a :class:`ParticipantRole` or its value.
        content: in the provider's own format, kept as given: a string, a list of blocks, or None.
            Exactly None, bool, int (at most 4,300 digits), finite float, str, bytes, list, and
            dict with string keys, at most 100 deep. It is frozen;
            ``copy.deepcopy(message.content)`` is editable.
        id: unique within its chat; saving the same id again stores nothing twice. By default
            a new UUIDv7.
        timestamp: an aware datetime, kept in UTC to the microsecond; by default now.
        run_id: the run (one turn of the agent, with its tool rounds) it belongs to, or None.
        pinned: kept verbatim through every compaction, with the tool exchange it belongs to.
        usage: what the provider reported for this reply, or None.
        extra: the provider's fields beside role and content (``tool_calls``,
            ``tool_call_id``, ``name``, ``citations``, …); sent back to the model.
        metadata: the application's own; never interpreted, never sent to a model.

    Two messages are equal when all of these are; ``hash`` is that of the id.

    Attributes:
        position: the place in the chat's log, from 1; set by the store, else None.
        agent_id: whose chat it was stored in; set by the store, else None.

    Raises:
        InvalidRequestError: something is not as said above; the text gives the path to it.
    """

    role: ParticipantRole = attrs.field(converter=_role)
    content: Any = attrs.field(converter=freeze)  # pyright: ignore[reportUnknownVariableType]
    id: str = attrs.field(factory=new_id, validator=id_field, kw_only=True)
    timestamp: datetime = attrs.field(
        factory=lambda: datetime.now(UTC), converter=utc_timestamp, kw_only=True
    )
    run_id: str | None = attrs.field(default=None, validator=optional_id_field, kw_only=True)
    pinned: bool = attrs.field(default=False, validator=bool_field, kw_only=True)
    usage: Usage | None = attrs.field(default=None, validator=_usage, kw_only=True)
    extra: Mapping[str, Any] = attrs.field(default=NOTHING, converter=_extra, kw_only=True)
    metadata: Mapping[str, Any] = attrs.field(default=NOTHING, converter=_metadata, kw_only=True)
    position: int | None = attrs.field(default=None, init=False)
    agent_id: str | None = attrs.field(default=None, init=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConversationMessage):
            return NotImplemented
        return self is other or all(getattr(self, name) == getattr(other, name) for name in _GIVEN)

    def __hash__(self) -> int:
        return hash(self.id)

    def __copy__(self) -> ConversationMessage:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ConversationMessage:
        return self

    def __repr__(self) -> str:
        shown = repr(self.content)
        if len(shown) > _PREVIEW:
            shown = shown[: _PREVIEW - 1] + "…"
        place = "" if self.position is None else f", position={self.position}"
        return f"ConversationMessage({self.role.value!r}, {shown}, id={self.id!r}{place})"

    def same_payload(self, other: ConversationMessage) -> bool:
        """Whether role, content and extra are equal: what idempotency compares."""
        return (
            self.role == other.role and self.content == other.content and self.extra == other.extra
        )

    def placed(self, position: int, agent_id: str) -> ConversationMessage:
        """Return this message with its place in a log; for stores."""
        return stored_message(
            self.role,
            self.content,
            self.id,
            self.timestamp,
            self.run_id,
            self.pinned,
            self.usage,
            self.extra,
            self.metadata,
            position,
            agent_id,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a plain, editable dict of everything, `timestamp` as ISO 8601 text."""
        plain = {name: thaw(getattr(self, name)) for name in _ALL}
        plain["role"] = self.role.value
        plain["timestamp"] = self.timestamp.isoformat()
        plain["usage"] = None if self.usage is None else attrs.asdict(self.usage)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> ConversationMessage:
        """Make a message from what :meth:`to_dict` gave; its place in a log is not taken over.

        Raises:
            InvalidRequestError: a field is unknown, missing or invalid.
        """
        fields = {name: value for name, value in plain.items() if name not in _PLACE}
        unknown = fields.keys() - set(_GIVEN)
        if unknown or not {"role", "content"} <= fields.keys():
            raise InvalidRequestError(
                f"a message has the fields {', '.join(_GIVEN)}; got {', '.join(fields)}"
            )
        try:
            if isinstance(fields.get("timestamp"), str):
                fields["timestamp"] = datetime.fromisoformat(fields["timestamp"])
            if isinstance(fields.get("usage"), dict):
                fields["usage"] = Usage(**fields["usage"])
        except (ValueError, TypeError) as error:
            raise InvalidRequestError(f"not a message: {error}") from error
        return cls(**fields)


_ALL: Final = tuple(field.name for field in attrs.fields(ConversationMessage))
_PLACE: Final = ("position", "agent_id")
_GIVEN: Final = tuple(name for name in _ALL if name not in _PLACE)
# The slots' own setters: every message that is read or saved passes through them, and one call
# after the other takes half as long as a loop.
_put_role = vars(ConversationMessage)["role"].__set__
_put_content = vars(ConversationMessage)["content"].__set__
_put_id = vars(ConversationMessage)["id"].__set__
_put_timestamp = vars(ConversationMessage)["timestamp"].__set__
_put_run_id = vars(ConversationMessage)["run_id"].__set__
_put_pinned = vars(ConversationMessage)["pinned"].__set__
_put_usage = vars(ConversationMessage)["usage"].__set__
_put_extra = vars(ConversationMessage)["extra"].__set__
_put_metadata = vars(ConversationMessage)["metadata"].__set__
_put_position = vars(ConversationMessage)["position"].__set__
_put_agent_id = vars(ConversationMessage)["agent_id"].__set__


def stored_message(  # noqa: PLR0917  (names would cost as much as the rest)
    role: ParticipantRole,
    content: Any,
    id: str,  # noqa: A002  (the field's name)
    timestamp: datetime,
    run_id: str | None,
    pinned: bool,  # noqa: FBT001
    usage: Usage | None,
    extra: Mapping[str, Any],
    metadata: Mapping[str, Any],
    position: int | None,
    agent_id: str | None,
) -> ConversationMessage:
    """Make a message from fields that are known to be valid and frozen, without checking them."""
    message = object.__new__(ConversationMessage)
    _put_role(message, role)
    _put_content(message, content)
    _put_id(message, id)
    _put_timestamp(message, timestamp)
    _put_run_id(message, run_id)
    _put_pinned(message, pinned)
    _put_usage(message, usage)
    _put_extra(message, extra)
    _put_metadata(message, metadata)
    _put_position(message, position)
    _put_agent_id(message, agent_id)
    return message


def bare_message(
    fields: Mapping[str, Any], position: int | None, agent_id: str | None
) -> ConversationMessage:
    """Do the same from fields by name, all but the two that a store sets."""
    return stored_message(**fields, position=position, agent_id=agent_id)
