"""``python -m benchmarks NAME [OPTIONS]``."""

from __future__ import annotations

import importlib
import sys

BENCHMARKS = {
    "growth": "what a save, a fetch and a restart cost in a short chat and in a long one",
    "start": "what `import agent_memory` costs",
}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in BENCHMARKS:
        print("usage: python -m benchmarks NAME [--help | OPTIONS]\n")
        for name, what in BENCHMARKS.items():
            print(f"  {name:8} {what}")
        return 2
    module = importlib.import_module(f"benchmarks.{arguments[0]}")
    exit_code: int = module.main(arguments[1:])
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
