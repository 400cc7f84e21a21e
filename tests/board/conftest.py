"""One suite of tests over every kind of board: `tests.support.targets.TARGETS`, or those given with `--device`.

A test that takes `board` runs on each target that has what its marker `needs(...)` names. `ABILITIES` says what these
names mean. A target that is not installed is skipped by name, and fails with `CI` set.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fastflight.app.compose import open_server
from fastflight.app.settings import ServeSettings
from fastflight.cli.main import app
from fastflight.client import FastFlightClient
from fastflight.device import Inventory, Session
from tests.conftest import running_target
from tests.support.targets import TARGETS, Target
from tests.support.terminal import converse

# What a target may lack: see `Target.lacks`.
ABILITIES = {
    "folders": "os.mkdir",
    "rename": "os.rename",
    "digests": "hashlib.sha256, or binascii.crc32",
    "mount": "a mounted folder of the host: stdin.buffer, os.ilistdir, os.mount",
    "raw paste": "code in raw paste mode",
    "interrupts": "Ctrl-C stops a program",
    "main.py": "runs main.py when it starts, and it may be replaced",
    "timers": "machine.Timer",
    "hard reset": "machine.reset",
    "full disk": "its storage may be filled",
    "large files": "files of more than 8 kB",
    "agent": "the heap for the agent",
}
# A board on a desk keeps its program and its free storage.
DESK = frozenset({"main.py", "full disk"})


@dataclass
class Board:
    """A started target. Tests keep to `folder`: the files of a board on a desk are somebody's."""

    url: str
    lacks: frozenset[str]
    folder: str
    stack: ExitStack = field(repr=False)
    _location: str = ""

    def path(self, name: str) -> str:
        return f"{self.folder}{name}"

    def session(self, *, interrupt: bool = False) -> Session:
        """Exclusive use of the board, without a server, until the test ends."""
        inventory = self.stack.enter_context(Inventory({"board": self.url}))
        return self.stack.enter_context(inventory.device("board").lease("a test", interrupt=interrupt))

    @property
    def location(self) -> str:
        """The address of a server with the device `board`. It holds the board's line until the test ends."""
        if not self._location:
            server = self.stack.enter_context(open_server(ServeSettings("grpc://127.0.0.1:0", {"board": self.url})))
            self._location = server.location
        return self._location

    def client(self) -> FastFlightClient:
        return self.stack.enter_context(FastFlightClient(self.location))

    def run(self, *arguments: str, input: str | bytes | None = None) -> Result:
        """Run a command of `fastflight` on the board's server: `board.run("ls", "/")`."""
        environment = {"FASTFLIGHT_SERVER": self.location, "COLUMNS": "120"}
        result = CliRunner().invoke(app, arguments, env=environment, input=input)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def type(self, *arguments: str, answers: list[tuple[str, str]], cwd: Path | None = None) -> tuple[int, str]:
        """Run a command in a terminal, from its first to its last keystroke. Return its exit code and its output."""
        command = [sys.executable, "-m", "fastflight", *arguments]
        return converse(
            command,
            answers,
            cwd=cwd,
            environment={"FASTFLIGHT_SERVER": self.location, "COLUMNS": "120", "TERM": "xterm"},
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" not in metafunc.fixturenames:
        return
    needed = {name for mark in metafunc.definition.iter_markers("needs") for name in mark.args}
    assert needed <= set(ABILITIES), f"{metafunc.definition.nodeid}: no such ability: {needed - set(ABILITIES)}"
    boards = {url: Target(lambda _, url=url: nullcontext(url)) for url in metafunc.config.getoption("--device")}
    able = {name: target for name, target in (boards or TARGETS).items() if not needed & target.lacks}
    metafunc.parametrize("target", able.values(), ids=able.keys())


@pytest.fixture
def board(target: Target, tmp_path: Path) -> Iterator[Board]:
    """A board that was just started."""
    files = tmp_path / "board"
    files.mkdir()
    with ExitStack() as stack:
        url = stack.enter_context(running_target(target.start(files)))
        yield Board(url, target.lacks, "/", stack)
