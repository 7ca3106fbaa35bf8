"""``python -m benchmarks [NAME] [OPTIONS]``; without a name, the whole table and all targets."""

from __future__ import annotations

import importlib
import sys

BENCHMARKS = {
    "table": "everything at once: saves beside the peers and the engines, and all targets",
    "growth": "what a save, a fetch and a restart cost in a short chat and in a long one",
    "moving": "what exporting, importing and copying a long chat cost, beside raw aiosqlite",
    "start": "what `import agent_memory` costs",
    "validity": "whether views of random histories are valid, beside agent-squad's wrapper",
}


def main(arguments: list[str]) -> int:
    name, options = "table", arguments
    if arguments and not arguments[0].startswith("--"):
        name, *options = arguments
    if name not in BENCHMARKS:
        print("usage: python -m benchmarks [NAME] [--help | OPTIONS]\n")
        for known, what in BENCHMARKS.items():
            print(f"  {known:8} {what}")
        return 2
    module = importlib.import_module(f"benchmarks.{name}")
    exit_code: int = module.main(options)
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
