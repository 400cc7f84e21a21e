"""The store in JetStream: damage, lost acknowledgements, other writers, nodes that are killed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fastflight.cluster import part_bucket
from fastflight.cluster.log_stream import BUCKET, STREAM, LogStream, subject_of
from fastflight.cluster.log_writer import MAX_BODY_BYTES
from fastflight.cluster.record import Record, Totals, encode_record
from fastflight.cluster.replicated_log import ReplicatedLog
from fastflight.cluster.replicated_store import ReplicatedStore
from fastflight.errors import BusyError, DataError, SequenceConflict, StorageError, StorageFull, TransportTimeout
from fastflight.log import Appended, Missing, Range
from fastflight.log.content import log_number
from tests.log.engines import JetStreamEngine
from tests.log.rows import PLAIN, SCHEMA, batch_of, checked, missing, numbers, time_of
from tests.support.refusals import refused
from tests.support.waiting import until

LOT = 10


def filled(store: ReplicatedStore, name: str = "demo", lots: int = 5) -> ReplicatedLog:
    log = store.open(name, SCHEMA)
    for lot in range(lots):
        log.append(batch_of(name, lot * LOT, LOT)).result()
    return log


def flip(engine: JetStreamEngine, folder: Path, row: str, *, killed: bool = False) -> None:
    """Stop the first node, flip a bit in the message that holds a row, and start it again."""
    node = engine.nats.nodes[0]
    node.kill() if killed else node.stop()
    (file,) = (folder / node.name).glob("**/streams/fastflight/msgs/*.blk")
    data = bytearray(file.read_bytes())
    data[data.index(row.encode())] ^= 1
    file.write_bytes(data)
    node.start()
    wait_for(engine)


def wait_for(engine: JetStreamEngine) -> None:
    until(lambda: all(node.is_healthy() for node in engine.nats.nodes))
    engine.shard.submit(engine.connection.connected()).result()


def test_a_flipped_bit_in_the_store_of_nats_is_reported_by_its_numbers(tmp_path: Path) -> None:
    """NATS itself leaves the message out, and says nothing."""
    with JetStreamEngine.started(tmp_path) as engine:
        with engine.replicated() as store:
            filled(store)
        flip(engine, tmp_path, "demo:25")
        with engine.replicated() as store:
            log = store.open("demo", SCHEMA)
            assert missing(checked("demo", log.read())) == [(20, 29, "damaged")]
            assert numbers(log.read(Range(25, 32))) == {30, 31, 32}
            assert missing(log.read(Range(from_time=time_of(15)))) == [(20, 29, "damaged")]
            assert log.append(batch_of("demo", 50, 5)).result() == Appended(50, 54)


def test_the_end_of_a_stream_that_nats_cut_off_is_reported_by_its_writer(tmp_path: Path) -> None:
    """A node that was killed reads its files again, and forgets everything from the first flipped bit on."""
    with JetStreamEngine.started(tmp_path) as engine, engine.replicated() as store:
        log = filled(store)
        flip(engine, tmp_path, "demo:25", killed=True)
        assert missing(checked("demo", log.read())) == [(20, 49, "damaged")]
        with pytest.raises(SequenceConflict):
            log.append(batch_of("demo", 50, 5)).result()
        assert log.append(batch_of("demo", 50, 5), expected=50).result() == Appended(50, 54)
        with engine.replicated() as other:
            items = list(checked("demo", other.log("demo").read()))
        assert missing(items) == [(20, 49, "damaged")] and numbers(items) == {*range(20), *range(50, 55)}


def test_a_flipped_bit_in_the_newest_message_is_an_error_to_readers_and_to_the_writer(tmp_path: Path) -> None:
    with JetStreamEngine.started(tmp_path) as engine:
        with engine.replicated() as store:
            filled(store)
            filled(store, "other", 1)
        flip(engine, tmp_path, "demo:45")
        with engine.replicated() as store:
            log = store.open("demo", SCHEMA)
            items: list[object] = []
            with pytest.raises(StorageError, match="from number 40 on, are damaged"):
                items.extend(log.read())
            with pytest.raises(StorageError, match="damaged"):
                log.append(batch_of("demo", 50, 1))
            assert numbers(log.read(Range(0, 39))) == set(range(40))
            assert numbers(store.log("other").read()) == set(range(10))


def test_a_flipped_bit_on_one_of_three_nodes_is_read_from_another(tmp_path: Path) -> None:
    with JetStreamEngine.started(tmp_path, replicas=3) as engine, engine.replicated() as store:
        log = filled(store)
        flip(engine, tmp_path, "demo:25")
        for _ in range(5):
            items = list(checked("demo", log.read()))
            assert missing(items) == [] and numbers(items) == set(range(50))


def test_a_message_whose_own_checksum_is_wrong(engine: JetStreamEngine) -> None:
    with engine.replicated() as store:
        log = filled(store, lots=1)
        _, tail = store.call(store.stream.end("demo"))
        body = log.codec.encode(batch_of("demo", 10, LOT))
        end = 10
        seq = tail.seq
        for changed in (True, False):
            record = Record(log_number("demo"), seq, 0, end, end, end, LOT, 0, 0, Totals(), body)
            message = bytearray(encode_record(record))
            message[-1] ^= changed
            seq = store.call(store.stream.publish(subject_of("demo"), bytes(message), seq)) or 0
            end += LOT
            body = log.codec.encode(batch_of("demo", end, LOT))
        items = list(checked("demo", log.read()))
    assert numbers(items) == {*range(10), *range(20, 30)}
    (hole,) = (item for item in items if isinstance(item, Missing))
    assert (hole.first, hole.last, hole.reason) == (10, 19, "damaged") and "message" in hole.where


def test_a_reading_from_the_first_row_does_not_search_the_stream(engine: JetStreamEngine) -> None:
    with engine.replicated() as store:
        filled(store, "other", 60)
        log = filled(store, "demo", 2)
        client = engine.shard.submit(engine.connection.connected()).result()

        def requests(wanted: Range, rows: set[int]) -> int:
            before = client.stats["out_msgs"]
            assert numbers(log.read(wanted)) == rows
            return client.stats["out_msgs"] - before

        requests(Range(), set(range(20)))  # the parts are listed once
        assert requests(Range(), set(range(20))) < requests(Range(from_seq=15), set(range(15, 20)))


def test_a_lost_acknowledgement_stores_rows_once(engine: JetStreamEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = LogStream.publish
    lost: list[int | None] = []

    async def deaf(self: LogStream, subject: str, data: bytes, last: int) -> int | None:
        seq = await publish(self, subject, data, last)
        if subject.startswith("rec.") and len(lost) < 3:
            lost.append(seq)
            raise TransportTimeout("NATS does not answer in time")
        return seq

    with engine.replicated() as store:
        monkeypatch.setattr(LogStream, "publish", deaf)
        log = filled(store)
        items = list(checked("demo", log.read()))
    assert len(lost) == 3 and numbers(items) == set(range(50)) and missing(items) == []


def test_a_second_writer_is_refused_and_can_go_on_where_the_first_ended(engine: JetStreamEngine) -> None:
    with engine.replicated() as first, engine.replicated() as second:
        one, other = filled(first, lots=1), second.open("demo", SCHEMA)
        assert other.append(batch_of("demo", 10, 5)).result() == Appended(10, 14)
        with pytest.raises(SequenceConflict) as conflict:
            one.append(batch_of("demo", 10, LOT)).result()
        assert (conflict.value.expected, conflict.value.actual) == (10, 15)
        assert one.append(batch_of("demo", one.next_seq, 5)).result() == Appended(15, 19)
        assert numbers(checked("demo", other.read())) == set(range(20))


def test_a_writer_with_an_older_token_is_refused(engine: JetStreamEngine) -> None:
    with engine.replicated() as first, engine.replicated() as second:
        old, new = first.open("demo", SCHEMA, token=5), second.open("demo", SCHEMA, token=9)
        old.append(batch_of("demo", 0, LOT)).result()
        new.append(batch_of("demo", 10, LOT)).result()
        for _ in range(2):
            with pytest.raises(BusyError, match="another server"):
                old.append(batch_of("demo", 10, LOT), first=20).result()
        assert first.open("demo", SCHEMA, token=12) is old
        assert old.append(batch_of("demo", 20, LOT)).result() == Appended(20, 29)


def test_a_batch_that_is_too_large_for_a_message_becomes_several(engine: JetStreamEngine) -> None:
    def row(size: int) -> pa.RecordBatch:
        time = pa.array([1_000], pa.timestamp("us", "UTC"))
        return pa.record_batch([time, pa.array([b"x" * size])], schema=PLAIN)

    with engine.replicated() as store:
        log = store.open("demo", PLAIN)
        large = pa.concat_batches([row(300_000)] * 10)
        assert log.append(large, first=3).result() == Appended(3, 12)
        items = list(log.read())
        assert missing(items) == [(0, 2, "never written")] and numbers(items) == set(range(3, 13))
        with pytest.raises(DataError, match="a row of"):
            log.append(row(MAX_BODY_BYTES))


def test_a_full_stream_says_so_and_goes_on_with_room(engine: JetStreamEngine) -> None:
    async def limit(max_bytes: int) -> None:
        jetstream = await store.stream.messages.jetstream()
        config = (await jetstream.stream_info("fastflight")).config
        await jetstream.update_stream(config.evolve(max_bytes=max_bytes))

    with engine.replicated() as store:
        log = filled(store, lots=1)
        store.call(limit(1_500))
        with refused(StorageFull):
            filled(store, "other", 5)
        store.call(limit(-1))
        assert log.append(batch_of("demo", 10, LOT)).result() == Appended(10, 19)


@pytest.mark.parametrize("deleted", [[STREAM], [f"KV_{BUCKET}"], [STREAM, f"KV_{BUCKET}", part_bucket.STREAM]])
def test_a_stream_that_was_deleted_comes_back(engine: JetStreamEngine, deleted: list[str]) -> None:
    async def delete() -> None:
        for name in deleted:
            await engine.connection.jetstream.delete_stream(name)

    with engine.replicated() as store:
        filled(store)
        engine.shard.submit(delete()).result()
        assert store.sweep() == 0 and store.names() == ([] if len(deleted) > 1 or STREAM not in deleted else ["demo"])
        log = store.open("demo", SCHEMA)  # as the hand-over does before each step
        assert log.append(batch_of("demo", 50, LOT)).result() == Appended(50, 59)
        assert store.names() == ["demo"]
        assert numbers(checked("demo", log.read())) >= set(range(50, 60))
    with engine.replicated() as other:
        log = other.log("demo")
        assert log.next_seq == 60
        assert numbers(checked("demo", log.read())) == set(range(0 if STREAM not in deleted else 50, 60))


def test_acknowledged_rows_outlive_a_node_that_is_killed(tmp_path: Path) -> None:
    with JetStreamEngine.started(tmp_path, replicas=3) as engine, engine.replicated() as store:
        log = filled(store, lots=1)
        tickets = [log.append(batch_of("demo", lot * LOT, LOT)) for lot in range(1, 20)]
        tickets[0].result()
        engine.nats.nodes[0].kill()
        assert [ticket.result().first for ticket in tickets] == list(range(10, 200, 10))
        engine.nats.nodes[0].start()
        wait_for(engine)
        items = list(checked("demo", log.read()))
        assert missing(items) == [] and numbers(items) == set(range(200))
