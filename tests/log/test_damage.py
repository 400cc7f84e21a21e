"""Bytes that changed, or went, anywhere in what is kept: never served, always reported, and the rest is still there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastflight.log import Missing, NumberedRows, Range, Store, StoreReader, compact
from fastflight.log.compacted import LOG_COLUMN
from fastflight.log.segment import sidecar_name
from tests.log.disks import MemoryDisk, State
from tests.log.rows import PLAIN, SCHEMA, batch_of, checked, missing, numbers

LOT = 3
LOTS = 3
ALL = set(range(LOT * LOTS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log")


def kept(folder: Path, *, closed: bool = False, parquet: bool = False) -> State:
    """One log in one small segment; with `closed` there is another segment after it, with `parquet` it is compacted."""
    disk = MemoryDisk()
    with Store(folder, sync_ms=0, disk=disk) as store:
        for i in range(LOTS):
            store.open("a", SCHEMA).append(batch_of("a", i * LOT, LOT)).result()
    if closed:
        with Store(folder, sync_ms=0, segment_bytes=1, disk=disk) as store:
            store.open("a", SCHEMA).append(batch_of("a", LOT * LOTS, 1)).result()
            if parquet:
                assert compact(store)
    return disk.state()


LOGS = {"a": SCHEMA, "b": SCHEMA, "c": PLAIN}


def several(folder: Path) -> State:
    """Three logs of two schemas, compacted, with a segment after them."""
    disk = MemoryDisk()
    with Store(folder, sync_ms=0, disk=disk) as store:
        for i in range(LOTS):
            for name, schema in LOGS.items():
                store.open(name, schema).append(batch_of(name, i * LOT, LOT, schema)).result()
    with Store(folder, sync_ms=0, segment_bytes=1, disk=disk) as store:
        store.open("last", PLAIN).append(batch_of("last", 0, 1, PLAIN)).result()
        assert compact(store)
    return disk.state()


def logs_in(parquet: bytes) -> set[str]:
    return set(pq.read_table(pa.BufferReader(parquet)).column(LOG_COLUMN).to_pylist())


def segment(state: State, ordinal: int = 0) -> str:
    return next(name for name in state if name.startswith(f"{ordinal:012d}-") and name.endswith(".seg"))


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    for at in range(len(data)):
        yield at, data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def served(state: State) -> list[NumberedRows | Missing]:
    """What a reader serves, all of it checked; empty where the log's name is what was damaged."""
    reader = StoreReader("", disk=MemoryDisk(state))
    return list(checked("a", reader.log("a").read())) if "a" in reader.names() else []


def test_any_flipped_bit_of_the_newest_segment(folder: Path) -> None:
    state = kept(folder)
    for at, changed in flips(state[segment(state)]):
        disk = MemoryDisk(state | {segment(state): changed})
        with Store(folder, sync_ms=0, disk=disk) as store:
            # Whoever records opens the log again, which says its name and schema where those were damaged.
            log = store.open("a", SCHEMA)
            items = list(checked("a", log.read()))
            found = numbers(items)
            lost = ALL - found
            reported = {n for first, last, _ in missing(items) for n in range(first, last + 1)}
            # One record at most is lost; what follows the last intact one was cut, and is reported as torn.
            assert len(lost) <= LOT, at
            assert lost == reported or store.statistics().damage, at
            if at % 8 == 0:
                log.append(batch_of("a", log.next_seq, 2)).result()
                assert found <= numbers(checked("a", log.read()))


def test_any_length_of_the_newest_segment(folder: Path) -> None:
    state = kept(folder)
    whole = state[segment(state)]
    for length in range(len(whole)):
        disk = MemoryDisk({segment(state): whole[:length]})
        with Store(folder, sync_ms=0, disk=disk) as store:
            log = store.open("a", SCHEMA)
            found = numbers(checked("a", log.read()))
            assert found == set(range(len(found))) and len(found) % LOT == 0
            torn = [damage for damage in store.statistics().damage if damage.torn]
            assert all(damage.offset + damage.bytes == length for damage in torn)
            log.append(batch_of("a", log.next_seq, 1), expected=len(found)).result()
            assert numbers(checked("a", log.read())) == set(range(len(found) + 1))


