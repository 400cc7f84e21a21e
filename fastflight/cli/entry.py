"""The command `fastflight` from its first moment: which allocator Arrow has its memory from is chosen here.

Arrow reads that from the environment as it is loaded, so it is set before anything of it is imported.
Each Flight stream is a thread, and mimalloc, Arrow's choice, keeps much of what each had, also when it has ended.
jemalloc keeps less, and next to nothing without the caches that it has for each thread: a thread that has little to do
never empties its own (docs/decisions/0035-a-servers-memory.md).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import MutableMapping

POOL = "ARROW_DEFAULT_MEMORY_POOL"
# Of the jemalloc that is in Arrow's wheels; that of others is configured by another name.
JEMALLOC, NO_CACHES = "JE_ARROW_MALLOC_CONF", "tcache:false"


def choose_pool(environment: MutableMapping[str, str], platform: str) -> None:
    """Have Arrow take jemalloc where its wheels have it. Whoever has set `POOL` or `JEMALLOC` keeps that."""
    if platform == "linux":
        environment.setdefault(POOL, "jemalloc")
        environment.setdefault(JEMALLOC, NO_CACHES)


def main() -> None:
    """Run the command."""
    choose_pool(os.environ, sys.platform)
    importlib.import_module("fastflight.cli.main").app()  # not above: it loads Arrow
