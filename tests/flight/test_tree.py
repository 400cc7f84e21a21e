"""Folders of a device as rows, with plain `pyarrow.flight`."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from tests.support.folders import files_below

from .conftest import BoardServer, sha256

TREE = {"type": "device.tree", "device": "demo", "path": "/data"}
SCHEMA = pa.schema([("path", pa.string()), ("offset", pa.int64()), ("data", pa.binary())])
FILES = {"a.bin": bytes(range(256)) * 300, "deep/er/b.py": b"print('b')\n", "deep/empty": b"", "z é.txt": b"z"}


def table(*rows: tuple[str, int, bytes]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


def rows_of(files: dict[str, bytes], size: int = 5000) -> pa.Table:
    """Files in pieces of `size`; an empty one is one row."""
    return table(
        *(
            (path, start, content[start : start + size])
            for path, content in files.items()
            for start in range(0, len(content) or 1, size)
        )
    )


def files_in(rows: pa.Table) -> dict[str, bytes]:
    """The files that rows hold, whose offsets must fit."""
    files: dict[str, bytes] = {}
    for row in rows.to_pylist():
        files.setdefault(row["path"], b"")
        assert row["offset"] == len(files[row["path"]])
        files[row["path"]] += row["data"]
    return files


def test_a_tree_goes_there_and_back(board: BoardServer) -> None:
    put = board.put(rows_of(FILES), TREE, chunk=3)
    assert put.error is None
    assert (put.last["files"], put.last["bytes"], put.last["done"]) == (4, sum(map(len, FILES.values())), True)
    assert put.acks[0]["rows"] == 3
    assert files_below(board.folder / "data") == FILES

    got = board.get(**TREE)
    assert got.error is None
    assert files_in(got.table) == FILES
    assert got.trailer is not None
    assert (got.trailer["files"], got.trailer["bytes"]) == (4, sum(map(len, FILES.values())))
    assert got.trailer["sha256"] == sha256(b"".join(got.table["data"].to_pylist()))
    assert got.digests == [sha256(content) for content in files_in(got.table).values()]


def test_files_that_the_rows_do_not_name_stay(board: BoardServer) -> None:
    assert board.put(rows_of({"a": b"old", "b": b"old"}), TREE).error is None
    assert board.put(rows_of({"b": b"new"}), TREE).error is None
    assert files_below(board.folder / "data") == {"a": b"old", "b": b"new"}


def test_files_can_be_chosen(board: BoardServer) -> None:
    assert board.put(rows_of(FILES), TREE).error is None
    chosen = board.table(**TREE, files=["z é.txt", "deep/empty"])
    assert list(files_in(chosen).items()) == [("z é.txt", b"z"), ("deep/empty", b"")]
    assert board.table(**TREE, files=[]).num_rows == 0
    missing = board.get(**TREE, files=["deep/empyt"]).error
    assert isinstance(missing, KeyError)
    assert "Did you mean 'deep/empty'?" in str(missing)


def test_what_broke_off_is_no_part_of_a_tree(board: BoardServer) -> None:
    assert board.put(rows_of({"a": b"a"}), TREE).error is None
    (board.folder / "data" / ".fastflight-part").write_bytes(b"left behind")
    assert files_in(board.table(**TREE)) == {"a": b"a"}


def test_the_root_is_a_tree(board: BoardServer) -> None:
    whole = files_in(board.table(type="device.tree", device="demo"))
    assert whole == files_below(board.folder)
    assert "readings.csv" in whole


def test_a_file_is_not_a_tree(board: BoardServer) -> None:
    error = board.get(**{**TREE, "path": "/log.bin"}).error
    assert isinstance(error, pa.ArrowInvalid)
    assert "this is a file, not a folder" in str(error)
    assert isinstance(board.get(**{**TREE, "path": "/nowhere"}).error, KeyError)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (table(("../a", 0, b"")), "not the path of a file below the folder"),
        (table(("/a", 0, b"")), "not the path of a file below the folder"),
        (table(("a//b", 0, b"")), "not the path of a file below the folder"),
        (table(("", 0, b"")), "not the path of a file below the folder"),
        (table(("a" * 2000, 0, b"")), "too long"),
        (table(("a", 5, b"x")), "a row has offset 5, the rows before it end at 0"),
        (table(("a", 0, b"x"), ("a", 0, b"y")), "a row has offset 0, the rows before it end at 1"),
        (table(("a", 0, b"x"), ("b", 0, b"y"), ("a", 1, b"z")), "the rows of a file come in two places"),
        (pa.table({"path": ["a"], "offset": [0], "data": ["text"]}), "a tree needs the columns"),
        (pa.table({"path": ["a"], "offset": [0]}), "a tree needs the columns"),
        (pa.table([[None], [0], [b""]], schema=SCHEMA), "a row lacks its path"),
    ],
)
def test_rows_that_are_no_tree_are_refused(board: BoardServer, rows: pa.Table, says: str) -> None:
    before = files_below(board.folder)
    error = board.put(rows, TREE).error
    assert isinstance(error, pa.ArrowInvalid)
    assert says in str(error)
    assert files_below(board.folder) == before


def test_an_empty_tree_is_written(board: BoardServer) -> None:
    put = board.put(SCHEMA.empty_table(), TREE)
    assert put.error is None
    assert put.last["files"] == 0


def test_a_write_does_not_choose(board: BoardServer) -> None:
    error = board.put(rows_of({"a": b""}), {**TREE, "files": ["a"]}).error
    assert isinstance(error, pa.ArrowInvalid)
    assert "files: only reading chooses files" in str(error)


def test_the_size_of_a_tree_is_known_beforehand(board: BoardServer) -> None:
    assert board.put(rows_of(FILES), TREE).error is None
    info = board.client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps(TREE)))
    assert info.total_bytes == sum(map(len, FILES.values()))
    assert info.schema.names == SCHEMA.names