def test_any_flipped_bit_of_a_closed_segment_or_its_sidecar(folder: Path) -> None:
    state = kept(folder, closed=True)
    for name in (segment(state), sidecar_name(segment(state))):
        for at, changed in flips(state[name]):
            items = served(state | {name: changed})
            lost = (ALL | {LOT * LOTS}) - numbers(items)
            assert len(lost) <= (LOT if name.endswith(".seg") else 0), (name, at)
            # What is lost is told by its exact numbers, and where it was.
            assert lost == {n for first, last, _ in missing(items) for n in range(first, last + 1)}
            assert all(segment(state) in item.where for item in items if isinstance(item, Missing))


def test_any_flipped_bit_of_a_closed_segment_without_its_sidecar(folder: Path) -> None:
    state = kept(folder, closed=True)
    del state[sidecar_name(segment(state))]
    assert numbers(served(state)) == ALL | {LOT * LOTS}
    for at, changed in flips(state[segment(state)]):
        items = served(state | {segment(state): changed})
        lost = (ALL | {LOT * LOTS}) - numbers(items)
        assert len(lost) <= LOT, at
        assert lost == {n for first, last, _ in missing(items) for n in range(first, last + 1)}, at


@pytest.mark.parametrize("suffix", [".parts", ".parquet"])
def test_any_flipped_bit_of_a_compacted_part(folder: Path, suffix: str) -> None:
    state = kept(folder, closed=True, parquet=True)
    name = next(name for name in state if name.endswith(suffix))
    for at, changed in flips(state[name]):
        items = served(state | {name: changed})
        lost = (ALL | {LOT * LOTS}) - numbers(items)
        assert not lost or suffix == ".parquet", at
        assert lost == {n for first, last, _ in missing(items) for n in range(first, last + 1)}, at


def test_a_compacted_part_without_its_index_is_read_all_the_same(folder: Path) -> None:
    state = kept(folder, closed=True, parquet=True)
    del state[next(name for name in state if name.endswith(".parts"))]
    assert numbers(served(state)) == ALL | {LOT * LOTS}
    with Store(folder, disk=MemoryDisk(state)) as store:
        assert numbers(checked("a", store.log("a").read())) == ALL | {LOT * LOTS}


def test_any_flipped_bit_of_a_compacted_part_of_several_logs(folder: Path) -> None:
    """Two logs share a file, a third has one of its own: no row of one ever passes for a row of another."""
    state = several(folder)
    for name in [name for name in state if name.endswith((".parts", ".parquet"))]:
        for at, changed in list(flips(state[name]))[:: 5 if name.endswith(".parts") else 29]:
            with Store(folder, disk=MemoryDisk(state | {name: changed})) as store:
                for log, schema in LOGS.items():
                    found = numbers(checked(log, store.open(log, schema).read(), schema))
                    assert found == ALL or name.endswith(".parquet"), (name, at)


def test_any_flipped_bit_of_a_compacted_part_without_its_index(folder: Path) -> None:
    """Each of its files is sealed: what says where rows lie, and what they are, is believed no more than they are."""
    state = several(folder)
    del state[next(name for name in state if name.endswith(".parts"))]
    for name in [name for name in state if name.endswith(".parquet")]:
        others = set(LOGS) - logs_in(state[name])
        for at, changed in list(flips(state[name]))[::7]:
            with Store(folder, disk=MemoryDisk(state | {name: changed})) as store:
                schemas = {log: LOGS.get(log, PLAIN) for log in store.names()}
                found = {log: numbers(checked(log, store.log(log).read(), schemas[log])) for log in schemas}
                assert set(found) <= {*LOGS, "last"}
                assert all(found[log] == ALL for log in others), (name, at)
                lost = any(found.get(log) != ALL for log in LOGS)
                assert not lost or store.statistics().damage, (name, at)


