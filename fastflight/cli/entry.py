"""The command `fastflight` from its first moment: which allocator Arrow has its memory from is chosen here.

Arrow reads that from the environment as it is loaded, so it is set before anything of it is imported; workers inherit
it. Each Flight stream is a thread, and mimalloc, Arrow's choice, keeps much of what each had, also when it has ended.
jemalloc keeps less (docs/decisions/0035-a-servers-memory.md).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import MutableMapping

POOL = "ARROW_DEFAULT_MEMORY_POOL"


def choose_pool(environment: MutableMapping[str, str], platform: str) -> None:
    """Have Arrow take jemalloc where its wheels have it. Whoever has set `POOL` keeps that."""
    if platform == "linux":
        environment.setdefault(POOL, "jemalloc")


def main() -> None:
    """Run the command."""
    choose_pool(os.environ, sys.platform)
    importlib.import_module("fastflight.cli.main").app()  # not above: it loads Arrow
