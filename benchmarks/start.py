"""What ``import agent_memory`` costs: whole processes, several imports in turn.

The measure is the first line, what any asyncio program with attrs and logging imports anyway.
``import agent_memory`` is to take at most 1.25 times as long; the other lines show what the
names cost when they are first used.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

MEASURE = "import attrs, asyncio, json, logging"
STARTS = (
    MEASURE,
    "import agent_memory",
    "from agent_memory import SummarizingChatStorage, InMemoryChatStorage",
    "from agent_memory import FileChatStorage",
    "from agent_memory import SqlChatStorage",
)
TARGET = 1.25
FOREIGN = (
    "import sys, agent_memory; own = {'attr', 'attrs', 'agent_memory'}; "
    "names = {name.partition('.')[0] for name in sys.modules}; "
    "print(*sorted(names - own - sys.stdlib_module_names - {'__main__'}))"
)


def process(code: str) -> float:
    """Return how long a whole process takes, in seconds."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def foreign_modules() -> list[str]:
    """Return what ``import agent_memory`` loads beside attrs and the standard library."""
    bare = [sys.executable, "-c", FOREIGN.replace(", agent_memory", "")]
    full = [sys.executable, "-c", FOREIGN]
    before, after = (
        set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
        for command in (bare, full)
    )
    return sorted(after - before)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks start", description=__doc__)
    parser.add_argument("--processes", type=int, default=15, help="of each kind (default 15)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args(arguments)
    times: dict[str, list[float]] = {code: [] for code in STARTS}
    for _ in range(options.processes):
        for code in STARTS:
            times[code].append(process(code))
    medians = {code: statistics.median(measured) for code, measured in times.items()}
    for code, median in medians.items():
        print(f"{median * 1e3:8.1f} ms {median / medians[MEASURE]:6.2f} x   {code}")
    foreign = foreign_modules()
    ratio = medians["import agent_memory"] / medians[MEASURE]
    print(f"\nimport agent_memory: {ratio:.2f} x (target {TARGET} x)")
    print("loaded beside attrs and the standard library:", *foreign or ["nothing"])
    if ratio > TARGET:
        print("look for what it loads too early: python -X importtime -c 'import agent_memory'")
    return int(options.check and (ratio > TARGET or bool(foreign)))
