"""Small batches made into larger ones, out of what is there already.

A message costs as much as copying tens of kilobytes: a source that gives batches of a few kilobytes is slowed down by
them, and so is its client. `joined` takes lots, each of which is there at once, and joins small batches of a lot. It
never waits for more, so a live row is not held up; what is `Noted` keeps its place, and is joined with nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from fastflight.concurrency import failure_of
from fastflight.service.source import Noted

# A batch of so many bytes goes alone: copying it would cost more than its own message does.
ALONE_BYTES = 64 * 1024
# Bytes that are joined into one batch: from a quarter of a megabyte on joining gets no cheaper.
JOINED_BYTES = 512 * 1024
# Batches that are joined into one, and gathered for it.
MAX_JOINED = 1024
# Sizes of batches that are remembered: a source gives batches of one size, and another one at the end.
MAX_KNOWN_SIZES = 64

Item: TypeAlias = pa.RecordBatch | Noted


def joined(lots: Iterable[Sequence[Item]], schema: pa.Schema, most_rows: int | None = None) -> Iterator[Item]:
    """The items of `lots`, where batches of `schema` that follow each other in a lot may be one.

    Batches are joined to at most `most_rows` rows. Only numbers and times are joined: with them an answer has as many
    bytes as its source gave, which is what is said of it beforehand; bits and offsets would become fewer.
    """
    sizes = Sizes(schema)
    if not all(pa.types.is_primitive(field.type) and not pa.types.is_boolean(field.type) for field in schema):
        for lot in lots:
            yield from lot
        return
    for lot in lots:
        if len(lot) == 1:
            yield lot[0]
            continue
        group: list[pa.RecordBatch] = []
        rows = size = 0
        for item in lot:
            if isinstance(item, Noted):
                alone, more = True, 0
            else:
                more = item.num_rows
                alone = not more or not item.schema.equals(schema) or sizes.of(item) >= ALONE_BYTES
            if group and (alone or size >= JOINED_BYTES or (most_rows is not None and rows + more > most_rows)):
                yield _one(group)
                group, rows, size = [], 0, 0
            if alone:
                yield item
            else:
                group.append(item)
                rows += more
                size += sizes.last
        if group:
            yield _one(group)


def gathered(items: Iterator[Item], schema: pa.Schema) -> Iterator[list[Item]]:
    """Lots of a source that gives its items without waiting. A failure comes after the items before it."""
    sizes = Sizes(schema)
    failure: Exception | None = None
    ended = False
    while not ended:
        lot: list[Item] = []
        size = 0
        try:
            while size < JOINED_BYTES and len(lot) < MAX_JOINED:
                lot.append(item := next(items))
                size += sizes.of(item.batch if isinstance(item, Noted) else item)
        except StopIteration:
            ended = True
        except BaseException as raised:
            ended, failure = True, failure_of(raised)
        yield lot
    if failure is not None:
        raise failure


class Sizes:
    """The bytes of batches of one schema, as cheaply as they can be had.

    Measuring takes 2 us a column: longer than sending, for a small batch of many. A source may give a batch again; and
    where all columns are of fixed width, batches of as many rows in as large buffers have as many bytes.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._fixed = all(pa.types.is_primitive(field.type) for field in schema)
        self._known: dict[tuple[int, int], int] = {}
        self._batch: pa.RecordBatch | None = None
        self.last = 0

    def of(self, batch: pa.RecordBatch) -> int:
        """The bytes of a batch, which are `last` then."""
        if batch is not self._batch:
            self._batch, self.last = batch, self._known_size(batch) if self._fixed else int(batch.nbytes)
        return self.last

    def _known_size(self, batch: pa.RecordBatch) -> int:
        key = batch.num_rows, batch.get_total_buffer_size()
        size = self._known.get(key)
        if size is None:
            if len(self._known) >= MAX_KNOWN_SIZES:
                self._known.clear()
            size = self._known[key] = int(batch.nbytes)
        return size


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
