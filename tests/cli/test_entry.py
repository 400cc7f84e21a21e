"""A process of the command: which allocator Arrow has there, and how it prints what its output cannot encode."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

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
    pool = pyarrow.default_memory_pool()
    print(pool.backend_name, flush=True)
    {then}
"""


def pool_of(then: str = "", **settings: str) -> tuple[str, str]:
    """Where a process of the command has Arrow's memory from, and what it says on stderr when it does `then`."""
    own = {name: value for name, value in os.environ.items() if name not in (entry.POOL, entry.JEMALLOC)}
    command = [sys.executable, "-c", ASKED.format(then=then)]
    done = subprocess.run(command, env=own | settings, capture_output=True, text=True, timeout=60)
    return done.stdout.splitlines()[-1], done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Arrow's own choice stays")
@pytest.mark.parametrize(("settings", "caches"), [({}, "false"), ({entry.JEMALLOC: "narenas:2"}, "true")])
def test_the_command_has_what_gives_memory_back(settings: dict[str, str], caches: str) -> None:
    pool, said = pool_of("pool.print_stats()", **settings)
    assert (pool, f"opt.tcache: {caches}" in said) == ("jemalloc", True)


def test_whoever_says_which_has_it() -> None:
    assert pool_of(**{entry.POOL: "system"}) == ("system", "")


def test_elsewhere_nothing_is_chosen() -> None:
    environment: dict[str, str] = {}
    entry.choose_pool(environment, "win32")
    assert environment == {}


def test_the_installed_command_begins_here() -> None:
    (command,) = (each for each in entry_points(group="console_scripts") if each.name == "fastflight")
    assert command.load() is entry.main


# Output of a board, a table with the name of a file, and a value as JSON.
PRINTED = {
    "exec": ["exec", "board", "print('caf\u00e9 \u20ac'); print('done')"],
    "ls": ["ls", "board:/"],
    "ls as JSON": ["ls", "board:/", "--json"],
    "head": ["head", "board:/a.csv"],
}


@pytest.mark.parametrize(("command", "encoding"), list(zip(PRINTED, ["ascii", "cp1252"] * 2, strict=True)))
def test_characters_that_the_output_cannot_encode(tmp_path: Path, command: str, encoding: str) -> None:
    (tmp_path / "caf\u00e9 \u20ac \u6f22.txt").write_text("")
    (tmp_path / "a.csv").write_text("a\ncaf\u00e9 \u20ac\n", "utf-8")
    arguments = [*PRINTED[command], "--device", f"sim:?files={tmp_path}&telemetry=0"]
    done = subprocess.run(
        [sys.executable, "-m", "fastflight", *arguments],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "caf\u00e9 \u20ac".encode(encoding, "backslashreplace") in done.stdout
    assert done.stderr == b""
