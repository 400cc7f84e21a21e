"""The benchmark table and its pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.service.requests import Mock
from fastflight.service.source import Progress
from fastflight.sources import mock
from fastflight.sources.mock import Pacer


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


class SlowClock:
    """A clock whose sleeps take longer than asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float, too_long: float) -> None:
        self.now += seconds + too_long
        self.slept += seconds + too_long


@given(
    seconds=st.floats(0.001, 0.1),
    overslept=st.lists(st.floats(0, 0.05), min_size=1, max_size=30),
    between=st.floats(0, 1),
)
def test_sleeps_add_up_to_what_was_asked_and_at_most_one_oversleep(
    seconds: float, overslept: list[float], between: float
) -> None:
    clock = SlowClock()
    pacer = Pacer(clock)
    for too_long in overslept:
        clock.sleep(pacer.begin(seconds), too_long)
        pacer.end()
        clock.now += between  # the reader's own time, which is not the source's
    assert clock.slept >= seconds * len(overslept) - 1e-9
    longest = max(sum(overslept[i:]) - seconds * (len(overslept) - i - 1) for i in range(len(overslept)))
    assert clock.slept <= seconds * len(overslept) + max(longest, 0) + 1e-9


def test_an_oversleep_is_taken_off_the_next_sleeps() -> None:
    clock = SlowClock()
    pacer = Pacer(clock)
    assert pacer.begin(1.0) == 1.0
    clock.sleep(1.0, 2.5)
    pacer.end()
    asked = []
    for _ in range(4):
        asked.append(pacer.begin(1.0))
        clock.sleep(asked[-1], 0.0)
        pacer.end()
    assert asked == [0.0, 0.0, 0.5, 1.0]


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
