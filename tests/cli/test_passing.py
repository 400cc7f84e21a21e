from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import flight

from fastflight.cli.workers import passing
from fastflight.cli.workers.passing import HANDIN_BYTES, AsyncExchange
from fastflight.cli.workers.pool import Worker
from fastflight.client.connection import Connection
from fastflight.concurrency import Governor
from fastflight.errors import TransportClosed
from fastflight.service import Source
from fastflight.service.requests import DeviceSession
from fastflight.service.source import Acknowledge, Progress, Summary

from ..server.conftest import SCHEMA as NUMBERS
from ..server.conftest import SOON, Trial, serving

SCHEMA = pa.schema([("data", pa.binary())])


class Gone:
    """A worker that has ended, once it is asked for `after` something."""

    def __init__(self, after: asyncio.Event) -> None:
        self.governor = Governor()
        self._loop = asyncio.get_running_loop()
        self._after = after

    @contextmanager
    def connected(self, where: str) -> Iterator[Any]:
        asyncio.run_coroutine_threadsafe(self._after.wait(), self._loop).result()
        raise TransportClosed("worker 0 has ended", where=where)
        yield


class Typed:
    """What a client sends: more than waits on the way to a worker. `sent` when the last of it is asked for."""

    def __init__(self, sent: asyncio.Event) -> None:
        self._sent = sent
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([bytes(HANDIN_BYTES)])], schema=SCHEMA)
        self._sent.set()
        yield pa.record_batch([pa.array([b"more"])], schema=SCHEMA)

    async def aclose(self) -> None:
        self.closed = True


def test_what_was_sent_to_a_worker_that_is_gone_is_given_up() -> None:
    async def main() -> dict[str, int]:
        sent = asyncio.Event()
        worker, typed = Gone(sent), Typed(sent)
        exchange = AsyncExchange(cast(Worker, worker), "demo", DeviceSession(device="demo"), SCHEMA, typed)
        with pytest.raises(TransportClosed, match="worker 0 has ended"):
            await exchange.opened()
        assert typed.closed
        # With it ends the thread that handed in: it would wait for room for ever, and the loop for it.
        await asyncio.get_running_loop().shutdown_default_executor()
        return worker.governor.stats()

    assert asyncio.run(main())["held"] == 0


class There(Worker):
    """A worker that serves."""

    def __init__(self, connection: Connection) -> None:
        self.governor, self.number = Governor(), 0
        self._connection = connection


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_write_that_is_ended_when_all_of_it_was_passed_on_is_ended_at_the_worker(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has sent everything, the board is slow: the old file stays, as where one process has the board."""
    monkeypatch.setattr("fastflight.server.uploads.ABORT_SECONDS", 0.0)
    all_there, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    took: list[str] = []

    def write(
        request: Trial, schema: pa.Schema, batches: Iterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        try:
            for number, _ in enumerate(batches):
                took.append("a batch")
                if number:
                    all_there.set()
                    go_on.wait(3 * SOON)
                    acknowledge(Progress(2, 16))
            took.append("the end")
            return {"rows": 2, "bytes": 16}
        except BaseException:
            took.append("broke off")
            raise
        finally:
            ended.set()

    with serving(trial=Source(Trial, write=write)) as worker:
        location = f"grpc://127.0.0.1:{worker.server.port}"
        with closing(Connection(location, SOON)) as connection:
            passed_on = Source(
                Trial,
                write=lambda _, *more: passing.write(There(connection), "demo", Trial(mode="sync"), *more),
                awrite=lambda _, *more: passing.awrite(There(connection), "demo", Trial(mode="sync"), *more),
            )
            with serving(trial=passed_on) as front:
                asked = flight.FlightDescriptor.for_command(json.dumps({"type": "trial", "mode": mode}))
                writer, _ = front.client.do_put(asked, NUMBERS)
                for _ in range(2):
                    writer.write_batch(pa.record_batch([pa.array([1], pa.int64())], schema=NUMBERS))
                writer.done_writing()
                assert all_there.wait(SOON)
                front.server._ledger.stop_all()
                with pytest.raises(flight.FlightUnavailableError, match="the server shuts down"):
                    writer.close()
                assert worker.server._ledger.wait_empty(SOON)  # it has heard so, though its writer has not yet
                go_on.set()
                assert ended.wait(SOON)
                assert took == ["a batch", "a batch", "broke off"]
