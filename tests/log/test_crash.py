"""Killed, or cut off from power, after any step: what was acknowledged is there, and nothing else is made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fastflight.log import Retention, Store, compact
from fastflight.log.reserve import RESERVE_NAME
from tests.log.disks import MemoryDisk, State
from tests.log.rows import SCHEMA, batch_of, checked, missing, numbers

SMALL = 1500


class Crashes:
    """Every state that a folder may be left in, with what was acknowledged and what was trimmed by then."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}
        self.trimmed: dict[str, int] = {}
        self.found: dict[frozenset[tuple[str, bytes]], tuple[State, dict[str, int], dict[str, int]]] = {}
        self.disk = MemoryDisk(watch=self.watch)
        # Whether only the store's reserve has room.
        self.full = False

    def watch(self, disk: MemoryDisk) -> None:
        disk.full = self.full and RESERVE_NAME in disk.names()
        for state in disk.states():
            # The first to leave a state has the least acknowledged, the last the most: that one counts.
            self.found[frozenset(state.items())] = (state, dict(self.kept), dict(self.trimmed))


def record(store: Store, crashes: Crashes, lots: int, names: Sequence[str] = ("a", "b")) -> None:
    for i in range(lots):
        for name in names:
            log = store.open(name, SCHEMA)
            first = log.next_seq
            log.append(batch_of(name, first, i % 3 + 1)).result()
            crashes.kept[name] = log.next_seq


def trim(store: Store, crashes: Crashes) -> None:
    before = store.log("a").next_seq - 2
    crashes.trimmed["a"] = before
    store.log("a").trim(before).result()
    crashes.trimmed["b"] = store.log("b").next_seq
    store.log("b").trim(store.log("b").next_seq).result()
    store.sweep()


def plain(store: Store, crashes: Crashes) -> None:
    record(store, crashes, 6)


def trimming(store: Store, crashes: Crashes) -> None:
    record(store, crashes, 5)
    trim(store, crashes)
    record(store, crashes, 2)


def compacting(store: Store, crashes: Crashes) -> None:
    record(store, crashes, 5)
    assert compact(store)
    record(store, crashes, 2)


def sweeping_a_full_disk(store: Store, crashes: Crashes) -> None:
    record(store, crashes, 1)
    record(store, crashes, 9, ["a"])  # b is silent, so its name is only in the first segment
    crashes.trimmed.update({name: store.log(name).next_seq for name in ("a", "b")})
    crashes.full = crashes.disk.full = True
    assert store.sweep() > 0
    crashes.full = crashes.disk.full = False
    crashes.trimmed["a"] = store.log("a").first
    record(store, crashes, 2)


@pytest.mark.parametrize("story", [plain, trimming, compacting, sweeping_a_full_disk])
def test_whatever_is_left_holds_what_was_acknowledged(tmp_path: Path, story: Callable[[Store, Crashes], None]) -> None:
    crashes = Crashes()
    retention = Retention(max_bytes=4 * SMALL) if story is sweeping_a_full_disk else None
    with Store(tmp_path, sync_ms=0, segment_bytes=SMALL, retention=retention, disk=crashes.disk) as store:
        story(store, crashes)
    assert len(crashes.found) > 60
    for state, kept, trimmed in crashes.found.values():
        disk = MemoryDisk(state)
        for _ in range(2):  # opening must not lose what the opening before it kept
            with Store(tmp_path, sync_ms=0, segment_bytes=SMALL, disk=disk) as store:
                for name, following in kept.items():
                    log = store.log(name)
                    items = list(checked(name, log.read()))
                    assert not missing(items), name
                    assert numbers(items) >= set(range(trimmed.get(name, 0), following)), name
                    assert log.next_seq >= following
                # Torn is what was never acknowledged; nothing that was is damaged.
                assert all(damage.torn for damage in store.statistics().damage)
                log = store.open("a", SCHEMA)
                log.append(batch_of("a", log.next_seq, 1)).result()
                kept["a"] = log.next_seq


def test_what_was_found_when_it_was_opened_is_on_the_medium_from_then_on(tmp_path: Path) -> None:
    disk = MemoryDisk()
    with Store(tmp_path, sync_ms=0, disk=disk) as store:
        record(store, Crashes(), 3)
        shown = {name: store.log(name).next_seq for name in ("a", "b")}
    disk.forget()
    with Store(tmp_path, sync_ms=0, disk=disk):
        left = list(disk.states())
    for state in left:
        with Store(tmp_path, sync_ms=0, disk=MemoryDisk(state)) as store:
            for name, following in shown.items():
                assert numbers(checked(name, store.log(name).read())) == set(range(following))
