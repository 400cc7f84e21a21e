"""Reads text rows. CSV and JSON lines share this reader; each has its own `Grammar`.

A `TextReader` splits the file into rows, infers the schema from a bounded first part if none is given, and passes
blocks of whole rows to its grammar. The grammar reads a block as a whole, or fails. After a failure the reader rejects
the rows that the grammar's `screen` refuses, and reads the others again, in smaller runs if that fails, too. So a row
is accepted if and only if it can be read alone, and how the bytes arrive changes nothing. The work is linear in the
bytes of the block, however many rows are bad.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from fastflight.errors import DataError
from fastflight.tables.bare import empty
from fastflight.tables.codec import OnError, read_in_runs
from fastflight.tables.rows import RowBlock, RowSplitter
from fastflight.tables.summary import ReadSummary, RejectedRow

# The first part of a file, from which the schema is inferred: some pages of text, or some minutes of telemetry. It is
# held in memory, and a live reader gets no rows before it has come.
INFERENCE_BYTES = 16 * 1024
INFERENCE_ROWS = 1000


class Grammar(Protocol):
    """Turns the rows of one text format into columns."""

    def begin(self, row: bytes) -> bool:
        """Read a row before the first row of data, such as a header. False if this row is data."""

    def rows(self, data: bytes) -> Iterator[bytes]:
        """Split `data`, which consists of whole rows, into the rows. Joined, they are `data` again."""

    def is_blank(self, row: bytes) -> bool:
        """Return whether the row is skipped without being rejected."""

    def infer(self, rows: Sequence[bytes]) -> bool:
        """Infer the schema. `rows` may be empty. False if none of them shows a column."""

    @property
    def schema(self) -> pa.Schema | None:
        """Known from the start, or after `infer`."""

    def parse(self, data: bytes) -> pa.RecordBatch:
        """Read whole rows, or raise `pa.ArrowInvalid` if any of them is bad, or might be."""

    def screen(self, row: bytes) -> bytes | str:
        """Return the row (bytes), possibly changed, to be parsed; or the reason (str) why it is rejected."""

    def explain(self, row: bytes) -> str:
        """Return the reason why this row cannot be read, although `screen` accepted it."""


class TextReader:
    """`RowReader` for any text grammar."""

    def __init__(self, grammar: Grammar, splitter: RowSplitter, on_error: OnError) -> None:
        self.summary = ReadSummary()
        self._grammar = grammar
        self._splitter = splitter
        self._fail = on_error == "fail"
        self._begun = False
        # The rows that wait for the schema, the rows that it is inferred from, and whether these are enough.
        self._waiting: list[RowBlock | RejectedRow] = []
        self._sample: list[bytes] = []
        self._sampled = False

    @property
    def schema(self) -> pa.Schema | None:
        return self._grammar.schema

    def feed(self, data: bytes) -> list[pa.RecordBatch]:
        return self._take(self._splitter.feed(data))

    def finish(self) -> list[pa.RecordBatch]:
        batches = self._take(self._splitter.finish())
        if self._grammar.schema is None:
            self._grammar.infer(self._sample)
            batches += self._release()
        return batches

    def _take(self, found: list[RowBlock | RejectedRow]) -> list[pa.RecordBatch]:
        if not self._begun:
            found = self._begin(found)
        if self._grammar.schema is not None:
            return self._read(found)
        for item in found:
            if isinstance(item, RejectedRow) or self._sampled or self._add_to_sample(item):
                self._waiting.append(item)
        if not self._sampled:
            return []
        if not self._grammar.infer(self._sample):
            # With a schema without columns, all rows would be dropped silently, including good ones that follow.
            raise DataError(
                "none of the first rows can be read, so the columns are not known",
                where="byte 0",
                hint="Name the columns in a schema, or try format raw",
            )
        return self._release()

    def _release(self) -> list[pa.RecordBatch]:
        waiting, self._waiting, self._sample = self._waiting, [], []
        return self._read(waiting)

    def _begin(self, found: list[RowBlock | RejectedRow]) -> list[RowBlock | RejectedRow]:
        """Pass the first rows to the grammar until data begins; returns the rest of `found`."""
        for index, item in enumerate(found):
            if isinstance(item, RejectedRow):
                # `begin` raises if the grammar needs this row (a CSV header), since nothing can be read without it.
                self._begun = not self._grammar.begin(b"")
                return found[index:]
            offset = item.offset
            for row in self._grammar.rows(item.data):
                if not self._grammar.begin(row):
                    self._begun = True
                    return [RowBlock(offset, item.data[offset - item.offset :]), *found[index + 1 :]]
                offset += len(row)
        return []

    def _add_to_sample(self, block: RowBlock) -> bool:
        """Add the whole rows in the first `INFERENCE_BYTES` of the file, at least one and at most `INFERENCE_ROWS`.

        So the sample depends only on the file, and not on how its bytes arrive.
        Returns False if all rows are blank: blank rows are not held in memory.
        """
        end = block.offset
        has_rows = False
        for row in self._grammar.rows(block.data):
            end += len(row)
            if self._grammar.is_blank(row):
                continue
            has_rows = True
            self._sampled = end > INFERENCE_BYTES or len(self._sample) + 1 >= INFERENCE_ROWS
            if end <= INFERENCE_BYTES or not self._sample:
                self._sample.append(row)
            if self._sampled:
                break
        return has_rows

    def _read(self, found: list[RowBlock | RejectedRow]) -> list[pa.RecordBatch]:
        batches = []
        for item in found:
            if isinstance(item, RejectedRow):
                self._reject(item)
                continue
            try:
                batch = self._grammar.parse(item.data)
            except pa.ArrowInvalid:
                batch = self._read_good_rows(item)
            if batch.num_rows:
                batches.append(batch)
        return batches

    def _read_good_rows(self, block: RowBlock) -> pa.RecordBatch:
        """Read the good rows of a block that fails as a whole, and reject the others."""
        offset = block.offset
        accepted: list[RowBlock] = []
        refused: list[RejectedRow] = []
        for row in self._grammar.rows(block.data):
            if not self._grammar.is_blank(row):
                verdict = self._grammar.screen(row)
                if isinstance(verdict, str):
                    refused.append(RejectedRow(offset, verdict))
                else:
                    accepted.append(RowBlock(offset, verdict))
            offset += len(row)
        batches, failed = read_in_runs(len(accepted), lambda run: self._parse_all(accepted[run]))
        unread: list[RowBlock | RejectedRow] = [*refused, *(accepted[index] for index in failed)]
        for item in sorted(unread, key=lambda item: item.offset):
            if isinstance(item, RowBlock):
                reason = self._grammar.explain(item.data) if self.summary.wants_reason else "the row can not be read"
                item = RejectedRow(item.offset, reason)
            self._reject(item)
        return pa.concat_batches(batches) if batches else empty(self._grammar.schema)

    def _parse_all(self, rows: list[RowBlock]) -> pa.RecordBatch:
        return self._grammar.parse(b"".join(row.data for row in rows))

    def _reject(self, item: RejectedRow) -> None:
        if self._fail:
            raise DataError(
                item.reason,
                where=f"byte {item.offset}",
                hint="Mend the file, give a schema that fits, or leave on_error at 'skip'",
            )
        self.summary.reject(item.offset, item.reason)
