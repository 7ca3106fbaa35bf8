"""``python -m benchmarks``: all measures of speed in one run, each promise met or missed.

It prints the table of saves with the peers and the bare engines beside this library's stores,
then what the wrapper adds, and writes it as JSON and as a plot.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks import dynamo, imports, peers, postgres, pure, saves, wrapping
from benchmarks.plot import plot
from benchmarks.targets import Target, print_targets
from benchmarks.timing import fsync_seconds

PARTS: dict[str, Callable[[Path, bool], list[Target]]] = {
    "wrapping": wrapping.run,
    "pure": pure.run,
    "imports": imports.run,
    "postgres": postgres.run,
    "dynamodb": dynamo.run,
}
"""What is measured beside saves: each takes an empty directory and whether to be tiny."""

TINY = saves.Sizes(kept=(4,), samples=2, chats=64, rounds=1, seconds=0.0)


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        directory = Path(place)
        synced = fsync_seconds(place)
        print(f"4 KB written and synced take {synced * 1e6:,.0f} µs here.\n")
        targets: list[Target] = []
        report: dict[str, Any] = {"fsync_seconds": synced}
        if "saves" in options.parts:
            targets += _saves(directory, options.tiny, report)
            if options.plot:
                plot(report["saves"], options.plot)
        for name, run in PARTS.items():
            if name in options.parts:
                part = directory / name
                part.mkdir()
                targets += run(part, options.tiny)
    print_targets(targets)
    if options.json:
        report["targets"] = [{**attrs.asdict(one), "met": one.is_met} for one in targets]
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def _saves(directory: Path, tiny: bool, report: dict[str, Any]) -> list[Target]:
    sizes = TINY if tiny else saves.Sizes()
    found, absent = peers.installed()
    rows = asyncio.run(saves.measure(saves.contenders(found), directory, sizes))
    saves.print_table(rows, sizes)
    print()
    report["cpu_ratios"] = saves.cpu_ratios(rows)
    for name, ratio in report["cpu_ratios"].items():
        print(f"{name:60}{ratio:>8.2f}")
    for name in absent:
        print(f"not installed, left out: {name}")
    report["saves"] = [attrs.asdict(row) | {"rate": row.rate} for row in rows.values()]
    return saves.targets(rows)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    every = ["saves", *PARTS]
    parser.add_argument("--parts", nargs="+", choices=every, default=every, metavar="PART")
    parser.add_argument("--directory", type=Path, help="where the embedded stores lie")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw them; needs matplotlib")
    parser.add_argument("--tiny", action="store_true", help="only see whether it all runs")
    return parser.parse_args(arguments)
