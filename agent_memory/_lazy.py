"""Names that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

_VERSION: Final = {"__version__"}


def lazy_names(
    package: str,
    names: Mapping[str, str],
    namespace: dict[str, Any],
    needs: Mapping[str, str] | None = None,
    moved: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__``, which makes its ``__all__`` too, and its ``__dir__``.

    ``__all__`` lists the names whose optional dependency is installed, so that ``import *``,
    ``help()`` and ``dir()`` work with any set of extras. A name that it leaves out can still be
    asked for: that raises ``MissingDependencyError``, which says what to install.

    Args:
        package: the package's ``__name__``.
        names: public name -> the module that defines it.
        namespace: the package's ``globals()``, where names are kept once they are loaded.
        needs: public name -> the top-level module of its optional dependency.
        moved: name that was here in an earlier version -> its home; not in ``__all__``.
    """
    moved = moved or {}

    def load(name: str) -> Any:
        if name == "__all__":
            value: Any = _installed([*names, *_VERSION & namespace.keys()], needs or {})
        elif name in names:
            value = getattr(importlib.import_module(names[name]), name)
        elif name in moved:
            home = moved[name]
            warnings.warn(
                f"{name} has moved: write `from {home} import {name}`; {package}.{name} will go",
                DeprecationWarning,
                stacklevel=2,
            )
            # Not kept in the namespace: each place that imports it the old way is warned.
            return getattr(importlib.import_module(home), name)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        namespace[name] = value
        return value

    def listing() -> list[str]:
        known = namespace["__all__"] if "__all__" in namespace else load("__all__")
        return sorted({*namespace, *known})

    return load, listing


def _installed(names: Iterable[str], needs: Mapping[str, str]) -> list[str]:
    from importlib.util import find_spec  # noqa: PLC0415  (slow to import, and rarely asked for)

    missing = {module for module in needs.values() if find_spec(module) is None}
    return sorted(name for name in names if needs.get(name) not in missing)
