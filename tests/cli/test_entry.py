"""Which allocator Arrow has in a process of the command, and who decides."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from fastflight.cli import entry

# The command runs, and then says from where Arrow's memory comes.
ASKED = """
import runpy, sys
sys.argv = ["fastflight", "--help"]
try:
    runpy.run_module("fastflight", run_name="__main__")
except SystemExit:
    import pyarrow
    print(pyarrow.default_memory_pool().backend_name)
"""


def pool_of(**settings: str) -> str:
    own = {name: value for name, value in os.environ.items() if name != entry.POOL}
    done = subprocess.run([sys.executable, "-c", ASKED], env=own | settings, capture_output=True, text=True, timeout=60)
    assert not done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Arrow's own choice stays")
def test_the_command_has_what_gives_memory_back() -> None:
    assert pool_of() == "jemalloc"


def test_whoever_says_which_has_it() -> None:
    assert pool_of(**{entry.POOL: "system"}) == "system"


def test_elsewhere_nothing_is_chosen() -> None:
    environment: dict[str, str] = {}
    entry.choose_pool(environment, "win32")
    assert environment == {}


def test_the_installed_command_begins_here() -> None:
    (command,) = (each for each in entry_points(group="console_scripts") if each.name == "fastflight")
    assert command.load() is entry.main
