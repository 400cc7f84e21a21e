"""Queries over a compacted recording: DuckDB reads its Parquet files, and the answers are those of its log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastflight.access.identity import ANYBODY, Identity, scope
from fastflight.errors import DataError
from fastflight.sql.databases import File, Scans
from fastflight.sql.frames import Frame, Kind, Pipe
from tests.support.sql_engine import RECORDED, Sql, engine_over

COMPACTED = 700
QUERIES = (
    "select * from demo.recording",
    "select * from demo.recording limit 10",
    "select * from demo.recording limit 10 offset 695",
    "select seq, time from demo.recording where time is null or seq in (1, 699, 700, 999) order by seq",
    "select count(*) as n, sum(octet_length(data)) as b, max(time) as t from demo.recording",
    "select direction, count(*) as n from demo.recording group by direction order by direction",
    "select data from demo.recording where seq between 690 and 710 and direction = 'tx'",
    "select seq from demo.recording where time >= '2025-06-15 15:18:00+00' and time < '2025-06-15 15:18:30+00'",
    "select a.seq from demo.recording a join demo.recording b on a.seq = b.seq + 1 where b.seq > 996 order by 1",
    "select seq from demo.recording where seq < 0 or seq > 2000",
)


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sql]:
    with engine_over(tmp_path_factory.mktemp("compacted"), compacted=COMPACTED) as made:
        made.rows("select 1", identity=Identity("a", ()))  # each client has a process of its own, which stays
        yield made


@pytest.mark.parametrize("query", QUERIES)
def test_a_compacted_recording_gives_the_same_answer(sql: Sql, compacted: Sql, query: str) -> None:
    expected = sql.table(query)
    assert compacted.table(query).equals(expected)
    assert compacted.table(query).schema == expected.schema


def test_only_the_files_that_a_query_needs_are_read(compacted: Sql) -> None:
    every = compacted.explained("select data from demo.recording")["demo.recording"]
    assert "parts: 2" in every and f"read_rows: {RECORDED - COMPACTED}" in every
    none = compacted.explained("select data from demo.recording where seq >= 800")["demo.recording"]
    assert "parts: 1" in none and "read_rows: 200" in none
    first = compacted.explained("select data from demo.recording where seq < 100")["demo.recording"]
    assert "parts: 1" in first and "read_rows: 0" in first
    few = compacted.explained("select seq from demo.recording where seq < 100")["demo.recording"]
    assert _bytes(few) < _bytes(first)


class Bytes:
    """Stands for the server: a file of 1,000 bytes."""

    def read(self, file: int, offset: int, size: int) -> bytes:
        return bytes(n % 251 for n in range(offset, offset + size))


def test_threads_share_a_file_and_have_positions_of_their_own() -> None:
    file = File(Bytes(), 0, 1000)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as other:
        file.seek(100)
        assert other.submit(file.seek, 500).result() == 500
        assert file.read(2) == bytes([100, 101])
        assert other.submit(file.read, 1).result() == bytes([500 % 251])
        assert file.tell() == 102 and file.seek(-1, os.SEEK_END) == 999
        assert len(file.read()) == 1 and file.read() == b""


class Disk:
    """Stands for the server: it sends a file, and content if the worker does not take that."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.sent: list[Kind] = []

    def send(self, kind: Kind, asked: list[int], number: int) -> None:
        self._kind = Kind.FILE if asked[2] else Kind.BYTES

    def receive(self) -> Frame:
        self.sent.append(self._kind)
        return Frame(self._kind, 0, b"" if self._kind == Kind.FILE else b"from the server")

    def receive_file(self) -> int:
        return os.open(self._file, os.O_RDONLY)


def test_a_worker_reads_a_file_itself_and_asks_again_if_that_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    disk = Disk(tmp_path / "file")
    scans = Scans(disk)  # type: ignore[arg-type]
    descriptors = len(os.listdir("/dev/fd"))
    assert scans.read(0, 3, 4) == b"tent" and disk.sent == [Kind.FILE]
    assert scans.read(0, 3, 5) == b"from the server" and disk.sent[1:] == [Kind.FILE, Kind.BYTES]
    assert len(os.listdir("/dev/fd")) == descriptors


@pytest.mark.parametrize(
    ("identity", "gets_files"),
    [
        (ANYBODY, True),
        (Identity("a", (scope("session:*"),)), True),
        (Identity("a", (scope("session:demo"),)), False),
        (Identity("a", (scope("read:*"), scope("session:dem*"))), False),
    ],
)
def test_a_worker_gets_files_only_if_the_client_may_read_all_in_them(
    compacted: Sql, monkeypatch: pytest.MonkeyPatch, identity: Identity, gets_files: bool
) -> None:
    sent = []
    send_file = Pipe.send_file
    monkeypatch.setattr(Pipe, "send_file", lambda pipe, descriptor: (sent.append(1), send_file(pipe, descriptor)))
    query = "select sum(octet_length(data)) as n from demo.recording"
    assert compacted.rows(query, None, identity) == compacted.rows(query)
    sent.clear()
    compacted.rows(query, None, identity)
    assert bool(sent) is gets_files


def test_a_query_cannot_name_the_files(compacted: Sql) -> None:
    for function in ("read_parquet", "parquet_metadata", "read_blob", "glob"):
        with pytest.raises(Exception, match="not allowed"):
            compacted.rows(f"select * from {function}('stored://0')")


def test_damage_is_an_error_once_and_lost_rows_from_then_on(tmp_path: Path) -> None:
    with engine_over(tmp_path, compacted=COMPACTED) as sql:
        (parquet,) = (tmp_path / "recordings").glob("*.parquet")
        whole = bytearray(parquet.read_bytes())
        whole[len(whole) // 8] ^= 1
        parquet.write_bytes(whole)
        query = "select count(*) as n from demo.recording where octet_length(data) > 0"
        with pytest.raises(DataError, match="damaged"):
            sql.rows(query)
        assert sql.rows(query) == [{"n": RECORDED - COMPACTED}]
        reading = sql.engine.execute(query)
        assert sum(1 for lot in reading.all_lots() for _ in lot) == 1
        assert reading.summary()["tables"]["demo.recording"]["lost"] == COMPACTED


def _bytes(explained: str) -> int:
    return int(explained.split("bytes: ")[1].split(",")[0])
