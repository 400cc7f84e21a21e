"""`rm`, `mkdir` and `ls` of several paths, of folders and of globs; and the question before folders are removed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from fastflight.client import FastFlightClient
from tests.support.servers import serving

Run = Callable[..., Result]

FILES = (
    "a.csv",
    "b.csv",
    "old-1",
    "old-2",
    "x[1].csv",
    "x1.csv",
    ".hidden.csv",
    "data/c.csv",
    "data/deep/d.csv",
    "data/deep/e.bin",
)
QUESTION = "[y/N]"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the board. It is not empty: a simulated board puts samples into an empty folder."""
    folder = tmp_path_factory.mktemp("board")
    (folder / "a.csv").touch()
    return folder


@pytest.fixture(scope="module")
def location(board: Path) -> Iterator[str]:
    with serving({"demo": f"sim:?files={board}&telemetry=0"}) as running:
        with FastFlightClient(running.location) as client:
            client.info("demo")
        yield running.location


@pytest.fixture(autouse=True)
def planted(board: Path, location: str) -> None:
    """Put the files on the board, each with 10 bytes."""
    for path in FILES:
        (board / path).parent.mkdir(parents=True, exist_ok=True)
        (board / path).write_bytes(b"0123456789")


def files(board: Path) -> set[str]:
    return {str(path.relative_to(board)) for path in board.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("/*.csv", ["/a.csv", "/b.csv", "/x1.csv", "/x[1].csv"]),
        ("/.*", ["/.hidden.csv"]),
        ("/?.csv", ["/a.csv", "/b.csv"]),
        ("/[!a].csv", ["/b.csv"]),
        ("/x[1].csv", ["/x[1].csv"]),
        ("/x[[]1].csv", ["/x[1].csv"]),
        ("/d*", ["/data"]),
        ("/data/*", ["/data/c.csv", "/data/deep"]),
        ("/*/*.csv", ["/data/c.csv"]),
        ("/**/*.csv", ["/a.csv", "/b.csv", "/data/c.csv", "/data/deep/d.csv", "/x1.csv", "/x[1].csv"]),
        ("/data/**", ["/data/c.csv", "/data/deep", "/data/deep/d.csv", "/data/deep/e.bin"]),
        ("data/d??p/*", ["/data/deep/d.csv", "/data/deep/e.bin"]),
    ],
)
def test_a_glob_lists_what_it_matches(run: Run, glob: str, found: list[str]) -> None:
    listed = json.loads(run("ls", f"demo:{glob}", "--json").stdout)
    assert [entry["path"] for entry in listed] == found


def test_several_paths_and_globs_are_removed(run: Run, board: Path) -> None:
    result = run("rm", "demo:/a.csv", ":/old-*", "/data/*/*.bin")
    assert (result.exit_code, result.output) == (0, "")
    assert set(FILES) - files(board) == {"a.csv", "old-1", "old-2", "data/deep/e.bin"}


def test_a_glob_without_r_leaves_folders(run: Run, board: Path) -> None:
    assert run("rm", "demo:/*").exit_code == 0
    assert files(board) == {".hidden.csv", "data/c.csv", "data/deep/d.csv", "data/deep/e.bin"}


@pytest.mark.parametrize("path", ["demo:/data", "demo:/data/", ":data//"])
def test_a_folder_is_removed_with_all_it_contains(run: Run, board: Path, path: str) -> None:
    result = run("rm", "-r", "--yes", path)
    assert (result.exit_code, result.stdout) == (0, "demo:/data: 3 files, 30 B, 2 folders removed\n")
    assert not (board / "data").exists()
    assert len(files(board)) == len(FILES) - 3


def test_what_a_glob_matches_twice_is_removed_once(run: Run, board: Path) -> None:
    result = run("rm", "-r", "--yes", "demo:/data/**", "demo:/a.csv", "demo:/a.csv")
    assert (result.exit_code, result.stderr) == (0, "")
    assert list((board / "data").iterdir()) == []
    assert run("rm", "-r", "--yes", "demo:/d*").exit_code == 0


def test_everything_on_the_device(run: Run, board: Path) -> None:
    result = run("rm", "-r", "--yes", "demo:/")
    assert (result.exit_code, result.stdout) == (0, "demo:/: 10 files, 100 B, 2 folders removed\n")
    assert list(board.iterdir()) == []


def test_parents_are_made(run: Run, board: Path) -> None:
    for _ in range(2):
        assert run("mkdir", "-p", "demo:/new/deep/er", "demo:/data/new").exit_code == 0
    assert (board / "new" / "deep" / "er").is_dir()
    assert run("mkdir", "demo:/one", "demo:/one/two").exit_code == 0
    assert run("rm", "-r", "--yes", "demo:/new", "demo:/one", "demo:/data").exit_code == 0


@pytest.mark.parametrize(
    ("path", "answer", "code", "says"),
    [
        ("demo:/data", "y\n", 0, "demo:/data: 3 files, 30 B, 2 folders\n"),
        ("demo:/data", "n\n", 1, "nothing was removed"),
        ("demo:/data", "\x04", 1, "nothing was removed"),
        ("demo:/", "n\n", 1, "demo:/: everything on the device, 10 files, 100 B, 2 folders\n"),
        ("demo:/old-*", "y\n", 0, "demo:/old-2: 1 file, 10 B\n"),
    ],
)
def test_the_question_says_how_much_it_is(
    board: Path, location: str, path: str, answer: str, code: int, says: str
) -> None:
    pytest.importorskip("pty", reason="only a pseudo-terminal is one")
    from tests.support.terminal import converse

    command = [sys.executable, "-m", "fastflight", "rm", "-r", path]
    ended, printed = converse(
        command, [(QUESTION, answer)], environment={"FASTFLIGHT_SERVER": location, "COLUMNS": "100"}
    )
    assert (ended, says in printed) == (code, True), printed
    assert (len(files(board)) < len(FILES)) == (code == 0)
