"""The log against a dictionary: appended to, killed, opened again, cleared, compacted, in any order."""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fastflight.errors import SequenceConflict, StorageError
from fastflight.gap import Gap, Why
from fastflight.log import Range, Store, StoreReader, compact
from tests.log.disks import FailingDisk
from tests.log.rows import batch_of, checked, clear, missing, numbers, time_of

NAMES = st.sampled_from(["a", "b", "c"])
SEQ = st.integers(0, 60)


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.failing = False
        # name: the rows that are kept, those before which the line was lost, the first one that was not deleted, the
        # next number
        self.rows: dict[str, set[int]] = {}
        self.cuts: dict[str, set[int]] = {}
        self.first: dict[str, int] = {}
        self.following: dict[str, int] = {}
        self._open()

    def _open(self) -> None:
        disk = FailingDisk(self.folder, lambda call, name: errno.ENOSPC if self.failing and call == "write" else 0)
        self.store = Store(self.folder, sync_ms=0, disk=disk)
        self.reader = StoreReader(self.folder)

    @rule(name=NAMES, rows=st.integers(1, 6), skip=st.sampled_from([0, 0, 0, 3]), is_cut=st.booleans())
    def append(self, name: str, rows: int, skip: int, is_cut: bool) -> None:
        log = self.store.open(name)
        following = self.following.get(name, 0)
        assert log.next_seq == following
        # How much was printed meanwhile is not known, so the gap has no numbers.
        gap = Gap(0, -1, Why.LINE_LOST) if is_cut and not skip else None
        batch = batch_of(name, following + skip, rows)
        log.append(batch, expected=following, first=following + skip, gap=gap).result()
        self.cuts.setdefault(name, set()).update([following] if gap else [])
        self.rows.setdefault(name, set()).update(range(following + skip, following + skip + rows))
        self.following[name] = following + skip + rows

    @rule(name=NAMES, wrong=st.sampled_from([-1, 1]))
    def append_in_vain(self, name: str, wrong: int) -> None:
        log = self.store.open(name)
        with pytest.raises(SequenceConflict):
            log.append(batch_of(name, 0, 1), expected=log.next_seq + wrong)

    @rule(name=NAMES)
    def append_to_a_full_disk(self, name: str) -> None:
        self.failing = True
        log = self.store.open(name)
        with pytest.raises(StorageError):
            log.append(batch_of(name, log.next_seq, 2)).result()
        self.failing = False

    @rule(name=NAMES, before=SEQ)
    def clear(self, name: str, before: int) -> None:
        if name in self.following:
            clear(self.store, name, before)
            first = self.store.log(name).first
            assert self.first.get(name, 0) <= first <= max(before, self.first.get(name, 0))
            if first > self.first.get(name, 0):
                self.cuts[name] = {number for number in self.cuts[name] if number > first}
            self.first[name] = first

    @rule(file_bytes=st.sampled_from([0, 1 << 20]))
    def compact(self, file_bytes: int) -> None:
        compact(self.store, file_bytes=file_bytes, least=1)

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self._open()

    @rule(torn=st.binary(max_size=90))
    def kill(self, torn: bytes) -> None:
        """The process goes, and leaves a write and a file unfinished."""
        killed = Path(tempfile.mkdtemp())
        shutil.copytree(self.folder, killed, dirs_exist_ok=True)
        self.store.close()
        shutil.rmtree(self.folder)
        self.folder = killed
        with open(killed / "recordings.db-wal", "ab") as wal:
            wal.write(torn)
        (killed / "999999999999.parquet").write_bytes(torn + b"\0")  # without the mark of its end
        self._open()

    @invariant()
    def the_same_is_read(self) -> None:
        for name, rows in self.rows.items():
            first = self.first.get(name, 0)
            log = self.store.log(name)
            items = list(checked(name, log.read()))
            assert numbers(items) == {seq for seq in rows if seq >= first}
            cuts = {number for number, _, reason in missing(items) if reason == Why.LINE_LOST}
            assert cuts == self.cuts[name]
            assert {reason for *_, reason in missing(items)} <= {"not read in time", Why.LINE_LOST}
            statistics = log.statistics()
            assert (statistics.first_seq, statistics.next_seq) == (first, self.following[name])
            assert statistics.rows == len(numbers(items))

    @rule(name=NAMES, start=SEQ, length=st.integers(1, 40))
    def read_a_range(self, name: str, start: int, length: int) -> None:
        if name in self.rows:
            wanted = {
                seq for seq in self.rows[name] if start <= seq < start + length and seq >= self.first.get(name, 0)
            }
            for log in (self.store.log(name), self.reader.log(name)):
                assert numbers(checked(name, log.read(Range(start, start + length - 1)))) == wanted
                times = Range(from_time=time_of(start), until_time=time_of(start + length))
                assert numbers(checked(name, log.read(times))) == wanted

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
