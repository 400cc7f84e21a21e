"""Compacted or not, the same is read; and other tools read it too."""

from __future__ import annotations

import contextlib
import gc
import math
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastflight.errors import BusyError, Stopped, StorageError
from fastflight.log import NumberedRows, Range, Store, StoreReader, compact, compaction, segment
from fastflight.log.compacted import Compacted
from fastflight.log.content import TIME_TYPE
from fastflight.log.segment import ReadResult
from fastflight.tables import parquet
from tests.log.rows import PLAIN, SCHEMA, batch_of, checked, missing, numbers, time_of

SMALL = 2000


def filled(folder: Path) -> None:
    with Store(folder, sync_ms=0, segment_bytes=SMALL) as store:
        for i in range(20):
            for name, schema in (("a", SCHEMA), ("b", SCHEMA), ("plain", PLAIN)):
                log = store.open(name, schema)
                first = log.next_seq + (3 if i == 10 else 0)
                log.append(batch_of(name, first, i % 4 + 1, schema), first=first).result()


def everything(store: Store | StoreReader) -> dict[str, tuple[set[int], list[tuple[int, int, str]]]]:
    found = {}
    for name in store.names():
        items = list(checked(name, store.log(name).read(), PLAIN if name == "plain" else SCHEMA))
        found[name] = numbers(items), missing(items)
    return found


