"""Rows that say which they are, so that any row that is served can be told right from wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import pyarrow as pa

from fastflight.log import LOG_SCHEMA, Gap, Log, NumberedRows, Store
from fastflight.sources import recorded_rows
from fastflight.transport.chunk_buffer import Chunk


def time_of(seq: int) -> int:
    return seq * 1000


@lru_cache(maxsize=1024)
def batch_of(name: str, first: int, rows: int) -> pa.RecordBatch:
    return rows_of([(time_of(seq), f"{name}:{seq}".encode()) for seq in range(first, first + rows)])


def log_batch(chunks: Iterable[Chunk], cuts: Mapping[int, str]) -> pa.RecordBatch:
    """Rows of chunks, with these cuts by their numbers."""
    return recorded_rows.log_batch([chunk._replace(cut=cuts.get(chunk.seq, "")) for chunk in chunks])


def rows_of(rows: Iterable[tuple[int | None, bytes]]) -> pa.RecordBatch:
    """Rows with these times (us) and bytes."""
    times, data = zip(*rows, strict=True) if rows else ((), ())
    ways = ["tx" if (time or 0) // 1000 % 2 else "rx" for time in times]
    columns = [times, ways, data, [None] * len(times)]
    return pa.record_batch([pa.array(*each) for each in zip(columns, LOG_SCHEMA.types, strict=True)], LOG_SCHEMA)


def checked(name: str, items: Iterable[NumberedRows | Gap]) -> Iterator[NumberedRows | Gap]:
    """`items`, every row of which is the one that its number says, and every number of which comes once, in order."""
    following = -1
    for item in items:
        # A gap may have no numbers.
        assert item.first >= following and item.last >= item.first - isinstance(item, Gap), item
        following = item.last + 1
        if isinstance(item, NumberedRows):
            item.batch.validate(full=True)
            assert item.batch.equals(batch_of(name, item.first, item.batch.num_rows))
        yield item


def numbers(items: Iterable[NumberedRows | Gap]) -> set[int]:
    """The numbers of the rows that are there."""
    return {seq for item in items if isinstance(item, NumberedRows) for seq in range(item.first, item.last + 1)}


def missing(items: Iterable[NumberedRows | Gap]) -> list[tuple[int, int, str]]:
    return [(item.first, item.last, item.why) for item in items if isinstance(item, Gap)]


def filled(store: Store, name: str = "demo", rows: int = 100, lot: int = 10) -> Log:
    """Append rows to a log, `lot` at a time."""
    log = store.open(name)
    for first in range(0, rows, lot):
        log.append(batch_of(name, first, lot)).result()
    return log


def clear(store: Store, name: str, before: int) -> None:
    """Delete the bodies that have rows of a log below a number alone, as retention does."""
    with store.content.database.reading() as connection:
        found = connection.execute(
            "select body, file from entries join bodies on bodies.id = body where entries.log = ? group by body"
            " having max(first + rows) <= ?",
            (store.log(name).id, before),
        ).fetchall()
    store._delete([body for body, _ in found], [file for _, file in found if file])


def stored_bytes(store: Store) -> int:
    return sum(body.bytes for body in store.content.database.bodies())
