"""`demo.rows` in SQL: the typed rows of a recording, from its files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fastflight.access.identity import ANYBODY, Identity
from fastflight.access.tokens import scopes
from fastflight.errors import FastFlightError
from fastflight.log import Store, compact
from fastflight.sources.session_lines import BEGAN_AT_LINE
from fastflight.transport.chunk_buffer import Chunk
from tests.log.rows import log_batch
from tests.support.sql_engine import FIRST_NS, engine_over


def test_rows_of_files_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "recordings").mkdir()
    with Store(tmp_path / "recordings", sync_ms=0) as store:
        log = store.open("printer")
        texts = [b'{"ms": %d, "temperature": 20}\n' % n for n in range(200)] + [b'{"ms": 200, "te']
        cuts = {0: BEGAN_AT_LINE}
        log.append(log_batch([Chunk(n, FIRST_NS + n, "rx", text) for n, text in enumerate(texts)], cuts)).result()
        compact(store, file_bytes=0, least=1)
        log.append(log_batch([Chunk(201, FIRST_NS, "rx", b'mperature": 20.5}\nhello\n')], {})).result()
    with engine_over(tmp_path) as sql:
        (found,) = sql.rows("select count(*) as n, avg(temperature) as t, max(seq) as last from printer.rows")
        assert (found["n"], found["last"]) == (201, 200) and found["t"] == (200 * 20 + 20.5) / 201
        assert sql.rows("select ms, temperature from printer.rows where seq >= 199 order by seq") == [
            {"ms": 199, "temperature": 20.0},
            {"ms": 200, "temperature": 20.5},
        ]
        assert "parts: 2, rejected: 1" in sql.explained("from printer.rows")["printer.rows"]
        assert sql.rows("select name from fastflight.tables where schema = 'printer' order by 1") == [
            {"name": "gaps"},
            {"name": "lines"},
            {"name": "recording"},
            {"name": "rows"},
        ]


def test_rows_in_memory_are_those_of_the_devices_that_one_may_listen_to(tmp_path: Path) -> None:
    with engine_over(tmp_path) as sql:
        for device in ("demo", "other"):
            sql.inventory.device(device).tap.feed("rx", b'\n{"t": 1}\n{"t": 2}\n{"t": 3}\n')
        query = "select device, sum(t) as s from fleet.live group by device order by device"
        assert sql.rows(query) == [{"device": "demo", "s": 6}, {"device": "other", "s": 6}]
        listener = Identity("bob", scopes(["session:other"]))
        assert sql.rows(query, identity=listener) == [{"device": "other", "s": 6}]
        listed = sql.rows("select sql_name from fastflight.tables where name = 'live' order by 1", identity=listener)
        assert [row["sql_name"] for row in listed] == ["fleet.live", "other.live"]
        reader = Identity("ada", scopes(["read:*"]))
        assert sql.rows("select device from fleet.live", identity=reader) == []
        for table in ("demo.live", "demo.lines"):
            with pytest.raises(FastFlightError, match="session"):
                sql.rows(f"from {table}", identity=reader)


def test_the_columns_of_all_boards_hold_the_values_of_each(tmp_path: Path) -> None:
    """By name in upper or lower case, also from files; what has no common type is text."""
    (tmp_path / "recordings").mkdir()
    with Store(tmp_path / "recordings", sync_ms=0) as store:
        for name, row in (
            ("a", b'{"T": 1, "x": true, "p": 3, "total": -1}\n'),
            ("b", b'{"t": 1.5, "x": 7, "total": 18446744073709551615}\n'),
        ):
            log = store.open(name)
            chunks = [Chunk(n, FIRST_NS + n, "rx", row * 40) for n in range(6)]
            log.append(log_batch(chunks[:5], {0: BEGAN_AT_LINE})).result()
            compact(store, file_bytes=0, least=1)
            log.append(log_batch(chunks[5:], {})).result()
    with engine_over(tmp_path) as sql:
        found = sql.table("select device, T, x, p, total, count(*) as n from fleet.rows group by all order by device")
        assert found.to_pylist() == [
            {"device": "a", "T": 1.0, "x": "true", "p": 3, "total": -1, "n": 240},
            {"device": "b", "T": 1.5, "x": "7", "p": None, "total": 2**64 - 1, "n": 240},
        ]
        assert found.schema.field("T").type == pa.float64()
        (table,) = sql.engine.tables.listing(ANYBODY, "fleet", with_schemas=True)
        assert table.schema is not None
        assert table.schema.names == ["device", "seq", "time", "T", "x", "p", "total"]
