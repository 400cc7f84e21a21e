"""Compaction in JetStream: no row is lost or there twice, whenever a server is killed, and damage is reported."""

from __future__ import annotations

import io
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fastflight.cluster import log_stream, part_bucket
from fastflight.cluster.compaction import CompactionLimits
from fastflight.cluster.log_stream import LogStream
from fastflight.cluster.replicated_store import ReplicatedStore
from fastflight.cluster.stream import Stream
from fastflight.errors import BusyError, StorageError
from fastflight.log import EVERYTHING, Appended, Range, Retention
from fastflight.log.compacted import index_name, parquet_names
from tests.log.engines import EVERYTHING_NOW, JetStreamEngine
from tests.log.rows import SCHEMA, batch_of, checked, missing, numbers, time_of
from tests.log.test_stored import numbers_in
from tests.support.waiting import until

LOT = 10
NAMES = ("demo", "other")


class Killed(Exception):
    """The process is killed at this step."""


def filled(store: ReplicatedStore, first: int = 0, lots: int = 5) -> None:
    for name in NAMES:
        log = store.open(name, SCHEMA)
        for lot in range(first, first + lots):
            log.append(batch_of(name, lot * LOT, LOT)).result()


def compacted(store: ReplicatedStore, folder: Path, limits: CompactionLimits = EVERYTHING_NOW) -> list[str]:
    return store.compact(folder / "compacting", limits=limits)


