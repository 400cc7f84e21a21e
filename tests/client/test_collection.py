"""Collecting a log: each line is stored once, wherever a run breaks off."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fastflight.app.local_board import BOARD, LocalBoard, PluggedBoard
from fastflight.client.answers import Digest, Entry
from fastflight.client.collected_part import as_parquet
from fastflight.client.collection import Collection
from fastflight.client.collector import ADOPT_SECONDS, Collector
from fastflight.errors import DataError, DeviceError, IncompleteWarning, RequestError, TransportError

LINES = [f"{number},21.5\n" for number in range(400)]


class Killed(BaseException):
    """Ends a run, as a kill does."""


class Breaking:
    """A board whose call number `at` fails: before the board gets it, or after the board has done it."""

    def __init__(self, board: LocalBoard, at: int, *, after: bool) -> None:
        self.name = board.name
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
                return iter(list(result)) if verb == "exec" else result

        return call


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "log.csv").write_text("".join(LINES[:100]))
    return folder


@pytest.fixture
def board(files: Path) -> Iterator[LocalBoard]:
    with closing(PluggedBoard(f"sim:?files={files}&telemetry=0")) as plugged:
        yield plugged.board()


def append(file: Path, lines: list[str]) -> None:
    with file.open("a") as log:
        log.write("".join(lines))


def stored(folder: Path) -> list[str]:
    return [line for path in sorted(folder.glob("*.csv")) for line in path.read_text().splitlines(keepends=True)]


def test_each_line_is_stored_once_and_leaves_the_board(board: LocalBoard, files: Path, tmp_path: Path) -> None:
    collection = Collection(board, "/log.csv", tmp_path / "stored")
    first = collection.run()
    assert [path.name for path in first.parts] == ["0000001.csv"]
    assert first.bytes == len("".join(LINES[:100]))
    append(files / "log.csv", LINES[100:])
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
            Collection(breaking, "/log.csv", tmp_path / "stored").run()
        except Killed:
            pass
        calls = breaking.calls
        more = LINES[len(expected) : len(expected) + 20]
        append(files / "log.csv", more)
        expected = expected + more
    Collection(board, "/log.csv", tmp_path / "stored").run()
    assert at > 4
    assert stored(tmp_path / "stored") == expected


ID = "0123abcd"
OURS = f"log.csv.0000007-{ID}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a collector whose id is `ID`."""
    folder = tmp_path / "stored"
    folder.mkdir()
    Collector(ID, BOARD, "/log.csv").save(folder)
    return folder


def test_a_part_that_was_half_read_is_continued(board: LocalBoard, files: Path, folder: Path) -> None:
    (files / "log.csv").rename(files / OURS)
    (folder / "0000007.part").write_text("".join(LINES[:30]))
    assert [path.name for path in Collection(board, "/log.csv", folder).run().parts] == ["0000007.csv"]
    assert stored(folder) == LINES[:100]


@pytest.mark.parametrize("size", [50, 5000], ids=["shorter", "longer"])
def test_a_half_read_part_that_differs_is_read_again(board: LocalBoard, files: Path, folder: Path, size: int) -> None:
    (files / "log.csv").rename(files / OURS)
    (folder / "0000007.part").write_text("\0" * size)
    Collection(board, "/log.csv", folder).run()
    assert stored(folder) == LINES[:100]


# What is stored here under the number of a part on the board that has lines 0 to 99, and what is stored in the end.
SAME_NUMBER = {
    "the same": (LINES[:100], [LINES[:100]]),
    "its beginning: the program has written more": (LINES[:30], [LINES[:100]]),
    "more: the board has lost the end": (LINES[:101], [LINES[:101]]),
    "others of the same size": (["x" * (len("".join(LINES[:100])) - 1) + "\n"], None),
    "fewer others": (LINES[200:210], None),
    "more others": (LINES[200:400], None),
}


@pytest.mark.filterwarnings("ignore::fastflight.errors.IncompleteWarning")
@pytest.mark.parametrize("case", SAME_NUMBER)
@pytest.mark.parametrize("parquet", [False, True], ids=["as it is", "parquet"])
def test_a_part_with_the_number_of_a_stored_one(
    board: LocalBoard, files: Path, folder: Path, case: str, parquet: bool
) -> None:
    """Lines leave the board only when they are stored, and what is stored stays."""
    (files / "log.csv").rename(files / OURS)
    here, expected = SAME_NUMBER[case]
    (folder / "0000007.csv").write_text("".join(here))
    if parquet:
        as_parquet(folder / "0000007.csv", folder / "0000007.parquet")
        (folder / "0000007.csv").unlink()
        before = (folder / "0000007.parquet").read_bytes()
        Collection(board, "/log.csv", folder).run()
        assert (folder / "0000007.parquet").read_bytes() == before
        assert stored(folder) == ([] if case == "the same" else LINES[:100])
    else:
        Collection(board, "/log.csv", folder).run()
        parts = [path.read_text().splitlines(keepends=True) for path in sorted(folder.glob("*.csv"))]
        assert parts == (expected or [here, LINES[:100]])
    assert list(files.glob("log*")) == []


