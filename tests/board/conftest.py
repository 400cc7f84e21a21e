"""One suite of tests over every kind of board: `tests.support.targets.TARGETS`, or those given with `--device`.

A test that takes `board` runs on each target that has what its marker `needs(...)` names. `ABILITIES` says what these
names mean. A target that is not installed is skipped by name, and fails with `CI` set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fastflight.app.compose import open_server
from fastflight.cli.main import app
from fastflight.client import FastFlightClient
from fastflight.device import Inventory, Session
from fastflight.errors import DeviceError
from tests.conftest import running_target
from tests.support.commands import FASTFLIGHT
from tests.support.servers import config
from tests.support.targets import TARGETS, Target
from tests.support.terminal import converse

# What a target may lack: see `Target.lacks`.
ABILITIES = {
    "folders": "os.mkdir",
    "rename": "os.rename",
    "digests": "hashlib.sha256 or binascii.crc32",
    "listings": "names and sizes that do not need one request for each file: os.ilistdir",
    "mount": "a folder of the host: stdin.buffer, os.ilistdir, os.mount",
    "raw paste": "code in raw paste mode",
    "interrupts": "Ctrl-C stops a program",
    "asyncio": "import asyncio",
    "main.py": "main.py runs when the board starts, and tests may replace it",
    "timers": "machine.Timer",
    "hard reset": "machine.reset",
    "full disk": "tests may fill its storage",
    "large files": "files of more than 8 kB",
    "raw reset": "a soft reset in the raw REPL, after which main.py does not run",
}
# A board on a desk keeps its program, its files and its free storage.
DESK_FOLDER = "/fastflight-tests"
DESK = frozenset({"main.py", "full disk"})
# The features that a board must report to have an ability.
FEATURES = {
    "folders": "os.mkdir",
    "rename": "os.rename",
    "digests": "hashlib.sha256",
    "listings": "os.ilistdir",
    "mount": "stdin.buffer",
    "timers": "machine.Timer",
    "hard reset": "machine.reset",
}


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
            server = self.stack.enter_context(open_server(config({"board": self.url})))
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

    def type(self, *arguments: str, keys: Sequence[tuple[str, str]] = ()) -> tuple[int, str]:
        """Run a command in a terminal, and press `keys`: see `converse`. Return its exit code and its output."""
        command = [*FASTFLIGHT, *arguments]
        environment = {"FASTFLIGHT_SERVER": self.location, "COLUMNS": "120", "TERM": "xterm"}
        return converse(command, keys, environment=environment)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" not in metafunc.fixturenames:
        return
    boards = {url: Target(lambda _, url=url: nullcontext(url), DESK) for url in metafunc.config.getoption("--device")}
    needed = _needed(metafunc.definition)
    able = {name: target for name, target in (boards or TARGETS).items() if not needed & target.lacks}
    metafunc.parametrize("target", able.values(), ids=able.keys())


def _needed(test: pytest.Item) -> set[str]:
    needed = {name for mark in test.iter_markers("needs") for name in mark.args}
    assert needed <= set(ABILITIES), f"{test.nodeid}: no such ability: {needed - set(ABILITIES)}"
    return needed


@pytest.fixture
def board(request: pytest.FixtureRequest, target: Target, tmp_path: Path) -> Iterator[Board]:
    """A board that was just started, or the one on the desk."""
    files = tmp_path / "board"
    files.mkdir()
    # The simulated board puts samples into an empty folder.
    (files / "here.txt").write_bytes(b"here")
    with ExitStack() as stack:
        url = stack.enter_context(running_target(target.start(files)))
        if request.config.getoption("--device"):
            yield _on_the_desk(url, _needed(request.node), stack)
        else:
            yield Board(url, target.lacks, target.folder, stack)


def _on_the_desk(url: str, needed: set[str], stack: ExitStack) -> Board:
    """A board with a folder for the test, which is removed at the end, so that nothing else on it changes."""
    with Inventory({"board": url}) as inventory, inventory.device("board").lease("a test", interrupt=True) as session:
        features = session.info().features
        lacks = {ability for ability, feature in FEATURES.items() if feature not in features}
        if missing := needed & lacks:
            pytest.skip(f"{url} lacks {', '.join(sorted(missing))}")
        if "folders" in lacks:
            pytest.skip(f"{url} has no folders, so tests cannot keep to one of their own")
        with suppress(DeviceError):  # a test that was killed has left it
            session.mkdir(DESK_FOLDER)
    stack.callback(_clear_desk, url)
    return Board(url, DESK | lacks, f"{DESK_FOLDER}/", stack)


def _clear_desk(url: str) -> None:
    """Remove the tests' folder. A program that a test has left is stopped."""
    command = ["rm", "-r", "--yes", "--interrupt", f":{DESK_FOLDER}", "--device", url]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