def test_the_same_is_read_before_and_after(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store(tmp_path, segment_bytes=SMALL) as store:
        before = everything(store)
        assert all(holes == [(23, 25, "never written")] for _, holes in before.values())
        assert compact(store)
        assert compact(store) == []
        assert everything(store) == before
        assert len(list(tmp_path.glob("*.seg"))) == 1
    with Store(tmp_path, segment_bytes=SMALL) as store:
        assert everything(store) == everything(StoreReader(tmp_path)) == before
        log = store.log("a")
        assert numbers(log.read(Range(3, 17))) == set(range(3, 18))
        assert numbers(log.read(Range(from_time=time_of(5), until_time=time_of(20)))) == set(range(5, 20))
        log.append(batch_of("a", log.next_seq, 1)).result()
        assert max(numbers(log.read())) == log.next_seq - 1


def test_where_its_batches_lie_is_left_on_the_disk(tmp_path: Path) -> None:
    """A folder that grows for years does not take more and more memory of who has it open."""
    filled(tmp_path)
    with Store(tmp_path, segment_bytes=SMALL) as store:
        before = everything(store)
        compact(store)
        assert everything(store) == before
        parts = [part for part in store.snapshot(store.log("a").number).parts if isinstance(part, Compacted)]
        assert parts
        assert all(stream.entries is None for part in parts for stream in part.index.logs.values())
        for part in parts:  # where they cannot be read they are told from the rows
            (tmp_path / part.name).write_bytes(b"")
        assert everything(store) == {name: (rows, [(23, 25, "damaged")]) for name, (rows, _) in before.items()}


def test_a_footer_is_held_by_nothing_once_it_was_read(tmp_path: Path) -> None:
    """It takes megabytes, and Python's collector of cycles does not know that."""
    filled(tmp_path)
    gc.collect()
    gc.disable()
    try:
        with Store(tmp_path, segment_bytes=SMALL) as store:
            assert compact(store) and everything(store)
            for part in tmp_path.glob("*.parts"):
                part.unlink()
        with Store(tmp_path, segment_bytes=SMALL) as store:
            assert everything(store)
        assert not [held for held in gc.get_objects() if isinstance(held, pq.FileMetaData)]
    finally:
        gc.enable()


def test_stopped_anywhere_it_leaves_everything_as_it_was(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store(tmp_path, segment_bytes=SMALL) as store:
        before, files = everything(store), sorted(path.name for path in tmp_path.iterdir())
        turns = 0
        while not list(tmp_path.glob("*.parts")):  # the first part of several
            assert sorted(path.name for path in tmp_path.iterdir()) == files
            assert everything(store) == before
            with contextlib.suppress(IndexError):
                compact(store, ([0] * turns).pop)
            turns += 1
        assert turns > 20
        assert compact(store)
        assert everything(store) == before


def test_closing_ends_it_and_lets_nobody_in_before(tmp_path: Path) -> None:
    """Whoever opens the folder removes what is not finished."""
    filled(tmp_path)
    store = Store(tmp_path, segment_bytes=SMALL)
    log, before = store.log("a"), everything(store)
    closing = threading.Thread(target=store.close)

    def turn() -> None:
        closing.start()
        with pytest.raises(Stopped):
            while True:
                log.append(batch_of("a", 0, 1), expected=log.next_seq).result()
        for _ in range(100):
            with pytest.raises(BusyError):
                Store(tmp_path)

    with pytest.raises(Stopped):
        compact(store, turn)
    closing.join()
    with Store(tmp_path) as store:
        assert numbers(store.log("b").read()) == before["b"][0]
        assert not list(tmp_path.glob("*.parquet"))


def test_a_parquet_file_says_which_log_and_which_row(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store(tmp_path, segment_bytes=SMALL) as store:
        compact(store)
        kept = numbers(store.log("a").read())
    # Two logs of one schema share a file.
    rows = [row for path in sorted(tmp_path.glob("*1of2.parquet")) for row in pq.read_table(path).to_pylist()]
    rows += [row for path in sorted(tmp_path.glob("*2of2.parquet")) for row in pq.read_table(path).to_pylist()]
    of_a = [row for row in rows if row["fastflight.log"] == "a"]
    assert of_a and all(row["data"] == f"a:{row['fastflight.seq']}".encode() for row in of_a)
    assert {row["fastflight.seq"] for row in of_a} <= kept


def test_holes_cost_no_row_groups(tmp_path: Path) -> None:
    """A footer is read whole, and takes 6 kB of memory for each row group of six columns."""
    with Store(tmp_path, sync_ms=0, segment_bytes=SMALL) as store:
        for name in ("a", "b"):
            log = store.open(name, SCHEMA)
            for first in range(0, 300, 3):
                log.append(batch_of(name, first, 2), first=first).result()
    with Store(tmp_path, segment_bytes=SMALL) as store:
        before = everything(store)
        assert len(before["a"][1]) == 99
        assert compact(store)
        assert everything(store) == before
        assert numbers(store.log("b").read(Range(100, 200))) == {n for n in range(100, 201) if n % 3 != 2}
    files = sorted(tmp_path.glob("*.parquet"))
    # A row group for each of the logs in it.
    assert files and all(pq.read_metadata(path).num_row_groups <= 2 for path in files)
    for index in tmp_path.glob("*.parts"):
        index.unlink()
    rebuilt = StoreReader(tmp_path)
    assert all(numbers(checked(name, rebuilt.log(name).read(), SCHEMA)) == before[name][0] for name in before)


def test_it_holds_three_row_groups_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It works beside everything else that a server does. A row group is no larger than is said, but for one lot."""
    limit = 200_000
    monkeypatch.setattr(compaction, "ROW_GROUP_BYTES", limit)
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", limit)
    monkeypatch.setattr(segment, "JOINED_BYTES", joined := 20_000)
    record = pa.record_batch([pa.array(range(100), TIME_TYPE), pa.array([b"x" * 100] * 100)], schema=PLAIN)
    with Store(tmp_path, sync_ms=0, segment_bytes=1_000_000) as store:
        for _ in range(400):
            store.open("plain", PLAIN).append(record).result()
    held: list[int] = []
    with Store(tmp_path) as store:
        before = pa.total_allocated_bytes()
        assert compact(store, lambda: held.append(pa.total_allocated_bytes() - before))
    assert 0 < max(held) < 3 * limit
    (file,) = tmp_path.glob("*.parquet")
    metadata = pq.read_metadata(file)
    rows = max(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
    assert rows * record.nbytes / record.num_rows <= limit + joined + record.nbytes


@pytest.mark.parametrize(
    ("come_back", "why"),
    [
        (lambda reads: reads[:-1], "too few rows"),
        (lambda reads: [*reads, reads[-1]], "too many rows"),
        (lambda reads: [read._replace(batch=read.batch and read.batch.slice(1)) for read in reads], "other values"),
        (lambda reads: [ReadResult(read.entry, None, "it is damaged") for read in reads], "it is damaged"),
    ],
)
def test_what_comes_back_changed_is_not_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, come_back: Callable[[list[ReadResult]], list[ReadResult]], why: str
) -> None:
    filled(tmp_path)
    read = Compacted.read
    monkeypatch.setattr(Compacted, "read", lambda *given: iter(come_back(list(read(*given)))))
    with Store(tmp_path, segment_bytes=SMALL) as store:
        before, files = everything(store), {path.name for path in tmp_path.iterdir()}
        with pytest.raises(StorageError, match=f"came back changed from Parquet: {why}"):
            compact(store)
        assert everything(store) == before
        assert {path.name for path in tmp_path.iterdir()} == files


def test_trimmed_rows_do_not_come_along(tmp_path: Path) -> None:
    filled(tmp_path)
    with Store(tmp_path, segment_bytes=SMALL) as store:
        store.log("a").trim(30).result()
        before = everything(store)
        compact(store)
        assert everything(store) == before
    rows = [row for path in tmp_path.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert min(row["fastflight.seq"] for row in rows if row["fastflight.log"] == "a") >= 30
    with Store(tmp_path, segment_bytes=SMALL) as store:
        assert everything(store) == before


def test_values_that_equal_nothing_survive(tmp_path: Path) -> None:
    schema = pa.schema([PLAIN.field(0), ("value", pa.float64()), ("nested", pa.list_(pa.float32()))])
    batch = pa.record_batch(
        [
            batch_of("x", 0, 2, PLAIN).column(0),
            pa.array([math.nan, -0.0]),
            pa.array([[math.nan], None], pa.list_(pa.float32())),
        ],
        schema=schema,
    )
    with Store(tmp_path, sync_ms=0, segment_bytes=1) as store:
        log = store.open("x", schema)
        for _ in range(2):
            log.append(batch).result()
        assert compact(store)
        (first, _) = [item for item in log.read() if hasattr(item, "batch")]
        assert repr(first.batch.to_pylist()) == repr(batch.to_pylist())


def test_small_batches_that_each_have_words_of_their_own_keep_them(tmp_path: Path) -> None:
    """They are read together, and each brings its dictionary."""
    words = ["rx", "tx", "reset", "", "rx"]
    with Store(tmp_path, sync_ms=0) as store:
        log = store.open("x", SCHEMA)
        for seq, word in enumerate(words):
            batch = batch_of("x", seq, 1)
            log.append(
                batch.set_column(1, SCHEMA.field(1), pa.array([word]).dictionary_encode().cast(SCHEMA.field(1).type))
            )
        log.append(batch_of("x", len(words), 1)).result()
    with Store(tmp_path, sync_ms=0, segment_bytes=1) as store:
        store.open("last", PLAIN).append(batch_of("last", 0, 1, PLAIN)).result()
        assert compact(store)
        rows = pa.concat_tables(
            pa.table(item.batch) for item in store.log("x").read() if isinstance(item, NumberedRows)
        )
        assert rows.column("direction").to_pylist()[: len(words)] == words
        assert rows.column("data").to_pylist() == [f"x:{seq}".encode() for seq in range(len(words) + 1)]


def test_a_type_that_parquet_lacks_stays_in_segments(tmp_path: Path) -> None:
    schema = pa.schema([PLAIN.field(0), ("span", pa.month_day_nano_interval())])
    with Store(tmp_path, sync_ms=0, segment_bytes=1) as store:
        log = store.open("x", schema)
        for i in range(3):
            times = pa.array([i], schema.field(0).type)
            log.append(pa.record_batch([times, pa.array([(1, 2, 3)], schema.field(1).type)], schema=schema)).result()
        assert compact(store) == []
        assert numbers(log.read()) == {0, 1, 2}
    assert not list(tmp_path.glob("*.parquet"))


def of_many_schemas(folder: Path, schemas: int, logs: int) -> dict[str, list[tuple[int, bytes]]]:
    """Logs of so many schemas, compacted into one part; what each of them holds."""
    with Store(folder, sync_ms=0) as store:
        for turn in range(3):
            for i in range(logs):
                schema = pa.schema([*PLAIN, (f"column {i % schemas}", pa.int32())])
                values = pa.array([turn, turn], pa.int32())
                batch = pa.record_batch([*batch_of(f"log {i}", 2 * turn, 2, PLAIN).columns, values], schema=schema)
                store.open(f"log {i}", schema).append(batch).result()
    with Store(folder, sync_ms=0, segment_bytes=1) as store:
        store.open("last", PLAIN).append(batch_of("last", 0, 1, PLAIN)).result()
        assert len(compact(store)) == 1
        return contents(store)


def contents(store: Store) -> dict[str, list[tuple[int, bytes]]]:
    found: dict[str, list[tuple[int, bytes]]] = {}
    for name in store.names():
        rows = [item for item in store.log(name).read() if isinstance(item, NumberedRows)]
        found[name] = [
            (item.first + at, value.as_py()) for item in rows for at, value in enumerate(item.batch.column("data"))
        ]
    return found


def test_ten_files_and_more_are_told_apart_when_opened_again(tmp_path: Path) -> None:
    """By their names as text the tenth comes before the first."""
    before = of_many_schemas(tmp_path, 11, 11)
    assert len(list(tmp_path.glob("*.parquet"))) == 11
    with Store(tmp_path) as store:
        assert contents(store) == before


def test_a_file_that_is_lost_costs_its_rows_alone(tmp_path: Path) -> None:
    before = of_many_schemas(tmp_path, 2, 2)
    next(tmp_path.glob("*.1of2.parquet")).unlink()
    with Store(tmp_path) as store:
        lost = [name for name, rows in contents(store).items() if not rows]
        assert len(lost) == 1
        assert contents(store) == before | {lost[0]: []}
        for there in (store, StoreReader(tmp_path)):
            assert missing(there.log(lost[0]).read()) == [(0, 5, "damaged")]
    next(tmp_path.glob("*.parts")).write_bytes(b"damaged as well")
    with Store(tmp_path) as store:
        assert contents(store) == {name: rows for name, rows in before.items() if name != lost[0]}
        assert store.statistics().damage