def test_a_log_is_not_renamed_over_a_part(board: LocalBoard, files: Path, folder: Path) -> None:
    """As if the answer to a rename were lost, and the rename done again: a copy of the folder makes the same name."""
    (files / OURS).write_text("".join(LINES[100:120]))

    class Late(Breaking):
        """Lists the board as it was before the part."""

        def ls(self, *args: Any, **keys: Any) -> list[Entry]:
            return [entry for entry in board.ls(*args, **keys) if ID not in entry.path]

    (folder / "0000006.csv").write_text("x\n")
    Collection(Late(board, 0, after=False), "/log.csv", folder).run()
    Collection(board, "/log.csv", folder).run()
    assert stored(folder) == ["x\n", *LINES[100:120], *LINES[:100]]
    assert list(files.glob("log*")) == []


def test_a_part_of_another_collector_is_left_until_it_has_gone(board: LocalBoard, files: Path, folder: Path) -> None:
    other = files / "log.csv.0000001-ffffffff"
    other.write_text("".join(LINES[100:120]))
    now = 1000.0
    collection = Collection(board, "/log.csv", folder, clock=lambda: now)
    collection.run()
    now += ADOPT_SECONDS - 1
    append(other, LINES[120:130])
    collection.run()
    assert (stored(folder), other.exists()) == (LINES[:100], True)
    now -= 500  # a clock that was set back
    collection.run()
    now += ADOPT_SECONDS - 1
    collection.run()
    assert other.exists()
    now += 1
    collection.run()
    assert (stored(folder), list(files.glob("log*"))) == (LINES[:130], [])


def test_a_file_that_is_named_almost_as_a_part_is_left_alone(board: LocalBoard, files: Path, folder: Path) -> None:
    names = ["log.csv.0000001", "log.csv.bak", f"log.csv.1-{ID}", f"xlog.csv.0000001-{ID}"]
    for name in names:
        (files / name).write_text("1\n")
    Collection(board, "/log.csv", folder, clock=iter([0.0, 1e9]).__next__).run()
    assert sorted(path.name for path in files.glob("*log*")) == sorted(names)


def test_a_number_is_used_once_also_if_its_part_was_moved_away(board: LocalBoard, files: Path, folder: Path) -> None:
    Collection(board, "/log.csv", folder).run()
    (folder / "0000001.csv").unlink()
    append(files / "log.csv", LINES[100:110])
    assert [path.name for path in Collection(board, "/log.csv", folder).run().parts] == ["0000002.csv"]


def test_a_folder_is_for_one_log(board: LocalBoard, files: Path, folder: Path) -> None:
    (files / "other.csv").write_text("1\n")
    with pytest.raises(RequestError, match="has the parts of board:/log.csv"):
        Collection(board, "/other.csv", folder).run()
    assert (files / "other.csv").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"id": "../x", "device": "board", "path": "/log.csv"}', "{" * 100_000])
def test_a_damaged_memory_is_named(board: LocalBoard, files: Path, folder: Path, content: str) -> None:
    (folder / "collector.json").write_text(content)
    with pytest.raises(DataError, match=r"collector\.json: this file is damaged"):
        Collection(board, "/log.csv", folder).run()
    assert [path.name for path in files.glob("log*")] == ["log.csv"]


def test_damage_is_noticed_before_anything_is_removed(
    board: LocalBoard, files: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Digest("sha256", hashlib.sha256(b"other").hexdigest())
    monkeypatch.setattr(LocalBoard, "hash", lambda *args, **keys: wrong)
    with pytest.raises(DataError, match="not what the board has"):
        Collection(board, "/log.csv", folder).run()
    assert (files / f"log.csv.0000001-{ID}").read_text() == "".join(LINES[:100])


@pytest.mark.parametrize("digest", [Digest("", ""), Digest("md5", "ab")])
def test_without_a_digest_nothing_is_removed(
    board: LocalBoard, files: Path, folder: Path, digest: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalBoard, "hash", lambda *args, **keys: digest)
    with pytest.raises((DataError, DeviceError)):
        Collection(board, "/log.csv", folder).run()
    assert (files / f"log.csv.0000001-{ID}").read_text() == "".join(LINES[:100])


def test_parts_become_parquet_and_lines_that_are_no_rows_stay(board: LocalBoard, files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stored"
    (files / "log.csv").write_text("ms,celsius\n1,21.5\n2,21.6\n")
    collection = Collection(board, "/log.csv", folder, convert=as_parquet)
    assert [path.name for path in collection.run().parts] == ["0000001.parquet"]
    assert pq.read_table(folder / "0000001.parquet").to_pydict() == {"ms": [1, 2], "celsius": [21.5, 21.6]}
    append(files / "log.csv", ["ms,celsius\n", "3,21.7,too,many\n"])
    assert [path.name for path in collection.run().parts] == ["0000002.csv"]
    assert [path.name for path in folder.glob("0000001*")] == ["0000001.parquet"]


def test_what_was_read_with_a_doubt_is_told_and_in_the_parquet_file(
    board: LocalBoard, files: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "stored"
    (files / "log.csv").write_text("1,21.5\n2,21.6")
    doubts = r"0000001\.parquet: the last line may be torn; no header: the first line holds values"
    with pytest.warns(IncompleteWarning, match=doubts):
        Collection(board, "/log.csv", folder, convert=as_parquet).run()
    told = json.loads((pq.read_metadata(folder / "0000001.parquet").metadata or {})[b"fastflight.summary"])
    assert told == {"torn_last_line": True, "notes": ["no header: the first line holds values"]}


def test_a_board_that_cannot_be_reached_changes_nothing(tmp_path: Path) -> None:
    with closing(PluggedBoard("socket://127.0.0.1:9")) as plugged, pytest.raises(TransportError):
        Collection(plugged.board(), "/log.csv", tmp_path / "stored").run()
    assert list((tmp_path / "stored").iterdir()) == []
