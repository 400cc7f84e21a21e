"""Reads a log from JetStream: first the rows in compacted parts, then those in messages, by number and time.

A read covers the rows that are there when it begins. Each row has passed a checksum, and its number is the one that its
message or its part says. Numbers that neither explains are reported as damaged. So is a message whose checksum is
wrong, after it was read again from several nodes. Messages that are compacted during a read are read from the new part.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import pyarrow as pa

from fastflight.cluster.log_stream import Tail, subject_of
from fastflight.cluster.record import Record, decode_record
from fastflight.cluster.replicated_statistics import Recorded, position, reaches
from fastflight.cluster.stream import Stored
from fastflight.errors import StorageError
from fastflight.log.content import Codec, log_number
from fastflight.log.ranged import RangeItems
from fastflight.log.reading import LogReading, Snapshot
from fastflight.log.values import Missing, NumberedRows, Range


class ReplicatedReading:
    """One pass over a log, for the range `wanted`. `run` yields its rows and its missing numbers.

    Rows below the number `known` are known to have been stored. If JetStream has lost them, they are damaged.
    """

    def __init__(self, store: Recorded, name: str, codec: Codec, wanted: Range, known: int = 0) -> None:
        self._store = store
        self._stream = store.stream
        self._name = name
        self._subject = subject_of(name)
        self._number = log_number(name)
        self._codec = codec
        self._wanted = wanted
        self._known = known
        self._items = RangeItems(wanted)
        # Before the first row, deleted numbers are reported only if they were asked for.
        self._begun = False
        # The sequence number of the message that was read last.
        self._seq = 0

    def run(self) -> Generator[NumberedRows | Missing, None, None]:
        items, wanted = self._items, self._wanted
        at = position(self._store, self._name)
        tail = at.tail
        end = max(tail.next, self._known)
        stop = end if wanted.until_seq is None else min(end, wanted.until_seq + 1)
        while True:
            yield from self._deleted(min(at.first, stop))
            if items.cursor < min(at.compacted, stop):
                in_parts = replace(wanted, until_seq=min(at.compacted, stop) - 1)
                yield from LogReading(self, self._number, self._codec, in_parts, items).run()
                self._begun = True
            if items.cursor >= stop or (yield from self._messages(tail, stop)):
                break
            at = position(self._store, self._name)
        if tail.damaged and (wanted.until_seq is None or wanted.until_seq >= end):
            raise StorageError(
                f"its newest rows, from number {end} on, are damaged in JetStream",
                where=self._name,
                hint="Restore the stream from a node that has them",
            )

    def snapshot(self, number: int) -> Snapshot:
        """Return what is in the parts now."""
        return position(self._store, self._name).snapshot

    def _compacted_meanwhile(self) -> bool:
        """Whether the row at the cursor is in a part now."""
        return position(self._store, self._name).compacted > self._items.cursor

    def _wants(self, record: Record) -> bool:
        return record.next > self._items.cursor and reaches(record, self._wanted)

    def _messages(self, tail: Tail, stop: int) -> Generator[NumberedRows | Missing, None, bool]:
        """Read the messages from the cursor on. Return False if they have been compacted meanwhile."""
        items, until = self._items, self._wanted.until_time
        back = tail.record.totals.back if tail.record is not None else 0
        self._seq = self._store.call(self._stream.find(self._subject, self._number, tail.seq, self._wants)) - 1
        skipping = self._wanted.from_time is not None
        while page := self._store.call(self._stream.next_page(self._subject, self._seq + 1, tail.seq)):
            for message in page:
                record = decode_record(message.data, self._number)
                if record is None:
                    continue  # the next message shows which numbers it had
                if record.begin > items.cursor:
                    if self._compacted_meanwhile():
                        return False
                    if skipping:
                        items.skip(record.begin)  # rows before it are too early
                    else:
                        yield from self._explain(message, record)
                skipping = False
                yield from self._record(message, record, stop)
                if items.cursor >= stop or (until is not None and record.totals.latest - back >= until):
                    return True
            self._seq = max(self._seq, page[-1].seq)
        if items.cursor < stop:
            if self._compacted_meanwhile():
                return False
            yield from items.hole(stop - 1, "damaged", "the end of the recording")
        return True

    def _explain(self, message: Stored, record: Record) -> Iterator[NumberedRows | Missing]:
        """Handle the numbers between the cursor and `record`: they were deleted, or are damaged here or everywhere."""
        yield from self._deleted(min(position(self._store, self._name).first, record.begin))
        if record.begin == self._items.cursor:
            return
        again = self._stream.between(self._subject, self._number, self._seq + 1, message.seq - 1)
        for other in self._store.call(again):
            found = decode_record(other.data, self._number)
            if found is not None and self._items.cursor < found.next:
                if found.begin > self._items.cursor:
                    yield from self._damaged(found.begin - 1, other)
                yield from self._record(other, found, record.begin)
        if record.begin > self._items.cursor:
            yield from self._damaged(record.begin - 1, message)

    def _damaged(self, last: int, message: Stored) -> Iterator[Missing]:
        return self._items.damaged(last, f"JetStream, before message {message.seq}")

    def _deleted(self, first: int) -> Iterator[Missing]:
        """Report the numbers below `first`, which were trimmed or deleted by retention."""
        if self._items.cursor < first:
            if self._begun or self._wanted.from_seq is not None:
                yield from self._items.hole(first - 1, "trimmed")
            self._items.cursor = first

    def _record(self, message: Stored, record: Record, stop: int) -> Iterator[NumberedRows | Missing]:
        items = self._items
        self._begun, self._seq = True, message.seq
        if items.cursor < (end := min(record.pause_end, stop)):
            yield from items.hole(end - 1, "not recorded")
        if items.cursor < (end := min(record.first, stop)):
            yield from items.hole(end - 1, "never written")
        end = min(record.next, stop)
        if items.cursor >= end:
            return
        if not items.overlap(record.first_time, record.last_time):
            items.skip(end)
            return
        batch = self._codec.decode(pa.py_buffer(bytes(record.body)))
        yield from items.rows(
            batch.slice(items.cursor - record.first, end - items.cursor), record.first_time, record.last_time
        )