def test_a_parquet_file_of_others_in_place_of_one_is_damage(folder: Path) -> None:
    """Without the index nothing else says that it is what was written."""
    state = several(folder)
    del state[next(name for name in state if name.endswith(".parts"))]
    name = next(name for name in state if name.endswith("1of2.parquet"))
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(state[name])), sink)
    with Store(folder, disk=MemoryDisk(state | {name: sink.getvalue().to_pybytes()})) as store:
        assert set(store.names()) == {"last", *LOGS} - logs_in(state[name])
        assert [(damage.offset, damage.bytes) for damage in store.statistics().damage] == [(0, len(sink.getvalue()))]


def test_a_damaged_row_group_costs_its_rows_alone_without_an_index_too(folder: Path) -> None:
    state = several(folder)
    del state[next(name for name in state if name.endswith(".parts"))]
    name = next(name for name in state if name.endswith("1of2.parquet"))
    data = bytearray(state[name])
    column = pq.read_metadata(pa.BufferReader(state[name])).row_group(0).column(1)
    data[column.dictionary_page_offset or column.data_page_offset] ^= 0xFF
    with Store(folder, disk=MemoryDisk(state | {name: bytes(data)})) as store:
        kept = {log: numbers(checked(log, store.open(log, schema).read(), schema)) for log, schema in LOGS.items()}
        assert sorted(map(len, kept.values())) == [0, len(ALL), len(ALL)]
        assert store.statistics().damage


def test_a_segment_that_is_gone_is_missed(folder: Path) -> None:
    disk = MemoryDisk()
    with Store(folder, sync_ms=0, segment_bytes=1, disk=disk) as store:
        for i in range(LOTS):
            store.open("a", SCHEMA).append(batch_of("a", i * LOT, LOT)).result()
    state = disk.state()
    del state[segment(state, 1)]
    items = served(state)
    assert numbers(items) == ALL - {3, 4, 5}
    assert missing(items) == [(3, 5, "damaged")]


def test_a_file_that_goes_while_it_is_read_is_missed(tmp_path: Path) -> None:
    with Store(tmp_path, sync_ms=0, segment_bytes=1) as store:
        log = store.open("a", SCHEMA)
        for i in range(LOTS):
            log.append(batch_of("a", i * LOT, LOT)).result()
        next(tmp_path.glob("000000000001-*.seg")).unlink()
        assert missing(checked("a", log.read())) == [(3, 5, "damaged")]
        assert numbers(log.read(Range(from_seq=6))) == ALL - set(range(6))


@pytest.mark.parametrize("ending", ["seg", "idx"])
def test_several_files_that_go_while_they_are_read_end_the_reading_all_the_same(tmp_path: Path, ending: str) -> None:
    with Store(tmp_path, sync_ms=0, segment_bytes=1) as store:
        for i in range(LOTS):
            store.open("a", SCHEMA).append(batch_of("a", i * LOT, LOT)).result()
    with Store(tmp_path, sync_ms=0, segment_bytes=1) as store:
        log = store.log("a")
        for ordinal in range(LOTS - 1):
            next(tmp_path.glob(f"{ordinal:012d}-*.{ending}")).unlink()
        items = list(checked("a", log.read()))
        # A sidecar only saves a scan.
        assert numbers(items) == (ALL if ending == "idx" else {6, 7, 8})
        assert {n for first, last, _ in missing(items) for n in range(first, last + 1)} == ALL - numbers(items)


def test_damage_keeps_a_segment_from_being_compacted(folder: Path) -> None:
    state = kept(folder, closed=True)
    data = state[segment(state)]
    at = data.rindex(b"a:4")
    disk = MemoryDisk(state | {segment(state): data[:at] + b"b" + data[at + 1 :]})
    with Store(folder, sync_ms=0, segment_bytes=1, disk=disk) as store:
        store.open("a", SCHEMA).append(batch_of("a", LOT * LOTS + 1, 1)).result()
        made = compact(store)
        assert made == ["000000000001-000000000001.parts"]
        assert missing(checked("a", store.log("a").read())) == [(3, 5, "damaged")]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_garbage_in_place_of_any_file(folder: Path, data: st.DataObject) -> None:
    state = kept(folder, closed=True, parquet=data.draw(st.booleans()))
    name = data.draw(st.sampled_from(sorted(state)))
    old = state[name]
    start = data.draw(st.integers(0, len(old)))
    garbage = data.draw(st.binary(max_size=200))
    changed = state | {name: old[:start] + garbage + old[start + len(garbage) :][: data.draw(st.integers(0, len(old)))]}
    served(changed)
    with Store(folder, sync_ms=0, disk=MemoryDisk(changed)) as store:
        log = store.open("a", SCHEMA)
        list(checked("a", log.read()))
        log.append(batch_of("a", log.next_seq, 1)).result()


