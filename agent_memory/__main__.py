"""``python -m agent_memory``: the command line without its script."""

from __future__ import annotations

from agent_memory.cli import main

if __name__ == "__main__":
    main()
