"""The entry point of the command `fastflight`: sets variables that libraries read when they load, then loads the rest.

Arrow reads its memory allocator from the environment, so it must be chosen before Arrow is imported.

Each Flight stream has a thread. mimalloc, Arrow's default, holds much of the memory that a thread has freed, even after
the thread has ended. jemalloc holds less, and almost nothing without its caches per thread: a thread that rarely
allocates never empties its cache (docs/decisions/0035-a-servers-memory.md).
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import MutableMapping
from typing import TextIO

POOL = "ARROW_DEFAULT_MEMORY_POOL"
# Configures the jemalloc in Arrow's wheels. Other builds of jemalloc read other variables.
JEMALLOC, NO_CACHES = "JE_ARROW_MALLOC_CONF", "tcache:false"
# Before its first model, pydantic reads the metadata of all installed packages to find plugins.
PLUGINS, NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS", "__all__"


def choose_pool(environment: MutableMapping[str, str], platform: str) -> None:
    """Have Arrow use jemalloc on Linux, where its wheels have it. Variables that are already set stay as they are."""
    if platform == "linux":
        environment.setdefault(POOL, "jemalloc")
        environment.setdefault(JEMALLOC, NO_CACHES)


def escape_foreign_characters(*streams: TextIO | None) -> None:
    """Have streams write characters that their encoding does not have as escapes, such as `\\u20ac`.

    Without UTF-8, as in a pipe on Windows, a command would otherwise fail after it has done its work on the board.
    """
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """Run the command."""
    choose_pool(os.environ, sys.platform)
    os.environ.setdefault(PLUGINS, NO_PLUGINS)
    escape_foreign_characters(sys.stdout, sys.stderr)
    importlib.import_module("fastflight.cli.main").app()  # not at the top: it loads Arrow