def test_a_recording_of_a_recording_is_not_mistaken_for_one(folder: Path) -> None:
    state = kept(folder)
    inner = state[segment(state)]
    batch = batch_of("a", 0, 1)
    batch = batch.set_column(2, SCHEMA.field(2), [inner[64:]])
    disk = MemoryDisk()
    with Store(folder, sync_ms=0, disk=disk) as store:
        store.open("a", SCHEMA).append(batch).result()
        store.open("a", SCHEMA).append(batch_of("a", 1, 1)).result()
    data = disk.state()[segment(disk.state())]
    # With the outer header gone, the records within its body must not be taken for the store's own.
    at = data.rindex(b"FFr1", 0, data.index(inner[64:128]))
    reader = StoreReader("", disk=MemoryDisk({segment(disk.state()): data[:at] + b"...." + data[at + 4 :]}))
    assert [(item.first, item.last) for item in reader.log("a").read()] == [(0, 0), (1, 1)]
    assert missing(reader.log("a").read()) == [(0, 0, "damaged")]


def changed_by(data: bytes, at: int, inserted: bytes, removed: int = 0) -> bytes:
    return data[:at] + inserted + data[at + removed :]


@pytest.mark.parametrize(("inserted", "removed"), [(b"abc", 0), (b"", 5), (b"x" * 700, 0), (b"", 64)])
def test_bytes_inserted_or_cut_out_cost_the_record_that_they_lie_in(
    folder: Path, inserted: bytes, removed: int
) -> None:
    """All behind them lies elsewhere. The file keeps every byte of it, and is not written to any more."""
    state = kept(folder)
    name = segment(state)
    for at in range(64, len(state[name]) - removed, 7):
        changed = changed_by(state[name], at, inserted, removed)
        disk = MemoryDisk(state | {name: changed})
        with Store(folder, sync_ms=0, disk=disk) as store:
            log = store.open("a", SCHEMA)
            lost = ALL - numbers(checked("a", log.read()))
            assert len(lost) <= LOT * (2 if removed else 1), at
            reported = {n for first, last, _ in missing(log.read()) for n in range(first, last + 1)}
            damage = store.statistics().damage
            assert lost == reported or damage, at
            assert lost == reported or {0, max(ALL)} & lost, at  # known to be missing where there are rows around them
            assert all(each.file == name for each in damage)
            assert (damage or not lost) and (disk.state()[name] == changed or damage[0].torn), at
            log.append(batch_of("a", log.next_seq, 2)).result()
            log.append(batch_of("a", log.next_seq, 2)).result()
        assert disk.state()[name][: len(changed) - 8] == changed[: len(changed) - 8] or damage[0].torn
        again = list(checked("a", StoreReader(folder, disk=disk).log("a").read()))
        assert ALL - lost <= numbers(again)


def test_a_damaged_end_is_not_taken_for_a_write_that_never_finished(folder: Path) -> None:
    state = kept(folder)
    name = segment(state)
    changed = state[name][:-200] + b"?" * 200
    disk = MemoryDisk(state | {name: changed})
    for _ in range(2):
        with Store(folder, sync_ms=0, disk=disk) as store:
            assert [each.torn for each in store.statistics().damage] == [False]
            assert store.log("a").statistics().damage
    assert disk.state()[name] == changed


def test_damage_that_reading_finds_is_told(folder: Path) -> None:
    state = kept(folder, closed=True)
    name = segment(state)
    at = state[name].index(b"a:4")
    disk = MemoryDisk(state | {name: changed_by(state[name], at, b"b", 1)})
    with Store(folder, sync_ms=0, disk=disk) as store:
        log = store.log("a")
        assert not log.statistics().damage
        assert missing(log.read()) == [(3, 5, "damaged")]
        (place,) = log.statistics().damage
        assert place.file == name and place.offset <= at < place.offset + place.bytes
