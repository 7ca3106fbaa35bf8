"""Deeply immutable JSON-like content, and the check of what content may be.

A frozen list *is* a ``list`` and a frozen dict *is* a ``dict``, so that json, orjson, boto3,
pydantic and the providers' clients take them as they stand; only editing them fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, NoReturn, SupportsIndex, TypeAlias, cast

from agent_memory.base_errors import InvalidRequestError

Content: TypeAlias = "bool | int | float | str | bytes | list[Content] | dict[str, Content] | None"
"""What a message may hold; see :func:`freeze`."""

MAX_DEPTH: Final = 100
"""How deep lists and dicts may be nested. json's own recursion stays far from its limit."""

_SCALARS: Final = frozenset({str, bool, bytes, type(None)})
_TOO_LARGE: Final = 10**4300
"""The interpreter turns no longer integers into text, and so json, which everything goes
through on its way to a model, refuses them (docs.python.org, "Integer string conversion length
limitation")."""
_ADVICE: Final = (
    "messages are immutable; edit a copy: copy.deepcopy(message.content) or message.to_dict()"
)


def _refuse(_self: object, *_args: object, **_kwargs: object) -> NoReturn:
    raise TypeError(_ADVICE)


class FrozenList(list[Any]):
    """A list that cannot be edited. ``copy.copy`` and ``copy.deepcopy`` give plain lists."""

    __slots__ = ()

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse  # pyright: ignore[reportAssignmentType]
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [thaw(item) for item in self]

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return _frozen_list, (list(self),)


class FrozenDict(dict[str, Any]):
    """A dict that cannot be edited. ``copy.copy`` and ``copy.deepcopy`` give plain dicts."""

    __slots__ = ()

    clear = pop = popitem = setdefault = update = _refuse  # pyright: ignore[reportAssignmentType]
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: thaw(value) for key, value in self.items()}

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return _frozen_dict, (dict(self),)


_CONTAINERS: Final = frozenset({list, dict, FrozenList, FrozenDict})


def _frozen_list(items: list[Any]) -> FrozenList:
    return FrozenList(items)


def _frozen_dict(items: dict[str, Any]) -> FrozenDict:
    return FrozenDict(items)


def freeze(value: Any, name: str = "content") -> Any:
    """Return a deeply immutable copy of `value`, equal to it by type and key order.

    Args:
        value: exactly None, bool, int of at most 4,300 digits, finite float, str, bytes, list,
            or dict with string keys, nested at most :data:`MAX_DEPTH` deep.
        name: what error messages call the value.

    Raises:
        InvalidRequestError: it holds anything else; the text gives the path to it.
    """
    try:
        return _freeze(value, 0)
    except _OutsideDomainError:
        # The fast walk keeps no path; a second walk finds what the first one refused.
        raise InvalidRequestError(_explain(value, (name,), 0) or f"{name} is invalid") from None


class _OutsideDomainError(Exception):
    pass


def _freeze(value: Any, depth: int) -> Any:
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in _SCALARS:
        return value
    if kind is list:
        if depth < MAX_DEPTH:
            return FrozenList([_freeze(item, depth + 1) for item in value])
    elif kind is dict:
        if depth < MAX_DEPTH and all(type(key) is str for key in value):
            return FrozenDict({key: _freeze(item, depth + 1) for key, item in value.items()})
    elif (
        (kind is FrozenDict or kind is FrozenList)
        and (
            # Already checked where it came from, but it may lie deeper here.
            depth == 0 or depth + _depth(value) <= MAX_DEPTH
        )
    ) or _is_number(value):
        return value
    raise _OutsideDomainError


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return -_TOO_LARGE < value < _TOO_LARGE
    return type(value) is float and math.isfinite(value)


def _depth(value: Any) -> int:
    children: Iterable[Any] = (
        cast("dict[Any, Any]", value).values() if isinstance(value, dict) else value
    )
    nested = (_depth(child) for child in children if isinstance(child, dict | list))
    return 1 + max(nested, default=0)


def _explain(value: Any, path: tuple[str | int, ...], depth: int) -> str | None:
    """Say what is wrong with the first thing that :func:`_freeze` would refuse."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is float and not math.isfinite(value):
        return f"{_show(path)} is {value!r}; floats must be finite"
    if kind is int and not -_TOO_LARGE < value < _TOO_LARGE:
        return f"{_show(path)} has more than 4,300 digits, which no JSON here can hold"
    if kind in _SCALARS or kind is float or kind is int:
        return None
    if kind not in _CONTAINERS:
        return (
            f"{_show(path)} is of type {kind.__qualname__}; content must be exactly None, bool, "
            "int, float, str, bytes, list or dict (convert tuples, Decimals, subclasses and SDK "
            "objects first, e.g. with obj.model_dump())"
        )
    if depth >= MAX_DEPTH:
        return f"{_show(path[:6])}… is nested more than {MAX_DEPTH} deep, or contains itself"
    steps: Iterable[tuple[Any, Any]] = (
        cast("dict[Any, Any]", value).items()
        if isinstance(value, dict)
        else enumerate(cast("list[Any]", value))
    )
    for step, item in steps:
        if isinstance(value, dict) and type(step) is not str:
            return f"{_show(path)} has the key {step!r} ({type(step).__name__}); keys must be str"
        found = _explain(item, (*path, step), depth + 1)
        if found is not None:
            return found
    return None


def _show(path: tuple[str | int, ...]) -> str:
    return str(path[0]) + "".join(f"[{step!r}]" for step in path[1:])


def thaw(value: Any) -> Any:
    """Return a plain, editable deep copy of frozen content."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [thaw(item) for item in cast("list[Any]", value)]
    return value


def frozen_of(value: Any) -> Any:
    """Freeze content that is known to be in the domain (decoded from a store); no checks."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    # Most of what is nested is text; a call for each would take longer than the rest.
    if kind is dict:
        return FrozenDict(
            {
                key: item if type(item) is str else frozen_of(item)  # pyright: ignore[reportUnknownArgumentType]
                for key, item in value.items()
            }
        )
    if kind is list:
        return FrozenList([item if type(item) is str else frozen_of(item) for item in value])
    return value
