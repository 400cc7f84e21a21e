"""Collecting a log: each line is stored once, wherever a run breaks off."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fastflight.app.local_board import BOARD, LocalBoard
from fastflight.client.answers import Digest
from fastflight.client.collection import Collection, as_parquet
from fastflight.errors import DataError, TransportError

LINES = [f"{number},21.5\n" for number in range(400)]


class Killed(BaseException):
    """Ends a run, as a kill does."""


class Breaking:
    """A board whose call number `at` fails: before the board gets it, or after the board has done it."""

    def __init__(self, board: LocalBoard, at: int, *, after: bool) -> None:
        self._board = board
        self._at = at
        self._after = after
        self.calls = 0

    @contextmanager
    def _call(self) -> Iterator[None]:
        self.calls += 1
        if self.calls == self._at and not self._after:
            raise Killed
        yield
        if self.calls == self._at:
            raise Killed

    def __getattr__(self, verb: str) -> Any:
        def call(*args: Any, **keys: Any) -> Any:
            with self._call():
                result = getattr(self._board, verb)(*args, **keys)
                # So that the board has done it.
                return iter(list(result)) if verb == "exec_rows" else result

        return call


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "log.csv").write_text("".join(LINES[:100]))
    return folder


@pytest.fixture
def board(files: Path) -> Iterator[LocalBoard]:
    local = LocalBoard(f"sim:?files={files}&telemetry=0")
    yield local
    local.close()


def append(files: Path, lines: list[str]) -> None:
    with (files / "log.csv").open("a") as log:
        log.write("".join(lines))


def stored(folder: Path) -> list[str]:
    return [line for path in sorted(folder.glob("*.csv")) for line in path.read_text().splitlines(keepends=True)]


def test_each_line_is_stored_once_and_leaves_the_board(board: LocalBoard, files: Path, tmp_path: Path) -> None:
    collection = Collection(board, BOARD, "/log.csv", tmp_path / "stored")
    first = collection.run()
    assert [path.name for path in first.parts] == ["0000001.csv"]
    assert first.bytes == len("".join(LINES[:100]))
    append(files, LINES[100:])
    assert [path.name for path in collection.run().parts] == ["0000002.csv"]
    assert collection.run().parts == ()
    assert stored(tmp_path / "stored") == LINES
    assert list(files.glob("log*")) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_that_breaks_off_anywhere_loses_and_repeats_nothing(
    board: LocalBoard, files: Path, tmp_path: Path, after: bool
) -> None:
    calls = at = 0
    expected = LINES[:100]
    while calls >= at:
        at += 1
        breaking = Breaking(board, at, after=after)
        try:
            Collection(breaking, BOARD, "/log.csv", tmp_path / "stored").run()
        except Killed:
            pass
        calls = breaking.calls
        more = LINES[len(expected) : len(expected) + 20]
        append(files, more)
        expected = expected + more
    Collection(board, BOARD, "/log.csv", tmp_path / "stored").run()
    assert at > 4
    assert stored(tmp_path / "stored") == expected


def test_a_part_that_was_half_read_is_continued(board: LocalBoard, files: Path, tmp_path: Path) -> None:
    (files / "log.csv").rename(files / "log.csv.0000007")
    folder = tmp_path / "stored"
    folder.mkdir()
    (folder / "0000007.part").write_text("".join(LINES[:30]))
    assert [path.name for path in Collection(board, BOARD, "/log.csv", folder).run().parts] == ["0000007.csv"]
    assert stored(folder) == LINES[:100]


def test_a_part_that_differs_is_read_again(board: LocalBoard, files: Path, tmp_path: Path) -> None:
    (files / "log.csv").rename(files / "log.csv.0000001")
    folder = tmp_path / "stored"
    folder.mkdir()
    (folder / "0000001.part").write_text("\0" * 50)
    Collection(board, BOARD, "/log.csv", folder).run()
    assert stored(folder) == LINES[:100]


def test_a_part_that_the_program_still_writes_to_is_read_to_its_end(
    board: LocalBoard, files: Path, tmp_path: Path
) -> None:
    (files / "log.csv").rename(files / "log.csv.0000001")
    folder = tmp_path / "stored"
    folder.mkdir()
    (folder / "0000001.csv").write_text("".join(LINES[:30]))
    Collection(board, BOARD, "/log.csv", folder).run()
    assert stored(folder) == LINES[:100]


def test_a_part_that_is_shorter_on_the_board_is_not_removed(board: LocalBoard, files: Path, tmp_path: Path) -> None:
    (files / "log.csv").rename(files / "log.csv.0000001")
    folder = tmp_path / "stored"
    folder.mkdir()
    (folder / "0000001.csv").write_text("".join(LINES[:101]))
    with pytest.raises(DataError, match="bytes"):
        Collection(board, BOARD, "/log.csv", folder).run()
    assert (files / "log.csv.0000001").exists()


def test_damage_is_noticed_before_anything_is_removed(
    board: LocalBoard, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Digest("sha256", hashlib.sha256(b"other").hexdigest())
    monkeypatch.setattr(LocalBoard, "hash", lambda *args, **keys: wrong)
    with pytest.raises(DataError, match="not what the board has"):
        Collection(board, BOARD, "/log.csv", tmp_path / "stored").run()
    assert (files / "log.csv.0000001").read_text() == "".join(LINES[:100])


def test_parts_become_parquet_and_lines_that_are_no_rows_stay(board: LocalBoard, files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stored"
    (files / "log.csv").write_text("ms,celsius\n1,21.5\n2,21.6\n")
    collection = Collection(board, BOARD, "/log.csv", folder, convert=as_parquet)
    assert [path.name for path in collection.run().parts] == ["0000001.parquet"]
    assert pq.read_table(folder / "0000001.parquet").to_pydict() == {"ms": [1, 2], "celsius": [21.5, 21.6]}
    append(files, ["ms,celsius\n", "3,21.7,too,many\n"])
    assert [path.name for path in collection.run().parts] == ["0000002.csv"]
    assert [path.name for path in folder.glob("0000001*")] == ["0000001.parquet"]


def test_a_board_that_cannot_be_reached_changes_nothing(tmp_path: Path) -> None:
    board = LocalBoard("socket://127.0.0.1:9")
    with pytest.raises(TransportError):
        Collection(board, BOARD, "/log.csv", tmp_path / "stored").run()
    assert list((tmp_path / "stored").iterdir()) == []
    board.close()
