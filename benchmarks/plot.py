"""The table of saves as a picture."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLORS = {"ours": "#1b7837", "engine": "#888888", "peer": "#762a83"}


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw lone saves and saves at once, on logarithmic scales; say so without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        print("matplotlib is not installed: no plot")
        return
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(14, 5), sharey=True)
    lone = {row["name"]: max(row["lone"].items())[1]["median"] for row in rows if row["lone"]}
    _bars(left, rows, {name: took * 1e3 for name, took in lone.items()})
    left.invert_yaxis()  # the axes share it
    left.set_xlabel("ms a save in the longest chat (less is better)")
    _bars(right, rows, {row["name"]: row["rate"] for row in rows})
    right.set_xlabel("messages a second, many chats at once (more is better)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _bars(axes: Any, rows: Sequence[dict[str, Any]], values: dict[str, float]) -> None:
    names = [row["name"] for row in rows]
    colors = [COLORS[row["kind"]] for row in rows]
    axes.barh(names, [values.get(name, 0.0) for name in names], color=colors)
    axes.set_xscale("log")
