"""Content that cannot be edited, and the check of what content may be."""

from __future__ import annotations

import copy
import json
import pickle
from collections import OrderedDict
from decimal import Decimal

import orjson
import pydantic
import pytest
from boto3.dynamodb.types import TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.content import FrozenDict, FrozenList, freeze, frozen_of, thaw
from agent_memory.errors import InvalidRequestError

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
)
contents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=())), inner)
    ),
)


def plain(value):
    """Whether nothing in it is frozen."""
    if isinstance(value, dict):
        return type(value) is dict and all(plain(item) for item in value.values())
    if isinstance(value, list):
        return type(value) is list and all(plain(item) for item in value)
    return True


@given(contents)
def test_frozen_content_is_equal_and_thaws_to_plain(value):
    """Freezing changes neither values nor order, thawing gives back editable copies."""
    frozen = freeze(value)
    assert frozen == value
    assert repr(thaw(frozen)) == repr(value)
    assert plain(thaw(frozen))
    assert plain(copy.deepcopy(frozen)) or not isinstance(value, list | dict)
    assert frozen_of(value) == frozen


@given(contents)
def test_frozen_content_pickles(value):
    """It crosses process borders as it is, and stays frozen."""
    loaded = pickle.loads(pickle.dumps(freeze(value)))
    assert loaded == value
    assert type(loaded) is type(freeze(value))


@pytest.mark.parametrize(
    "edit",
    [
        lambda frozen: frozen["list"].append(1),
        lambda frozen: frozen["list"].extend([1]),
        lambda frozen: frozen["list"].insert(0, 1),
        lambda frozen: frozen["list"].pop(),
        lambda frozen: frozen["list"].remove(1),
        lambda frozen: frozen["list"].clear(),
        lambda frozen: frozen["list"].sort(),
        lambda frozen: frozen["list"].reverse(),
        lambda frozen: frozen["list"].__setitem__(0, 1),
        lambda frozen: frozen["list"].__delitem__(0),
        lambda frozen: frozen["list"].__iadd__([1]),
        lambda frozen: frozen["list"].__imul__(2),
        lambda frozen: frozen.__setitem__("x", 1),
        lambda frozen: frozen.__delitem__("list"),
        lambda frozen: frozen.update(x=1),
        lambda frozen: frozen.setdefault("x", 1),
        lambda frozen: frozen.pop("list"),
        lambda frozen: frozen.popitem(),
        lambda frozen: frozen.clear(),
        lambda frozen: frozen.__ior__({"x": 1}),
    ],
)
def test_c07_every_edit_is_refused_with_advice(edit):
    """The error says how to get an editable copy."""
    frozen = freeze({"list": [1, {"a": 2}]})
    with pytest.raises(TypeError, match=r"deepcopy\(message\.content\).*to_dict\(\)"):
        edit(frozen)
    assert frozen == {"list": [1, {"a": 2}]}


def test_nothing_of_list_and_dict_was_forgotten():
    """Every method that edits a list or dict is one that is refused."""
    reading = {
        *("copy", "count", "index", "get", "items", "keys", "values", "fromkeys"),
        *(name for name in dir(object) if name.startswith("__")),
        *("__add__", "__mul__", "__rmul__", "__or__", "__ror__", "__contains__", "__getitem__"),
        *("__iter__", "__len__", "__reversed__", "__class_getitem__", "__hash__"),
    }
    for kind in (FrozenList, FrozenDict):
        base = kind.__mro__[1]
        assert {
            name for name in dir(base) if getattr(kind, name) is getattr(base, name, None)
        } <= (reading), kind


def test_c07_the_original_is_copied():
    """Editing what was frozen does not reach the frozen copy."""
    original = {"a": [1]}
    frozen = freeze(original)
    original["a"].append(2)
    assert frozen == {"a": [1]}


def test_everybody_takes_frozen_content_as_it_stands():
    """json, orjson, boto3 and pydantic see plain lists and dicts."""
    value = {"a": [1, "x", None, {"b": [True]}], "é": 2.5}
    frozen = freeze(value)
    assert json.loads(json.dumps(frozen)) == value
    assert orjson.loads(orjson.dumps(frozen)) == value
    assert TypeSerializer().serialize(frozen["a"]) == TypeSerializer().serialize(value["a"])

    class Model(pydantic.BaseModel):
        content: dict[str, object]

    assert Model(content=frozen).model_dump() == {"content": value}
    assert [*frozen["a"], 3] == [*value["a"], 3]
    assert frozen | {"z": 1} == {**value, "z": 1}


def test_copies_are_editable():
    """copy.copy and copy.deepcopy give plain containers."""
    frozen = freeze([{"a": [1]}])
    deep = copy.deepcopy(frozen)
    deep[0]["a"].append(2)
    shallow = copy.copy(frozen)
    shallow.append(3)
    assert (deep, shallow, frozen) == ([{"a": [1, 2]}], [{"a": [1]}, 3], [{"a": [1]}])


class Text(str):
    __slots__ = ()


cycle: list[object] = []
cycle.append(cycle)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([{"a": float("nan")}], r"content\[0\]\['a'\].*nan"),
        ([float("inf")], r"content\[0\].*inf"),
        ({"x": Decimal(1)}, r"content\['x'\].*Decimal"),
        ([1, (2, 3)], r"content\[1\].*tuple"),
        ({"x": {1: "a"}}, r"content\['x'\] has the key 1"),
        ({"x": {None: "a"}}, r"key None"),
        ([{"a": {"b": {1, 2}}}], r"content\[0\]\['a'\]\['b'\].*set"),
        ([bytearray(b"x")], "bytearray"),
        ([OrderedDict(a=1)], "OrderedDict"),
        ([Text("x")], "Text"),
        ({Text("x"): 1}, "Text"),
        (cycle, "more than 100 deep, or contains itself"),
        (object(), "^content is of type object"),
    ],
)
def test_c02_what_is_no_content_is_refused_with_its_path(value, path):
    """The path leads to what is wrong."""
    with pytest.raises(InvalidRequestError, match=path):
        freeze(value)


def nested(levels, inner="x"):
    for _ in range(levels):
        inner = [inner]
    return inner


def test_c02_a_hundred_levels_are_the_limit():
    """100 deep is fine, 101 is not, also when a part of it was frozen before."""
    assert freeze(nested(100)) == nested(100)
    with pytest.raises(InvalidRequestError):
        freeze(nested(101))
    part = freeze(nested(60))
    assert freeze(nested(40, part)) == nested(100)
    with pytest.raises(InvalidRequestError):
        freeze(nested(41, part))
