"""A strict judge of requests: the providers' own SDKs say what a message may hold.

``faults(messages, provider, system)`` names what the SDK's request types do not allow, down to a
single unknown key. For OpenAI and Anthropic these are the TypedDicts of `openai` and
`anthropic`, checked by pydantic; for Bedrock it is botocore's model of the Converse operation.
Type checkers use the same types, but at run time nothing does: the SDKs send any dict as it is.

The types are rebuilt before use, since pydantic would let too much pass as they stand:

- ``Iterable`` and ``SequenceNotStr`` become ``list`` (pydantic checks an Iterable only when
  somebody consumes it);
- keys that a TypedDict does not name are forbidden;
- the SDKs' response models, open files and paths, which the unions list for convenience, are
  left out;
- unions are told apart by ``type`` or ``role``, so that a fault names the place inside the block
  instead of one error for each member of the union.

botocore checks types, required members, unknown keys and least lengths; enumerations, greatest
lengths, patterns and text where bytes belong pass it, so these are checked here.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import re
import types
import typing
from typing import Annotated, Any

import attrs
import botocore.loaders
import botocore.model
import botocore.validate
import pydantic
import typing_extensions
from anthropic.types import MessageParam, TextBlockParam
from anthropic.types.beta import BetaMessageParam, BetaTextBlockParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses.response_input_param import ResponseInputItemParam

PROVIDERS = ("openai", "openai_responses", "anthropic", "bedrock")
_SEQUENCES = ("Iterable", "Sequence", "SequenceNotStr", "list", "List")
_NO_TYPE = "(none)"
_UNKNOWN_KEY = "unknown key"


@attrs.frozen
class Fault:
    """Something in a request that the SDK's types do not allow.

    Args:
        index: of the message; -1 for the system parameter.
        path: the place in the message, without the names of union members.
        text: what is wrong.
    """

    index: int
    path: tuple[str | int, ...]
    text: str

    @property
    def kind(self) -> str:
        """The fault without its place in lists, so that equal faults can be counted."""
        place = ".".join("[]" if isinstance(step, int) else step for step in self.path)
        return f"{place}: {self.text}"


def faults(messages: list[Any], provider: str, system: list[Any] | None = None) -> list[Fault]:
    """Name what a provider's SDK does not allow in a request; empty when it is right."""
    if provider == "bedrock":
        return _bedrock_faults(messages, system or [])
    found = [
        fault for index, each in enumerate(messages) for fault in _judged(each, provider, index)
    ]
    for block in system or []:
        if provider != "anthropic":
            found.append(Fault(-1, (), "this provider takes no system parameter"))
        else:
            found += _least([TextBlockParam, BetaTextBlockParam], block, -1)
    return found


def _judged(message: Any, provider: str, index: int) -> list[Fault]:
    match provider:
        case "openai":
            return _least([ChatCompletionMessageParam], message, index)
        case "openai_responses":
            return _least([ResponseInputItemParam], message, index)
        case "anthropic":
            # Blocks of beta features have types of their own, and their own message.
            return _least([MessageParam, BetaMessageParam], message, index)
        case _:
            raise ValueError(f"unknown provider {provider!r}")


def _least(kinds: list[Any], value: Any, index: int) -> list[Fault]:
    return min((_pydantic_faults(kind, value, index) for kind in kinds), key=len)


# ---------------------------------------------------------------- pydantic over the TypedDicts


def _pydantic_faults(kind: Any, value: Any, index: int) -> list[Fault]:
    try:
        adapter(kind).validate_python(value, strict=True)
    except pydantic.ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        return [_fault(each, index) for each in _meant(errors, 0)]
    return []


def _meant(errors: list[Any], depth: int) -> list[Any]:
    """Of the members of a union keep the errors of the one that was most likely meant."""
    here = [error for error in errors if len(error["loc"]) <= depth]
    by_step: dict[Any, list[Any]] = {}
    for error in errors:
        if len(error["loc"]) > depth:
            by_step.setdefault(error["loc"][depth], []).append(error)
    members = {step: inside for step, inside in by_step.items() if _is_member(step)}
    if len(members) > 1:
        # A member of another Python type has one error, at its own place: it was not meant.
        def unlikeness(step: Any) -> tuple[bool, int]:
            return any(len(each["loc"]) == depth + 1 for each in members[step]), len(members[step])

        likeliest = min(members, key=unlikeness)
        by_step = {k: v for k, v in by_step.items() if k == likeliest or k not in members}
    return [*here, *(each for inside in by_step.values() for each in _meant(inside, depth + 1))]


