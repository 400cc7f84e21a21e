"""The benchmark table and its pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from fastflight.service.requests import Mock
from fastflight.service.source import Progress
from fastflight.sources import mock


async def collect(request: Mock) -> pa.Table:
    reading = await mock.aread(request)
    return pa.Table.from_batches([batch async for batch in reading.batches], reading.schema)


@pytest.mark.parametrize("variant", ["default", "simple", "complex"])
@pytest.mark.parametrize(("total", "per_batch"), [(0, 3), (2, 3), (3, 3), (10, 3)])
def test_both_paths_give_the_table_that_was_described(variant: str, total: int, per_batch: int) -> None:
    request = Mock.model_validate({"variant": variant, "total_rows": total, "rows_per_batch": per_batch})
    reading = mock.read(request)
    table = pa.Table.from_batches(list(reading.batches), reading.schema)
    table.validate(full=True)
    assert table.num_rows == total
    assert [len(chunk) for chunk in table.column(0).chunks] == [per_batch] * (total // per_batch) + (
        [total % per_batch] if total % per_batch else []
    )
    assert table.equals(asyncio.run(collect(request)))
    known = mock.describe(request)
    assert (known.schema, known.rows, known.bytes) == (table.schema, total, table.nbytes)


def test_the_default_table_is_190_mebibytes_of_int32() -> None:
    known = mock.describe(Mock())
    assert (known.rows, known.bytes) == (1_000_000, 200_000_000)
    assert known.schema is not None
    assert {field.type for field in known.schema} == {pa.int32()}
    assert len(known.schema) == 50
    assert [request for request, _ in mock.requests()] == [Mock()]


def test_a_batch_is_made_once() -> None:
    batches = list(mock.read(Mock(total_rows=20, rows_per_batch=10)).batches)
    assert batches[0] is batches[1]
    assert batches[0] is next(mock.read(Mock(rows_per_batch=10)).batches)


def test_what_is_written_is_counted_and_acknowledged() -> None:
    batch = mock.batch("simple", 10)
    acks: list[Progress] = []
    summary = mock.write(Mock(), batch.schema, iter([batch, batch]), acks.append)
    assert summary == {"rows": 20, "bytes": 2 * batch.nbytes}
    assert [ack.rows for ack in acks] == [10, 20]

    async def batches() -> AsyncIterator[pa.RecordBatch]:
        yield batch
        yield batch

    async_acks: list[Progress] = []
    assert asyncio.run(mock.awrite(Mock(), batch.schema, batches(), async_acks.append)) == summary
    assert async_acks == acks


def test_an_async_table_lets_other_tasks_run_between_batches() -> None:
    async def run() -> list[str]:
        turns: list[str] = []

        async def other() -> None:
            while len(turns) < 6:
                turns.append("other")
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        reading = await mock.aread(Mock(total_rows=3, rows_per_batch=1))
        async for _ in reading.batches:
            turns.append("batch")
        await task
        return turns

    turns = asyncio.run(run())
    assert turns[:6] == ["other", "batch", "other", "batch", "other", "batch"]
