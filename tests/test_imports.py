"""The package's shape: imports go one way, names resolve, and importing it is light."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import agent_memory
from agent_memory.errors import MissingDependencyError

ROOT = Path(agent_memory.__file__).parent

# Lowest first: a module imports only from floors above it in this list, or its own. A name is
# a module or a package with all that is in it; the longest that fits counts.
FLOORS = [
    # values: no input or output
    {"_lazy", "_version", "base_errors"},
    {"validation"},
    {"content", "keys"},
    {"errors", "messages"},
    {"log", "records", "events", "telemetry"},
    # functions over messages, and the formats of providers
    {"providers", "models", "tokens", "turns"} | {"attribution"},
    {"fitting", "summarizers"},
    # stores
    {"storage._engine"},
    {"storage.base", "storage.hooks", "storage.codec", "storage.merging", "storage.requests"}
    | {"storage.retracting", "storage.summaries"},
    {"storage.wrapper"},
    {"storage.in_memory", "storage.file", "storage.sql", "storage.dynamodb"}
    | {"storage.transforming", "storage.sync", "storage.urls"},
    {"storage"},
    # what is built on stores
    {"explaining", "summarizing"},
    {"conversation"},
    {"audit"},
    {"adapters", "testing", "cli", "__main__"},
]
LEAVES = FLOORS[-1]
RANKS = {name: rank for rank, names in enumerate(FLOORS) for name in names}

# What a backend may know of the package: nothing of views, summarizers or providers.
BACKENDS = ("in_memory", "file", "sql", "dynamodb")
NOT_FOR_BACKENDS = {
    *("providers", "tokens", "turns", "summarizing"),
    *("models", "summarizers", "fitting"),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imported(path: Path) -> set[str]:
    """The modules of the package that a module imports, anywhere, for type checkers too.

    Only the lazy front of a package, which lists its public names for type checkers, is left
    out: these imports are not made before somebody asks for a name.
    """
    text = path.read_text(encoding="utf-8")
    is_front = path.name == "__init__.py" and "lazy_names" in text
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if is_front and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else node.module)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(text))
    return {name for name in found if name.split(".")[0] == "agent_memory"}


@functools.cache  # not in every process that collects this file
def imports() -> dict[str, set[str]]:
    return {name: imported(path) for name, path in MODULES.items()}


def layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def floor(module: str) -> str | None:
    """The entry of FLOORS that a module belongs to; None for one without a place."""
    parts = module.split(".")[1:]
    names = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    found = next((name for name in names if name in RANKS), None)
    # The front of storage stands above its modules, each of which has a place of its own.
    return None if found == "storage" and len(parts) > 1 else found


def rank(module: str) -> int:
    return RANKS[floor(module) or "__main__"]


def test_every_module_has_its_floor():
    """A new module is given its place before it is used."""
    unplaced = {module for module in MODULES if module != "agent_memory" and not floor(module)}
    assert unplaced == set(), "give it a place in FLOORS above"
    unused = RANKS.keys() - {floor(module) for module in MODULES}
    assert unused == set(), "there is no such module any more"


def test_no_import_goes_up():
    """What lies deeper never knows what is built on it."""
    wrong = [
        f"{module} imports {other}"
        for module, others in imports().items()
        for other in others
        if module != "agent_memory" and other != "agent_memory"
        if rank(other) > rank(module)
    ]
    assert wrong == []


def test_nobody_imports_a_leaf():
    """Adapters, the command and the test suite are used by users alone."""
    wrong = [
        f"{module} imports {other}"
        for module, others in imports().items()
        for other in others
        if layer(other) in LEAVES and layer(module) not in {layer(other), "__main__"}
    ]
    assert wrong == []


def test_nothing_inside_imports_the_package_itself():
    """The top level's lazy names are for users: inside they would hide the layers."""
    assert [module for module, others in imports().items() if "agent_memory" in others] == []


def test_no_modules_import_each_other():
    """The imports of modules form no circle, not within a floor and not for type checkers."""
    # A package's own __init__ runs before its modules anyway.
    graph = {
        module: {other for other in others if not module.startswith(other + ".")} - {module}
        for module, others in imports().items()
    }
    assert list(TopologicalSorter(graph).static_order())