def whole(store: ReplicatedStore, rows: int, names: tuple[str, ...] = NAMES) -> None:
    """All rows are there, once, by number and by time, and are counted."""
    for name in names:
        log = store.log(name)
        items = list(checked(name, log.read()))
        assert missing(items) == [] and numbers(items) == set(range(rows))
        late = log.read(Range(from_time=time_of(rows // 3), until_time=time_of(rows - 3)))
        assert numbers(checked(name, late)) == set(range(rows // 3, rows - 3))
        statistics = log.statistics()
        assert (statistics.rows, statistics.first_seq, statistics.next_seq) == (rows, 0, rows)
        assert sum(extent.rows for extent in log.extents(Range(15, rows - 6))) == rows - 20


def test_older_messages_become_parquet_and_newer_ones_stay(engine: JetStreamEngine, tmp_path: Path) -> None:
    with engine.replicated() as store:
        filled(store, lots=10)
        assert len(compacted(store, tmp_path)) == 1
        whole(store, 100)
        filled(store, 10, 10)
        limits = CompactionLimits(messages=8, due=2, quiet_seconds=0)
        assert len(compacted(store, tmp_path, limits)) == 1
        assert 8 <= store.call(store.stream.bounds()).messages < 16
        whole(store, 200)
        assert not (tmp_path / "compacting").exists()
        with engine.replicated() as other:
            whole(other, 200)


def test_an_engine_that_reads_parquet_has_the_files(engine: JetStreamEngine, tmp_path: Path) -> None:
    with engine.replicated() as store:
        filled(store, lots=10)
        log = store.log("demo")
        with closing(log.stored()) as rows:
            assert (rows.files, rows.end, rows.whole) == ([], 0, False)
        for lot in (10, 20):
            compacted(store, tmp_path)
            filled(store, lot, 10)
        for wanted, limit, end in (
            (EVERYTHING, None, 200),
            (Range(from_seq=30), None, 200),
            (Range(from_time=time_of(50), until_time=time_of(250)), None, 200),
            (Range(120, 149), None, 150),
            (EVERYTHING, 7, 100),
        ):
            expected = sorted(numbers(log.read(wanted)))[:limit]
            with closing(log.stored(wanted, limit)) as rows:
                assert rows.files and rows.end == end and rows.whole == (end < 200)
                both = numbers_in(rows)
                if not rows.whole:
                    both |= numbers(log.read(replace(wanted, from_seq=rows.end)))
            assert set(expected) <= both  # an engine applies the times and the limit again
            if wanted.from_time is None:
                assert sorted(both) == expected


def test_any_client_of_the_object_store_reads_the_parquet_files(engine: JetStreamEngine, tmp_path: Path) -> None:
    async def get(name: str) -> bytes:
        bucket = await engine.connection.jetstream.object_store(part_bucket.BUCKET)
        return (await bucket.get(name)).data or b""

    with engine.replicated() as store:
        filled(store)
        compacted(store, tmp_path)
        (name,) = [name for name in store.parts.disk.names() if name.endswith(".parquet")]
        table = pq.read_table(io.BytesIO(engine.shard.submit(get(name)).result()))
    assert table["data"].to_pylist()[::25] == [b"demo:0", b"demo:25", b"other:0", b"other:25"]


def test_a_writer_goes_on_after_its_last_message_was_compacted(engine: JetStreamEngine, tmp_path: Path) -> None:
    with engine.replicated() as store, engine.replicated() as other:
        filled(store)
        compacted(other, tmp_path)
        assert store.log("demo").append(batch_of("demo", 50, LOT), expected=50).result() == Appended(50, 59)
        filled_up = other.open("other", SCHEMA).append(batch_of("other", 50, LOT), first=50)
        assert filled_up.result() == Appended(50, 59)
        whole(other, 60)


def test_gaps_are_kept_with_their_reasons(engine: JetStreamEngine, tmp_path: Path) -> None:
    holes = [(0, 4, "not recorded"), (10, 11, "never written"), (15, 97, "not recorded"), (98, 99, "never written")]
    with engine.replicated() as store:
        log = store.open("demo", SCHEMA)
        log.append(batch_of("demo", 5, 5), first=5, paused_until=5).result()
        log.append(batch_of("demo", 12, 3), first=12).result()
        compacted(store, tmp_path)
        log.append(batch_of("demo", 100, 3), first=100, paused_until=98).result()
        for _ in range(2):
            assert missing(checked("demo", log.read())) == holes
            assert (log.statistics().lost, log.statistics().rows) == (4, 11)
            compacted(store, tmp_path)


def test_a_server_that_is_killed_at_any_step_loses_nothing(
    engine: JetStreamEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request that changes something is the last one of a process, before it is sent or after it was answered."""
    steps, dies_before = 0, False
    dying = False

    def mortal(act: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def act_or_die(*arguments: object) -> object:
            nonlocal steps
            steps -= dying
            if dying and steps == 0 and dies_before:
                raise Killed
            found = await act(*arguments)
            if dying and steps == 0:
                raise Killed
            return found

        return act_or_die

    for name in ("publish", "purge"):
        monkeypatch.setattr(Stream, name, mortal(getattr(Stream, name)))
    rows, deaths = 0, 0
    with engine.replicated() as reader:
        while True:
            filled(reader, rows // LOT, 1)
            rows += LOT
            with engine.replicated() as store:
                steps, dies_before, dying = deaths // 2 + 1, deaths % 2 == 0, True
                try:
                    compacted(store, tmp_path)
                    break
                except Killed:
                    deaths += 1
                finally:
                    dying = False
            if rows > 30:
                whole(reader, rows, NAMES[:1])
        compacted(reader, tmp_path)
        whole(reader, rows)
        # It dies before and after: two claims, two files, two states and the deletion of the messages.
        assert deaths >= 2 * (2 + 4 + 2 + 1)
        assert len(reader.parts.disk.names()) == 2 * len(reader.parts.all())


def test_two_servers_at_the_same_time(engine: JetStreamEngine, tmp_path: Path) -> None:
    """Whatever they do at the same time, there is one part for each row, and whoever is overtaken gives up."""
    with engine.replicated() as one, engine.replicated() as other, ThreadPoolExecutor(2) as threads:
        for lot in range(0, 100, 10):
            filled(one, lot, 10)
            list(threads.map(lambda store: compacted(store, tmp_path / str(id(store))), (one, other)))
            whole(one, (lot + 10) * LOT)
        parts = one.parts.all()
        assert all(before.last_ordinal < after.ordinal for before, after in pairwise(parts))


def test_a_server_that_was_overtaken_cannot_make_its_part_valid(engine: JetStreamEngine, tmp_path: Path) -> None:
    with engine.replicated() as store:
        filled(store)
        slow = store.call(store.parts.bucket.upload(store.call(store.parts.bucket.bounds()).last))
        first, last, *_ = store.call(store.stream.bounds())
        store.call(slow.put(parquet_names(first, last - 1, 1)[0], b"x" * 300_000))
        assert len(compacted(store, tmp_path)) == 1
        with pytest.raises(BusyError, match="another server"):
            store.call(slow.put(index_name(first, last - 1), b"x"))
        assert len(store.parts.disk.names()) == 2
        whole(store, 50)


def test_another_server_at_work_is_left_alone(engine: JetStreamEngine, tmp_path: Path) -> None:
    now = 0.0
    limits = CompactionLimits(due=0, quiet_seconds=100)
    with engine.replicated() as busy, engine.replicated(clock=lambda: now) as store:
        filled(store)
        compacted(busy, tmp_path)
        filled(store, 5, 5)
        for seconds, made in ((1, 0), (100, 0), (101, 1)):
            now = seconds
            assert len(compacted(store, tmp_path, limits)) == made
        filled(store, 10, 5)
        assert len(compacted(store, tmp_path, limits)) == 1  # it is the one that was at work
        whole(store, 150)


def test_messages_that_are_compacted_during_a_read_are_read_from_the_part(
    engine: JetStreamEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogStream.next_page, "__defaults__", (2,))  # messages in a page
    with engine.replicated() as store:
        rows = 0
        for timed in (False, True):
            for step in range(1, 5):
                low, high = rows + 15, rows + 90
                filled(store, rows // LOT, 10)
                rows += 100
                wanted = Range(from_time=time_of(low), until_time=time_of(high)) if timed else Range(low, high - 1)
                reading = checked("demo", store.log("demo").read(wanted))
                items = [next(reading) for _ in range(step)]
                compacted(store, tmp_path)
                items += reading
                assert missing(items) == [] and numbers(items) == set(range(low, high)), (timed, step)


def test_damaged_messages_are_not_compacted(tmp_path: Path) -> None:
    with JetStreamEngine.started(tmp_path) as engine, engine.replicated() as store:
        filled(store)
        flip(engine, tmp_path, log_stream.STREAM, b"demo:25")
        with pytest.raises(StorageError, match="damaged messages"):
            compacted(store, tmp_path)
        assert store.parts.all() == []
        assert missing(checked("demo", store.log("demo").read())) == [(20, 29, "damaged")]


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_flipped_bit_in_a_parquet_file_is_read_elsewhere_or_reported(tmp_path: Path, replicas: int) -> None:
    with JetStreamEngine.started(tmp_path, replicas) as engine, engine.replicated() as store:
        filled(store)
        compacted(store, tmp_path)
        filled(store, 5, 1)
        flip(engine, tmp_path, part_bucket.STREAM, b"PAR1")
        for name in NAMES:
            items = list(checked(name, store.log(name).read()))
            if replicas == 3:
                assert missing(items) == [] and numbers(items) == set(range(60))
            else:
                assert missing(items) == [(0, 49, "damaged")] and numbers(items) == set(range(50, 60))


def test_a_flipped_bit_in_the_index_costs_nothing(tmp_path: Path) -> None:
    """The index is derived from the Parquet files, which have checksums of their own."""
    with JetStreamEngine.started(tmp_path) as engine:
        with engine.replicated() as store:
            filled(store)
            compacted(store, tmp_path)
        flip(engine, tmp_path, part_bucket.STREAM, b"FFPRT")
        with engine.replicated() as store:
            filled(store, 5, 1)
            whole(store, 60)


def test_retention_deletes_the_oldest_parts_first(engine: JetStreamEngine, tmp_path: Path) -> None:
    with engine.replicated() as store:
        for lot in range(0, 40, 10):
            filled(store, lot, 10)
            if lot < 30:
                compacted(store, tmp_path)
        sizes = [part.size for part in store.parts.all()]
        messages = store.call(store.stream.bounds()).bytes
    for kept, first in ((3, 0), (2, 100), (0, 300)):
        with engine.replicated(Retention(max_bytes=sum(sizes[3 - kept :]) + messages)) as store:
            assert store.sweep() == (first > 0) * (1 if kept == 2 else 2)
            for name in NAMES:
                items = list(checked(name, store.log(name).read(Range(from_seq=0))))
                assert numbers(items) == set(range(first, 400))
                assert missing(items) == ([(0, first - 1, "trimmed")] if first else [])
                assert store.log(name).statistics().first_seq == first


def test_parts_are_too_old_when_the_next_one_is(engine: JetStreamEngine, tmp_path: Path) -> None:
    now = time.time()
    with engine.replicated(Retention(max_seconds=1000), lambda: now) as store:
        for lot in range(0, 30, 10):
            filled(store, lot, 10)
            if lot < 20:
                compacted(store, tmp_path)
        now += 601  # the clocks have kept pace for ten minutes
        assert store.sweep() == 0
        now += 1001
        store.sweep()
        assert list(store.log("demo").read()) == [] and store.parts.all() == []
        assert store.log("demo").statistics().next_seq == 300


def flip(engine: JetStreamEngine, folder: Path, stream: str, mark: bytes) -> None:
    """Stop the first node, flip a bit of a message of `stream` that holds `mark`, and start it again."""
    node = engine.nats.nodes[0]
    node.stop()
    (file,) = (folder / node.name).glob(f"**/streams/{stream}/msgs/*.blk")
    data = bytearray(file.read_bytes())
    data[data.index(mark)] ^= 1
    file.write_bytes(data)
    node.start()
    until(lambda: all(node.is_healthy() for node in engine.nats.nodes))
    engine.shard.submit(engine.connection.connected()).result()
