"""`sync`: a folder here and one on a board become equal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import cast

import pytest
from click.testing import Result

from fastflight.client.answers import RemoteEntry
from fastflight.client.board import Board
from fastflight.client.tree_copy import put_tree
from tests.support.commands import FASTFLIGHT, Command
from tests.support.folders import files_below
from tests.support.servers import ready_server
from tests.support.waiting import until

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of the board."""
    return tmp_path_factory.mktemp("board")


@pytest.fixture(scope="module")
def location(board: Path) -> Iterator[str]:
    with ready_server({"demo": f"sim:?files={board}&telemetry=0"}) as location:
        yield location


@pytest.fixture
def here(board: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where commands run, with a folder `app`."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "app", {"main.py": "import lib\n", "lib/c.py": "c = 1\n", "lib/__pycache__/c.pyc": "x"})
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def files(folder: Path) -> dict[str, str]:
    return {path: content.decode() for path, content in files_below(folder).items()}


class OneQuestion:
    """The files of a device on which nothing but one request for digests is allowed."""

    name = "demo"

    def __init__(self, answer: list[tuple[str, RemoteEntry]]) -> None:
        self.answers = [answer]

    def hashes(self, folder: str) -> list[tuple[str, RemoteEntry]]:
        return self.answers.pop()


def test_an_unchanged_folder_costs_one_request(here: Path) -> None:
    sizes = {path: (len(text), sha256(text.encode()).hexdigest()) for path, text in files(here / "app").items()}
    remote = OneQuestion([(f"/app/{path}", RemoteEntry(size, "sha256", it)) for path, (size, it) in sizes.items()])
    tree = put_tree(cast(Board, remote), "/app", here / "app", skip_unchanged=True, delete=True)
    assert (tree.files, len(tree.unchanged), tree.removed) == ((), 3, ())


@pytest.mark.skipif(sys.platform == "win32", reason="a signal ends the command")
def test_a_watched_folder_is_followed_and_the_board_restarted(location: str, board: Path, here: Path) -> None:
    write(board, {"main.py": "open('/started','a').write('x')\n"})
    command = [*FASTFLIGHT, "sync", "app", "demo:/watched", "--watch", "--quiet", "0.05"]
    environment = {**os.environ, "FASTFLIGHT_SERVER": location}
    child = Command([*command, "--delete", "--soft-reset"], stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert child.stderr is not None
        assert child.stderr.readline().startswith("watching app")
        assert files(board / "watched").keys() == {"main.py", "lib/c.py"}
        write(here / "app", {"lib/d.py": "d = 1\n", "__pycache__/main.pyc": "y"})
        until(lambda: "lib/d.py" in files(board / "watched"))
        (here / "app" / "lib" / "c.py").unlink()
        until(lambda: files(board / "watched").keys() == {"main.py", "lib/d.py"})
        until(lambda: (board / "started").read_text() == "xxx")
    finally:
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        (board / "main.py").unlink()
    assert child.returncode == 130
