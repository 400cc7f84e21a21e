"""`sync`: a folder here and one on a board become equal."""

from __future__ import annotations

import json
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

from fastflight.client import FastFlightClient
from fastflight.client.answers import RemoteEntry
from fastflight.client.board import Board
from fastflight.client.tree_copy import put_tree
from tests.support.folders import files_below
from tests.support.servers import serving
from tests.support.waiting import until

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of the board."""
    return tmp_path_factory.mktemp("board")


@pytest.fixture(scope="module")
def location(board: Path) -> Iterator[str]:
    with serving({"demo": f"sim:?files={board}&telemetry=0"}) as running:
        with FastFlightClient(running.location) as client:
            client.info("demo")
        yield running.location


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


def test_only_what_differs_is_written(run: Run, board: Path, here: Path) -> None:
    assert run("sync", "app", "demo:/differs").stdout == "demo:/differs: 2 files, 17 B written; 1 left out\n"
    write(here / "app", {"lib/c.py": "c = 2\n"})
    tree = json.loads(run("sync", "app", "demo:/differs", "--json").stdout)
    assert (tree["files"], tree["unchanged"], tree["removed"]) == (["lib/c.py"], ["main.py"], [])
    assert files(board / "differs") == {"main.py": "import lib\n", "lib/c.py": "c = 2\n"}


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


def test_files_are_removed_only_when_asked_and_never_ignored_ones(run: Run, board: Path, here: Path) -> None:
    run("sync", "app", "demo:/removed")
    write(board / "removed", {"old.py": "1\n", "logs/day.csv": "a\n"})
    (here / "app" / "main.py").unlink()
    assert run("sync", "app", "demo:/removed").exit_code == 0
    assert set(files(board / "removed")) == {"main.py", "lib/c.py", "old.py", "logs/day.csv"}
    write(here / "app", {".fastflightignore": "logs/\n"})
    tree = json.loads(run("sync", "app", "demo:/removed", "--delete", "--json").stdout)
    assert sorted(tree["removed"]) == ["main.py", "old.py"]
    assert set(files(board / "removed")) == {"lib/c.py", "logs/day.csv"}


def test_from_the_board(run: Run, board: Path, here: Path) -> None:
    write(board / "back", {"a.csv": "a\n", "deep/b.csv": "b\n", "secret.txt": "s\n"})
    write(here / "copy", {"a.csv": "a\n", "c.csv": "c\n", ".git/config": "g\n", ".fastflightignore": "secret.*\n"})
    (here / "copy" / "link").symlink_to(here / "app")
    tree = json.loads(run("sync", "demo:/back", "copy", "--delete", "--json").stdout)
    assert (tree["files"], tree["unchanged"], tree["removed"]) == (["deep/b.csv"], ["a.csv"], ["c.csv"])
    assert set(files(here / "copy")) == {"a.csv", "deep/b.csv", ".git/config", ".fastflightignore"}
    assert (here / "app" / "main.py").exists()


def test_a_folder_that_the_board_does_not_have_removes_nothing(run: Run, here: Path) -> None:
    result = run("sync", "demo:/typo", "app", "--delete")
    assert result.exit_code == 1 and "typo" in result.stderr
    assert (here / "app" / "main.py").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="a signal ends the command")
def test_a_watched_folder_is_followed_and_the_board_restarted(location: str, board: Path, here: Path) -> None:
    write(board, {"main.py": "open('/started','a').write('x')\n"})
    command = [sys.executable, "-m", "fastflight", "sync", "app", "demo:/watched", "--watch", "--quiet", "0.05"]
    environment = {**os.environ, "FASTFLIGHT_SERVER": location}
    child = subprocess.Popen([*command, "--delete", "--soft-reset"], stderr=subprocess.PIPE, text=True, env=environment)
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
