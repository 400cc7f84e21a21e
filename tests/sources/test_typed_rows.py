"""Typed rows of recordings, from files and from newer lines."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from fastflight.errors import RequestError
from fastflight.log import Store, compact
from fastflight.service.requests import Recording
from fastflight.sources.recording import RecordingSource
from fastflight.sources.row_layout import RowLayout
from fastflight.sources.session_lines import BEGAN, BEGAN_AT_LINE
from fastflight.sources.tidying import Tidying
from fastflight.sources.typed_rows import FOLDER, TypedRows
from fastflight.tables import LineParser
from fastflight.transport.chunk_buffer import Chunk
from tests.log.rows import clear, log_batch
from tests.support.source_items import items
from tests.support.waiting import until

import pyarrow.parquet as pq  # isort: skip

DECLARED = {"ms": "int64", "value": "double"}
SAMPLE = [b'{"ms": %d, "value": %d}\n' % (n, n) for n in range(150)]


def rows(typed: TypedRows) -> list[dict[str, Any]]:
    """The rows as SQL gets them: those in files, and the others."""
    found: list[dict[str, Any]] = []
    with typed.open("demo") as table:
        columns = dict.fromkeys(table.schema.names)
        for placed in table.parts:
            kept = pq.read_table(placed.part.file).to_pylist()
            found += [{**columns, **row} for row in kept if row["seq"] >= placed.low]
        found += [row for batch in table.batches() for row in batch.to_pylist()]
    return found


def replayed(store: Store, typed: TypedRows) -> list[dict[str, Any]]:
    """The rows of a `recording` request with `as` `rows`."""
    request = Recording.model_validate({"name": "demo", "as": "rows"})
    batches = items(RecordingSource(store, typed.parser).read(request))
    return [row for item in batches for row in getattr(item, "batch", item).to_pylist()]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path, sync_ms=0) as store:
        yield store


def keep(store: Store, *texts: bytes, first: int = 0) -> None:
    """Append a chunk for each text, and make a Parquet file of them."""
    chunks = [Chunk(first + n, (first + n) * 10**9, "rx", text) for n, text in enumerate(texts)]
    cuts = {} if first else {0: BEGAN_AT_LINE}
    store.open("demo").append(log_batch(chunks, cuts)).result()
    compact(store, file_bytes=0, least=1)


def test_lines_that_continue_in_the_next_file_are_one_row_and_files_are_made_once(store: Store, tmp_path: Path) -> None:
    keep(store, *SAMPLE, b'{"ms": 1, "va')
    keep(store, b'lue": 7}\n{"ms"', first=151)
    keep(store, b': 2, "value": 0.5}\n', first=152)
    typed = TypedRows(store.log, folder=tmp_path)
    found = rows(typed)
    assert [(row["seq"], row["value"]) for row in found[-2:]] == [(150, 7), (151, 0.5)] and len(found) == 152
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / FOLDER / "demo").glob("*.parquet")}
    assert len(files) == 3
    assert rows(TypedRows(store.log, folder=tmp_path)) == found == replayed(store, typed)
    assert files == {file: file.stat().st_mtime_ns for file in (tmp_path / FOLDER / "demo").glob("*.parquet")}


def test_the_lines_of_a_new_file_are_parsed_when_it_is_made(store: Store, tmp_path: Path) -> None:
    for name, text in (("demo", b'{"ms": %d}\n'), ("talk", b"hello %d\n")):
        for first in range(0, 200, 5):
            chunks = [Chunk(n, n * 10**9, "rx", b" " * 8192 + text % n) for n in range(first, first + 5)]
            store.open(name).append(log_batch(chunks, {0: BEGAN_AT_LINE})).result()
    typed = TypedRows(store.log, folder=tmp_path)
    tidying = Tidying(store, parse=typed.prepare)
    tidying.tidy()
    compact(store, file_bytes=0, least=1)
    tidying.tidy()  # no new file, so nothing is parsed
    tidying.close()
    kept = [file.parent.name for file in (tmp_path / FOLDER).rglob("*.parquet")]
    assert kept == ["demo"] and len(list(tmp_path.glob("*.parquet"))) >= 2
    assert len(rows(typed)) == 200


def test_the_first_lines_of_a_recording_are_read_once_and_before_it_is_listed(store: Store) -> None:
    for name, text in (("demo", b'{"ms": %d}\n'), ("talk", b"hello %d\n")):
        store.open(name).append(log_batch([Chunk(n, n, "rx", text % n) for n in range(5)], {0: BEGAN_AT_LINE})).result()
    read: list[str] = []
    typed = TypedRows(store.log, listed=lambda name: read.append(name) or store.log(name))
    tidying = Tidying(store, look=typed.has_table)
    tidying.tidy()
    tidying.tidy()
    tidying.close()
    assert read == ["demo", "talk"]
    assert typed.has_table("demo") and read == ["demo", "talk"]


def test_who_reads_a_recording_does_not_wait_for_its_files(store: Store, tmp_path: Path) -> None:
    keep(store, *SAMPLE)
    typed = TypedRows(store.log, folder=tmp_path)
    found: list[Any] = []
    reading = Thread(target=lambda: found.extend(rows(typed)))
    begun = Event()

    def rest() -> None:
        if not begun.is_set():
            begun.set()
            reading.start()
            until(lambda: typed._wanted)

    typed.prepare("demo", rest)
    reading.join()
    assert len(found) == len(SAMPLE)


def test_a_damaged_file_is_made_again_and_a_row_without_its_line_is_gone(store: Store, tmp_path: Path) -> None:
    keep(store, *SAMPLE, b'{"ms": 1, "va')
    keep(store, b'lue": 7}\n{"ms": 2, "value": 8}\n', first=151)
    typed = TypedRows(store.log, folder=tmp_path)
    found = rows(typed)
    for file in (tmp_path / FOLDER / "demo").glob("*.parquet"):
        file.write_bytes(file.read_bytes().replace(b"ms", b"sm"))
    assert rows(TypedRows(store.log, folder=tmp_path)) == found
    clear(store, "demo", 151)
    assert [row["ms"] for row in rows(typed)] == [2]


def test_a_column_that_widens_keeps_its_values_and_text_in_numbers_is_null(store: Store, tmp_path: Path) -> None:
    keep(store, *SAMPLE)
    typed = TypedRows(store.log, folder=tmp_path)
    assert str(typed.parser("demo")[0].schema.field("value").type) == "int64"
    keep(store, b'{"ms": 7, "value": 1.5}\n{"ms": "late", "value": 2, "note": "x"}\n', first=150)
    with typed.open("demo") as table:
        assert [str(each) for each in table.schema.types[2:]] == ["int64", "double", "string"]
        assert sum(summary.get("null_cells", {}).get("ms", 0) for summary in table.summaries()) == 1
    assert len(rows(typed)) == 152


def test_a_layout_outlives_its_first_lines(store: Store, tmp_path: Path) -> None:
    keep(store, b"ms,celsius\n", *(b"%d,%d.5\n" % (n, n) for n in range(600)))
    keep(store, b"9,10.5\n", first=601)
    assert rows(TypedRows(store.log, folder=tmp_path))[0]["celsius"] == 0.5
    clear(store, "demo", 601)
    # Nothing is known of the beginning of the first line, as in a replay of all that is left.
    keep(store, b"10,11.5\n", first=602)
    assert rows(TypedRows(store.log, folder=tmp_path))[-1] | {"time": None} == {
        "seq": 602, "time": None, "ms": 10, "celsius": 11.5
    }  # fmt: skip


def test_what_is_no_table_is_refused_with_what_to_do(store: Store, tmp_path: Path) -> None:
    chunk = Chunk(0, 0, "rx", b"hello, world\nit works\n" * 50)
    store.open("demo").append(log_batch([chunk], {0: BEGAN})).result()
    typed = TypedRows(store.log, folder=tmp_path)
    assert not typed.has_table("demo")
    with pytest.raises(RequestError, match="demo.*no table.*Declare rows"):
        replayed(store, typed)
    request = Recording.model_validate({"name": "demo", "as": "rows", "format": "csv"})
    with pytest.raises(RequestError, match="format: .*layout of their own"):
        RecordingSource(store, typed.parser).read(request)


def test_a_declared_layout_wins_and_a_changed_one_makes_the_files_anew(store: Store, tmp_path: Path) -> None:
    keep(store, *SAMPLE)
    for schema in ({"value": "double"}, {"ms": "string"}):
        typed = TypedRows(store.log, lambda name, schema=schema: RowLayout("jsonl", schema), tmp_path)  # type: ignore[misc]
        assert [*rows(typed)[0]][2:] == [*LineParser("jsonl", schema).schema.names]
