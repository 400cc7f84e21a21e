"""What is kept on disk, damaged anywhere: it opens, says what is missing, serves no wrong row, and takes new ones."""

from __future__ import annotations

import tempfile

from fastflight.errors import DataError, StorageError, UnknownName
from fastflight.log import Missing, NumberedRows, Store, StoreReader, compact
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target
from tests.log.disks import MemoryDisk, State
from tests.log.rows import SCHEMA, batch_of, checked, missing, numbers

LOT = 3


def kept(folder: str) -> tuple[State, ...]:
    """A log in one segment; in a closed one and another; in a compacted part and another, with and without its index.

    The lock is in `folder`.
    """
    states = []
    disk = MemoryDisk()
    with Store(folder, sync_ms=0, disk=disk) as store:
        for first in range(0, 3 * LOT, LOT):
            store.open("a", SCHEMA).append(batch_of("a", first, LOT)).result()
    states.append(disk.state())
    for compacting in (False, True):
        disk = MemoryDisk(states[0])
        with Store(folder, sync_ms=0, segment_bytes=1, disk=disk) as store:
            store.open("a", SCHEMA).append(batch_of("a", 3 * LOT, 1)).result()
            if compacting:
                assert compact(store)
        states.append(disk.state())
    states.append({name: content for name, content in states[-1].items() if not name.endswith(".parts")})
    return tuple(states)


with tempfile.TemporaryDirectory() as _folder:
    STATES = kept(_folder)


def damaged(state: State, material: Material) -> tuple[State, str, int]:
    """`state` with one file changed; which, and where the damage begins."""
    name = sorted(state)[material.byte() % len(state)]
    content = bytearray(state[name])
    first = len(content)
    while material:
        kind, at = material.byte(), (material.byte() << 8 | material.byte()) % (len(content) + 1)
        fresh = material.take(kind & 15)
        if kind >> 6 == 0:
            content[at : at + len(fresh)] = fresh
        elif kind >> 6 == 1:
            content[at:at] = fresh
        elif kind >> 6 == 2:
            del content[at : at + 1 + len(fresh) * 8]
        else:
            del content[at:]
        first = min(first, at)
    return state | {name: bytes(content)}, name, first


def run(data: bytes) -> None:
    material = Material(data)
    state = material.pick(STATES)
    changed, name, first = damaged(state, material)
    reader = StoreReader("", disk=MemoryDisk(changed))
    items: list[NumberedRows | Missing] = []
    try:
        items = list(checked("a", reader.log("a").read()))
    except (UnknownName, StorageError, DataError) as error:
        assert str(error)
    if name.endswith(".seg"):
        # Whole records that lie before the damage are served, unless it took the name of the log with it.
        whole = [each for each in LOTS[name, len(state[name])] if each[1] <= first]
        if items:
            assert {seq for last, _ in whole for seq in last} <= numbers(items)
    assert not numbers(items) & {seq for gap in missing(items) for seq in range(gap[0], gap[1] + 1)}


def lots() -> dict[tuple[str, int], list[tuple[range, int]]]:
    """Of each segment as it was: the rows of each record, and where it ends."""
    found: dict[tuple[str, int], list[tuple[range, int]]] = {}
    for state in STATES:
        for name, content in state.items():
            if not name.endswith(".seg"):
                continue
            key = name, len(content)
            found[key] = []
            for end in range(len(content), 0, -8):
                reader = StoreReader("", disk=MemoryDisk({name: content[:end]}))
                seen = numbers(reader.log("a").read()) if "a" in reader.names() else set()
                for rows in [range(seq, seq + LOT) for seq in range(0, 4 * LOT, LOT)]:
                    if set(rows) <= seen:
                        found[key] = [each for each in found[key] if each[0] != rows] + [(rows, end)]
    return found


LOTS = lots()
TARGET = Target(
    run,
    modules=(
        "fastflight.log.reading",
        "fastflight.log.segment",
        "fastflight.log.record",
        "fastflight.log.index",
        "fastflight.log.compacted",
    ),
    seeds=(
        b"\x00\x00",
        b"\x00\x00\x01\x01\x00\xff",
        b"\x01\x01\x02\x00\x40\x00\x00",
        b"\x01\x00\xc0\x02\x00",
        b"\x02\x02\x01\x00\x90\x01",
        b"\x02\x00\x48\x00\x40abcdefgh",
        b"\x01\x02\x82\x00\x50xx",
    ),
    max_bytes=64,
    seconds=10,
)
