"""`demo.rows` in SQL: the typed rows of a recording, from its files."""

from __future__ import annotations

from pathlib import Path

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
            {"name": "recording"},
            {"name": "rows"},
        ]