def _fault(error: Any, index: int) -> Fault:
    text = error["msg"].split(" using ")[0]
    if error["type"] == "extra_forbidden":
        text = _UNKNOWN_KEY
    if error["type"].startswith("union_tag"):
        text = f"unknown type {error.get('ctx', {}).get('tag', _NO_TYPE).strip('<>')}"
    steps = tuple(step for step in error["loc"] if not _is_member(step))
    return Fault(index, steps, text)


def _is_member(step: str | int) -> bool:
    """Whether a step of pydantic's path is the name of a union's member, not a key."""
    return isinstance(step, str) and (step.startswith(("<", "list[", "dict[")) or step in _MEMBERS)


_MEMBERS = {"str", "int", "float", "bool", "bytes", "none", "nullable", "datetime"}
"""Names that pydantic gives members; those of the rebuilt TypedDicts are added."""


@functools.cache
def adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    """Make the strict checker of a request type."""
    return pydantic.TypeAdapter(strict(kind))


@functools.cache
def strict(kind: Any) -> Any:
    """Rebuild a request type so that pydantic checks all of it."""
    if typing_extensions.is_typeddict(kind):
        return _strict_dict(kind)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is None or origin is typing.Literal:
        return kind
    if origin is Annotated:
        return strict(args[0])
    if origin in (typing_extensions.Required, typing_extensions.NotRequired):
        return origin[strict(args[0])]
    if origin in (typing.Union, types.UnionType):
        return _strict_union(args)
    if getattr(origin, "__name__", "") in _SEQUENCES:
        return list[strict(args[0])]
    return origin[tuple(strict(arg) for arg in args)]


def _strict_dict(kind: Any) -> Any:
    made = typing_extensions.TypedDict(
        kind.__name__, {key: strict(hint) for key, hint in hints_of(kind).items()}, total=False
    )
    made.__pydantic_config__ = pydantic.ConfigDict(extra="forbid")
    made.__module__ = __name__
    _MEMBERS.add(kind.__name__)
    return made


def hints_of(kind: Any) -> dict[str, Any]:
    """Return the types of a TypedDict's keys, those that must be there marked Required.

    ``__required_keys__`` does not know: the SDKs postpone their annotations.
    """
    hints = typing_extensions.get_type_hints(kind, include_extras=True)
    marks = (typing_extensions.Required, typing_extensions.NotRequired)
    return {
        key: typing_extensions.Required[hint]
        if kind.__total__ and typing.get_origin(hint) not in marks
        else hint
        for key, hint in hints.items()
    }


def members_of(kind: Any) -> list[Any]:
    """Return what a union of request types lists; nested unions are opened, models left out."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return members_of(args[0])
    if origin in (typing.Union, types.UnionType):
        return list(dict.fromkeys(member for arg in args for member in members_of(arg)))
    return [] if _is_no_data(kind) else [kind]


def _is_no_data(kind: Any) -> bool:
    """Whether this is an SDK's response model, an open file or a path."""
    kind = typing.get_origin(kind) or kind
    if not inspect.isclass(kind) or typing_extensions.is_typeddict(kind):
        return False
    return issubclass(kind, pydantic.BaseModel) or kind.__name__ in ("IO", "PathLike")


def _strict_union(args: tuple[Any, ...]) -> Any:
    members = list(dict.fromkeys(member for arg in args for member in members_of(arg)))
    dicts = [member for member in members if typing_extensions.is_typeddict(member)]
    others = [strict(member) for member in members if member not in dicts]
    key = next(
        (key for key in ("type", "role") if all(tags_of(each, key) for each in dicts)), None
    )
    if len(dicts) < 2 or key is None:
        return _union(*others, *map(strict, dicts))
    by_tag: dict[str, list[Any]] = {}
    for member in dicts:
        for tag in tags_of(member, key):
            by_tag.setdefault(tag, []).append(strict(member))
    tagged = [Annotated[_union(*same), pydantic.Tag(f"<{tag}>")] for tag, same in by_tag.items()]
    told_apart = Annotated[_union(*tagged), pydantic.Discriminator(_tag_reader(key))]
    return _union(*others, told_apart)


def _union(*members: Any) -> Any:
    return typing.Union[members]  # noqa: UP007  members are computed