def test_backends_know_nothing_of_views_and_summarizers():
    """A store keeps messages; what they are for is not its business."""
    wrong = [
        f"{module} imports {other}"
        for module, others in imports().items()
        if module.split(".")[1:2] == ["storage"]
        and module.split(".")[-1] != "storage"
        and module.split(".")[2].split("_")[0] in {name.split("_")[0] for name in BACKENDS}
        for other in others
        if layer(other) in NOT_FOR_BACKENDS
    ]
    assert wrong == []


def test_one_module_asks_whether_a_loop_runs():
    """Waiting for another loop's work is one mechanism, and it is in the engine."""
    words = {"is_running", "is_closed"}
    asking = [
        module
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in words
    ]
    assert set(asking) == {"agent_memory.storage._engine.event_loops"}


LAZY = [
    name
    for name, path in MODULES.items()
    if path.name == "__init__.py" and "lazy_names" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("package", LAZY)
def test_every_public_name_resolves(package):
    """`__all__` is sorted, complete, and each name in it can be imported."""
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    for name in module.__all__:
        assert name in dir(module)
        try:
            assert getattr(module, name) is not None
        except MissingDependencyError:  # an adapter's: looked at where its framework is
            assert package == "agent_memory.adapters"


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_see_the_same_names(package):
    """What is imported for type checkers is what they are told of, and what there is."""
    tree = ast.parse(MODULES[package].read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    listed = {
        constant.value
        for node in (*tree.body, *block.body)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for constant in node.value.elts
    }
    assert seen == listed - {"__version__"}
    there = set(importlib.import_module(package).__all__)
    assert there == listed if package != "agent_memory.adapters" else there <= listed


@pytest.mark.parametrize("package", LAZY)
def test_what_is_not_installed_is_not_listed(package):
    """`import *`, `dir` and `help` work without any extra; asking by name says what to install."""
    program = (
        "import importlib, importlib.util, pydoc, sys\n"
        "real = importlib.util.find_spec\n"
        "absent = ['sqlalchemy', 'openai', 'pytest', 'langchain_core', 'pydantic_ai', 'agents',"
        " 'agent_squad']\n"
        "importlib.util.find_spec = lambda n, *a: None if n in absent else real(n, *a)\n"
        "sys.modules.update(dict.fromkeys(absent))\n"
        "package = importlib.import_module(sys.argv[1])\n"
        "exec(f'from {sys.argv[1]} import *')\n"
        "assert all(getattr(package, name, None) is not None for name in dir(package)"
        " if not name.startswith('__'))\n"
        "assert pydoc.render_doc(package)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, package], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", LAZY)
def test_an_unknown_name_is_an_attribute_error(package):
    """As with any module."""
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = importlib.import_module(package).no_such_name


def loaded_after(statement: str) -> set[str]:
    """The top-level modules outside the standard library that a statement loads."""
    code = (
        "import json, sys\n"
        "before = set(sys.modules)\n"
        f"{statement}\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(json.dumps(sorted(new - set(sys.stdlib_module_names))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_next_to_nothing():
    """The bare import loads none of its parts, only what makes them lazy."""
    assert loaded_after("import agent_memory") == {"agent_memory"}


def test_the_core_needs_attrs_alone():
    """Values, memory store, wrappers and the summarizers without a model need no extra."""
    core = (
        "from agent_memory import ChatKey, ConversationMessage, ChatStorage, SummaryRecord\n"
        "from agent_memory import InMemoryChatStorage, SummarizingChatStorage\n"
        "from agent_memory import TransformingChatStorage, WrapperChatStorage\n"
        "import agent_memory.events, agent_memory.providers, agent_memory.tokens\n"
        "import agent_memory.turns\n"
        "import agent_memory.summarizers.sliding_window, agent_memory.summarizers.extractive\n"
        "import agent_memory.testing.doubles, agent_memory.testing.scripted"
    )
    assert loaded_after(core) == {"agent_memory", "attr", "attrs"}


def test_the_package_is_typed():
    """Type checkers look for the marker."""
    assert (ROOT / "py.typed").exists()
