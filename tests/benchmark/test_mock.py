"""The benchmark table and its pace."""

from __future__ import annotations

import asyncio
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.runtime.outgoing import MAX_MESSAGE_BYTES
from fastflight.service.source import Progress
from fastflight_benchmark import mock
from fastflight_benchmark.mock import Mock
from tests.support.source_items import aitems, items


def table_of(request: Mock) -> pa.Table:
    reading = mock.SOURCE.read(request)
    return pa.Table.from_batches(items(reading), reading.schema)


async def collect(request: Mock) -> pa.Table:
    reading = await mock.SOURCE.aread(request)
    return pa.Table.from_batches(await aitems(reading), reading.schema)


@pytest.mark.parametrize("variant", ["default", "simple", "complex"])
@pytest.mark.parametrize(("total", "per_batch"), [(0, 3), (2, 3), (3, 3), (10, 3)])
def test_both_paths_give_the_table_that_was_described(variant: str, total: int, per_batch: int) -> None:
    request = Mock(variant=variant, total_rows=total, rows_per_batch=per_batch)
    table = table_of(request)
    table.validate(full=True)
    assert table.num_rows == total
    assert [len(chunk) for chunk in table.column(0).chunks] == [per_batch] * (total // per_batch) + (
        [total % per_batch] if total % per_batch else []
    )
    assert table.equals(asyncio.run(collect(request)))
    known = mock.SOURCE.describe(request)
    assert (known.schema, known.rows, known.bytes) == (table.schema, total, table.nbytes)


def test_the_default_table_is_190_mebibytes_of_int32() -> None:
    known = mock.SOURCE.describe(Mock())
    assert (known.rows, known.bytes) == (1_000_000, 200_000_000)
    assert known.schema is not None
    assert {field.type for field in known.schema} == {pa.int32()}
    assert len(known.schema) == 50
    assert [request for request, _ in mock.SOURCE.requests(lambda name: True)] == [Mock()]


@pytest.mark.parametrize("variant", ["default", "simple", "complex"])
def test_a_large_batch_comes_in_messages_that_every_client_takes(variant: str) -> None:
    rows = 4 * mock.MESSAGE_ROWS + 1
    request = Mock(variant=variant, rows_per_batch=rows, total_rows=2 * rows)
    got = list(chain.from_iterable(mock.SOURCE.read(request)))
    assert all(pa.ipc.get_record_batch_size(batch) <= MAX_MESSAGE_BYTES for batch in got)
    known = mock.SOURCE.describe(request)
    assert (sum(batch.num_rows for batch in got), sum(batch.nbytes for batch in got)) == (known.rows, known.bytes)
    first = pa.Table.from_batches(got).column(0).to_pylist()
    assert first == 2 * list(range(rows))


@given(
    variant=st.sampled_from(["simple", "complex"]),
    per_batch=st.integers(1, 12),
    first=st.integers(0, 40),
    total=st.integers(0, 40),
    endpoints=st.integers(1, 9),
)
def test_rows_from_within_the_table_and_all_its_parts_are_those_of_the_table(
    variant: str, per_batch: int, first: int, total: int, endpoints: int
) -> None:
    some = Mock(variant=variant, rows_per_batch=per_batch, first_row=first, total_rows=total, endpoints=endpoints)
    whole = table_of(Mock(variant=variant, rows_per_batch=per_batch, total_rows=first + total))
    table = table_of(some)
    assert table.equals(whole.slice(first))
    known = mock.SOURCE.describe(some)
    assert (known.rows, known.bytes) == (total, sum(batch.nbytes for batch in items(mock.SOURCE.read(some))))
    divided = mock.SOURCE.parts(some, known)
    assert divided.ordered
    assert 1 <= len(divided.parts) <= endpoints
    assert pa.concat_tables(table_of(part.request) for part in divided.parts).equals(table)
    assert sum(mock.SOURCE.describe(part.request).bytes for part in divided.parts) == known.bytes


def test_a_table_is_divided_evenly_between_batches() -> None:
    request = Mock(total_rows=100, rows_per_batch=10, endpoints=4)
    parts = [part.request for part in mock.SOURCE.parts(request, mock.SOURCE.describe(request)).parts]
    found = [(part.first_row, part.total_rows, part.endpoints) for part in parts]
    assert found == [(0, 20, 1), (20, 30, 1), (50, 20, 1), (70, 30, 1)]


def test_what_is_written_is_counted_and_acknowledged() -> None:
    batch = mock.batch("simple", 10)
    acks: list[Progress] = []
    summary = mock.SOURCE.write(Mock(), batch.schema, iter([batch, batch]), acks.append)
    assert summary == {"rows": 20, "bytes": 2 * batch.nbytes}
    assert [ack.rows for ack in acks] == [10, 20]


def test_an_async_table_lets_other_tasks_run_while_it_waits() -> None:
    async def run() -> list[str]:
        turns: list[str] = []

        async def other() -> None:
            turns.append("other")

        reading = await mock.SOURCE.aread(Mock(total_rows=3, rows_per_batch=1, delay_per_row=0.001))
        task = asyncio.create_task(other())
        async for _ in reading:
            turns.append("batch")
        await task
        return turns

    assert asyncio.run(run()) == ["other", "batch", "batch", "batch"]
