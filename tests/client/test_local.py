"""Local files: rows out of them, and rows into them, whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from mcap.reader import make_reader

from fastflight.client.local_files import PIECE_BYTES
from fastflight.client.rows import RAW_SCHEMA, open_rows, piece
from fastflight.client.saving import SavedFile
from fastflight.errors import DataError, RequestError
from fastflight.service.requests import DeviceFile
from fastflight.tables import copied_as_is

TABLE = pa.table({"time": pa.array([1, 2, 3], pa.int64()), "celsius": [20.5, None, 21.0]})


def to(path: str, **values: object) -> DeviceFile:
    return DeviceFile(device="demo", path=path, **values)


@pytest.mark.parametrize(
    ("source", "target", "as_is"),
    [
        ("x.csv", "/y.csv", True),
        ("x.CSV", "/y.csv", True),
        ("main.py", "/main.py", True),
        ("notes", "/notes.txt", True),
        ("x.parquet", "/x.csv", False),
        ("x.csv", "/x.bin", True),
        ("x.csv", "/x", True),
        ("/x.csv", "x.parquet", False),
        ("x.txt", "/x.csv", False),
        ("x.parquet", "/x.parquet", True),
        ("/x.csv", "x.mcap", False),
        ("/x.mcap", "x.mcap", True),
    ],
)
def test_a_file_becomes_a_table_of_another_format_only_by_conversion(source: str, target: str, as_is: bool) -> None:
    assert copied_as_is(source, target) is as_is


def test_a_file_of_the_same_ending_is_sent_as_it_is(tmp_path: Path) -> None:
    content = bytes(range(256)) * 200
    path = tmp_path / "log.bin"
    path.write_bytes(content)
    request, rows = open_rows(to("/log.bin"), path)
    batches = list(rows.batches)
    assert (request.format, rows.total_bytes) == ("raw", len(content))
    assert b"".join(piece for batch in batches for piece in batch.column("data").to_pylist()) == content
    assert [batch.column("offset")[0].as_py() for batch in batches] == list(range(0, len(content), PIECE_BYTES))


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.jsonl", "t.arrow", "indexed.arrow"])
def test_tables_are_read_from_every_ending(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "indexed.arrow":
        with pa.ipc.new_file(path, TABLE.schema) as writer:
            writer.write_table(TABLE)
    else:
        with SavedFile(path, TABLE.schema) as file:
            for batch in TABLE.to_batches():
                file.write(batch)
    request, rows = open_rows(to("/x.csv", format="csv"), path)
    assert pa.Table.from_batches(rows.batches, rows.schema).equals(TABLE)
    assert request.format == "csv"


def test_rows_become_messages_with_their_times_and_numbers(tmp_path: Path) -> None:
    times = [1_700_000_000_000_001, None, 1_700_000_001_000_000]
    table = pa.table(
        {"seq": pa.array([1, 2, 2**32 + 3], pa.uint64()), "time": pa.array(times, pa.timestamp("us", "UTC"))}
        | {"celsius": [21.5, None, -3.0], "ok": [True, False, None], "note": ["a\nb", "ü", ""]}
    )
    with SavedFile(path := tmp_path / "lab.mcap", table.schema) as file:
        for batch in table.to_batches(2):
            file.write(batch)
        file.add_metadata({"fastflight.gaps": "[]"})
    with path.open("rb") as source:
        reader = make_reader(source)
        found = list(reader.iter_messages(log_time_order=False))
        metadata = {each.name: dict(each.metadata) for each in reader.iter_metadata()}
    assert [message.log_time for _, _, message in found] == [1_700_000_000_000_001_000] * 2 + [
        1_700_000_001_000_000_000
    ]
    assert [message.sequence for _, _, message in found] == [1, 2, 3]
    assert [json.loads(message.data) for _, _, message in found] == [
        {"seq": 1, "time": "2023-11-14T22:13:20.000001Z", "celsius": 21.5, "ok": True, "note": "a\nb"},
        {"seq": 2, "time": None, "celsius": None, "ok": False, "note": "ü"},
        {"seq": 2**32 + 3, "time": "2023-11-14T22:13:21.000000Z", "celsius": -3.0, "ok": None, "note": ""},
    ]
    schema, channel, _ = found[0]
    assert schema is not None and (schema.encoding, channel.topic, channel.message_encoding) == (
        "jsonschema",
        "lab",
        "json",
    )
    assert json.loads(schema.data)["properties"]["celsius"] == {"type": "number"}
    assert metadata == {"fastflight.gaps": {"fastflight.gaps": "[]"}}


def test_messages_need_times_and_the_old_file_stays_without(tmp_path: Path) -> None:
    path = tmp_path / "old.mcap"
    path.write_bytes(b"old")
    with pytest.raises(DataError, match="needs a column of times"), SavedFile(path, TABLE.schema):
        pass
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(("offset", "data"), [(0, b"abc"), (1 << 40, b"\x00\xff" * 8192), (7, b"")])
def test_a_piece_is_one_row(offset: int, data: bytes) -> None:
    batch = piece(offset, data)
    batch.validate(full=True)
    assert batch.schema == RAW_SCHEMA
    assert batch.to_pylist() == [{"offset": offset, "data": data}]


def test_pandas_is_loaded_before_a_folder_is_sent(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("pass")
    code = (
        "import sys, types\n"
        "from pathlib import Path\n"
        "from fastflight.client.server_board import ServerBoard\n"
        "def upload(*_):\n"
        "    print('pandas' in sys.modules)\n"
        "    return types.SimpleNamespace(give_up=None, run=lambda: types.SimpleNamespace(bytes=4))\n"
        "connection = types.SimpleNamespace(upload=upload)\n"
        f"ServerBoard(connection, 'demo', {{}}).put_tree('/app', Path({str(tmp_path)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n"


@pytest.mark.skipif(sys.platform == "win32", reason="has no named pipes in folders")
@pytest.mark.parametrize(
    ("name", "path", "says"),
    [
        ("bad.parquet", "/x.csv", "bad.parquet: cannot be read"),
        ("empty.csv", "/x.jsonl", "empty.csv: the file has no columns"),
        ("a.txt", "/x.csv", "does not say what table"),
        ("good.csv", "/x.parquet", "Give a format"),
        ("nowhere.csv", "/x.csv", "nowhere.csv: No such file"),
        ("nowhere.csv", "/x.jsonl", "nowhere.csv: No such file"),
        # A pipe is not waited for.
        ("pipe.csv", "/p.csv", "pipe.csv: is not a file"),
        ("pipe.csv", "/p.jsonl", "pipe.csv: is not a file"),
        ("pipe.parquet", "/p.csv", "pipe.parquet: is not a file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, path: str, says: str) -> None:
    files = {"bad.parquet": b"no parquet", "empty.csv": b"", "a.txt": b"a", "good.csv": b"a,b\n1,2\n"}
    for each, content in files.items():
        (tmp_path / each).write_bytes(content)
    for pipe in ("pipe.csv", "pipe.parquet"):
        os.mkfifo(tmp_path / pipe)
    with pytest.raises((DataError, RequestError), match=says):
        open_rows(to(path), tmp_path / name)


def test_a_row_that_does_not_fit_is_not_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"1,2\n" * 100_000 + b"x,y,z\n")
    with pytest.raises(DataError, match=r"t\.csv"):
        open_rows(to("/x.jsonl"), path)


def test_a_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("old")
    with pytest.raises(LookupError), SavedFile(path, TABLE.schema) as file:
        file.write(TABLE.to_batches()[0])
        raise LookupError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_name_may_be_as_long_as_names_can_be(tmp_path: Path) -> None:
    path = tmp_path / f"{'x' * 251}.csv"
    with SavedFile(path, TABLE.schema) as file:
        file.write(TABLE.to_batches()[0])
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("old")
    link.symlink_to(target)
    with SavedFile(link, TABLE.schema) as file:
        file.write(TABLE.to_batches()[0])
    assert link.is_symlink()
    assert target.read_text().startswith("time,celsius\n1,20.5\n")


def test_a_link_that_leads_to_itself_is_replaced(tmp_path: Path) -> None:
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    with SavedFile(loop, pa.schema([("a", pa.int64())])) as file:
        file.write(pa.record_batch([[1]], ["a"]))
    assert loop.read_bytes() == b"a\n1\n"


@pytest.mark.parametrize(
    ("name", "schema", "says"),
    [
        ("t.txt", TABLE.schema, "does not say how to write"),
        ("t.csv", RAW_SCHEMA, "csv"),
        ("nowhere/t.csv", TABLE.schema, "No such file"),
        ("", TABLE.schema, "is not a file"),
    ],
)
def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, name: str, schema: pa.Schema, says: str) -> None:
    with pytest.raises((DataError, RequestError), match=says), SavedFile(tmp_path / name, schema):
        pass
    assert list(tmp_path.iterdir()) == []