def tags_of(member: Any, key: str = "type") -> list[str]:
    """Return the values that a TypedDict allows for ``type``; `(none)` when it may be absent."""
    hint = hints_of(member).get(key)
    if hint is None:
        return []
    found = list(_literals(hint))
    required = typing.get_origin(hint) is typing_extensions.Required
    return [*found, *([] if required or not found else [_NO_TYPE])]


def _literals(hint: Any) -> typing.Iterator[str]:
    if typing.get_origin(hint) is typing.Literal:
        yield from typing.get_args(hint)
        return
    for arg in typing.get_args(hint):
        yield from _literals(arg)


def _tag_reader(key: str) -> typing.Callable[[Any], str | None]:
    def tag(value: Any) -> str | None:
        if not isinstance(value, collections.abc.Mapping):
            return None
        found = value.get(key)
        return f"<{_NO_TYPE if found is None else found}>"

    return tag


# ---------------------------------------------------------------- botocore's model of Converse


@functools.cache
def converse_input() -> Any:
    """Return botocore's model of what Converse takes."""
    model = botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2")
    return botocore.model.ServiceModel(model).operation_model("Converse").input_shape


_MISSING = re.compile(r"Missing required parameter in (\S+): (.*)")
_EXTRA = re.compile(r"Unknown parameter in (\S+): \"(.*?)\", must be one of: .*", re.DOTALL)
_STEP = re.compile(r"\[(\d+)\]|([A-Za-z]+)")


def _bedrock_faults(messages: list[Any], system: list[Any]) -> list[Fault]:
    request = {"modelId": "m", "messages": messages, **({"system": system} if system else {})}
    shape = converse_input()
    report = botocore.validate.ParamValidator().validate(request, shape)
    found = [_botocore_fault(line) for line in report.generate_report().splitlines() if line]
    for name in ("messages", "system"):
        place = _Place(name, ())
        beyond = _beyond_botocore(request.get(name, []), shape.members[name], place)
        found += [each.fault() for each in beyond]
    return found


def _botocore_fault(line: str) -> Fault:
    if match := _MISSING.search(line):
        return _at(match[1], f"missing {match[2]}")
    if match := _EXTRA.search(line):
        place = _at(match[1], _UNKNOWN_KEY)
        return attrs.evolve(place, path=(*place.path, match[2]))
    match = re.search(r"((?:messages|system)(?:\[\d+\]|\.\w+)*)", line)
    text = re.sub(r"value: .*?, type", "type", line)
    return _at(match[1] if match else "", text.replace(match[1] if match else "\0", "it"))


def _at(place: str, text: str) -> Fault:
    steps = [int(number) if number else name for number, name in _STEP.findall(place)]
    index = steps[1] if steps[:1] == ["messages"] and len(steps) > 1 else -1
    return Fault(index, tuple(steps[2:]), text)


@attrs.frozen
class _Place:
    name: str
    steps: tuple[str | int, ...]
    text: str = ""

    def down(self, step: str | int) -> _Place:
        return attrs.evolve(self, steps=(*self.steps, step))

    def says(self, text: str) -> _Place:
        return attrs.evolve(self, text=text)

    def fault(self) -> Fault:
        index = self.steps[0] if self.name == "messages" and self.steps else -1
        return Fault(index, self.steps[1:], self.text)


def _beyond_botocore(value: Any, shape: Any, place: _Place) -> collections.abc.Iterator[_Place]:
    """What the service refuses by its own model, but botocore's validator passes."""
    match shape.type_name, value:
        case "structure", dict() if not getattr(shape, "is_document_type", False):
            for name in value.keys() & shape.members.keys():
                yield from _beyond_botocore(value[name], shape.members[name], place.down(name))
        case "list", list():
            yield from _too_long(value, shape, place)
            for index, item in enumerate(value):
                yield from _beyond_botocore(item, shape.member, place.down(index))
        case "string", str():
            yield from _too_long(value, shape, place)
            yield from _unlike(value, shape, place)
        case "blob", str():
            yield place.says("text where bytes belong")


def _unlike(value: str, shape: Any, place: _Place) -> collections.abc.Iterator[_Place]:
    if shape.enum and value not in shape.enum:
        yield place.says(f"{value!r} is none of the allowed values")
    pattern = shape.metadata.get("pattern")
    if pattern and not re.fullmatch(pattern, value):
        yield place.says("it does not match the pattern")


def _too_long(value: Any, shape: Any, place: _Place) -> collections.abc.Iterator[_Place]:
    most = shape.metadata.get("max")
    if most is not None and len(value) > most:
        yield place.says(f"longer than {most}")
