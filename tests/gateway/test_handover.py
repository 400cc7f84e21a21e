"""A write by the gateway: what a writer is given of an upload that breaks off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from fastflight.concurrency import Shard
from fastflight.errors import FastFlightError, Stopped
from fastflight.gateway.handover import write_in_thread, write_on_shard
from fastflight.runtime.stream import Stream
from fastflight.service.source import Incoming, Summary

SOON = 60.0
STREAM = cast(Stream, SimpleNamespace(passing=lambda: None, count=lambda rows, size: None))


def test_what_waits_when_an_upload_breaks_off_is_not_written() -> None:
    taken: list[int] = []
    at_it, go_on = threading.Event(), threading.Event()

    def write(batches: Incoming) -> Summary:
        for batch in batches:
            taken.append(batch.column("n")[0].as_py())
            at_it.set()
            assert go_on.wait(SOON)
        raise AssertionError("it was told that this is all")

    async def rows() -> AsyncIterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]})
        assert await asyncio.to_thread(at_it.wait, SOON)
        yield pa.record_batch({"n": [2]})
        asyncio.get_running_loop().call_soon(go_on.set)
        raise Stopped("the client has left")

    with pytest.raises(Stopped, match="the client has left"):
        asyncio.run(write_in_thread(write, rows(), STREAM))
    assert taken == [1]


def test_a_writer_that_takes_less_than_everything_has_failed() -> None:
    def write(batches: Incoming) -> Summary:
        return {"rows": next(batches).num_rows}

    async def rows() -> AsyncIterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]})
        yield pa.record_batch({"n": [2]})

    with pytest.raises(FastFlightError, match="ended before the upload"):
        asyncio.run(write_in_thread(write, rows(), STREAM))


def test_a_writer_on_a_loop_that_takes_less_than_everything_has_failed() -> None:
    async def write(batches: AsyncIterator[pa.RecordBatch]) -> Summary:
        return {"rows": (await anext(batches)).num_rows}

    async def rows() -> AsyncIterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]})
        yield pa.record_batch({"n": [2]})

    with Shard("writer") as shard, pytest.raises(FastFlightError, match="ended before the upload"):
        asyncio.run(write_on_shard(shard, write, rows(), STREAM))
