"""do_put, as a plain pyarrow client does it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from fastflight.concurrency import Channel
from fastflight.concurrency.offload import unbroken
from fastflight.errors import DataError, Stopped
from fastflight.server import uploads
from fastflight.server.incoming import ABORT, MAX_APP_METADATA_BYTES, Incoming
from fastflight.service.source import Acknowledge, Progress, Summary
from tests.support.function_source import FunctionSource, sync_write
from tests.support.refusals import refused

from .conftest import SCHEMA, SOON, Trial, TrialServer, trial_server

BATCH = pa.record_batch([pa.array(range(10), pa.int64())], schema=SCHEMA)


def command(**keys: object) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps(keys))


def acks(reader: flight.FlightMetadataReader) -> list[dict[str, Any]]:
    found = []
    while (message := reader.read()) is not None:
        found.append(json.loads(message.to_pybytes()))
    return found


def test_every_batch_is_acknowledged_and_the_last_message_is_the_result(running: TrialServer, mode: str) -> None:
    writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
    with writer:
        for _ in range(3):
            writer.write_batch(BATCH)
        writer.done_writing()
        assert acks(reader) == [
            {"rows": 10, "bytes": 80},
            {"rows": 20, "bytes": 160},
            {"rows": 30, "bytes": 240},
            {"rows": 30, "bytes": 240, "sha256": "abc", "done": True},
        ]
    assert running.trials.taken == [10, 10, 10]
    assert running.settled()
    assert running.stats()["sources"]["trial"]["finished"] == 1


def test_a_client_that_never_reads_acknowledgements_is_not_stopped(running: TrialServer, mode: str) -> None:
    writer, _ = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
    one = BATCH.slice(0, 1)
    for _ in range(10_000):
        writer.write_batch(one)
    writer.close()
    assert running.settled()
    assert sum(running.trials.taken) == 10_000


def corrupt() -> pa.RecordBatch:
    """A string column with an offset that points far behind its data, between two that fit."""
    offsets = np.array([0, 2_000_000_000, 6], dtype=np.int32)
    strings = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"abcdef")])
    return pa.record_batch([strings], names=["text"])


def test_a_refusal_waits_for_no_word_of_a_client_that_waits_for_one(
    running: TrialServer, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the thread of the acknowledgements ends, as on a busy machine: it has nothing to write any more."""
    run = uploads._Acks._run

    def late(acks: uploads._Acks) -> None:
        run(acks)
        never.wait(10 * uploads.ACKS_SECONDS)

    never = threading.Event()
    monkeypatch.setattr(uploads._Acks, "_run", late)
    options = flight.FlightCallOptions(timeout=SOON)
    writer, reader = running.client.do_put(command(type="trial", mode=mode), corrupt().schema, options)
    writer.write_batch(pa.record_batch([["ab"]], names=["text"]))
    assert json.loads(reader.read().to_pybytes())["rows"] == 1
    writer.write_batch(corrupt())
    with pytest.raises(pa.ArrowInvalid, match="a batch is corrupt"):
        acks(reader)
        writer.close()
    assert running.settled()


def test_a_writers_error_reaches_the_client(running: TrialServer, mode: str) -> None:
    writer, reader = running.client.do_put(command(type="trial", mode=mode, error="busy"), SCHEMA)
    with refused(flight.FlightUnavailableError, code="busy"):
        for _ in range(1_000):
            writer.write_batch(BATCH)
        writer.done_writing()
        acks(reader)
        writer.close()
    assert running.settled()
    assert running.stats()["failed"] == 1


KILLED = """
import os, signal, sys
import pyarrow as pa, pyarrow.flight as flight
client = flight.connect(sys.argv[1])
batch = pa.record_batch([pa.array(range(10), pa.int64())], names=["n"])
writer, reader = client.do_put(flight.FlightDescriptor.for_command(sys.argv[2]), batch.schema)
writer.write_batch(batch)
reader.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_client_that_is_killed_is_not_one_that_has_finished(running: TrialServer, mode: str) -> None:
    location, request = f"grpc://127.0.0.1:{running.server.port}", json.dumps({"type": "trial", "mode": mode})
    subprocess.run([sys.executable, "-c", KILLED, location, request], check=False, timeout=SOON * 3)
    assert running.settled()
    assert running.trials.broke_off == ["Stopped"]
    assert running.stats()["cancelled"] == 1


def test_a_client_that_is_killed_while_its_rows_are_stored_ends_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has ended its side, so reading does not tell."""
    monkeypatch.setattr("fastflight.server.uploads.ABORT_SECONDS", 0.0)
    cancelled = threading.Event()

    async def awrite(
        request: Trial, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        rows = sum([batch.num_rows async for batch in batches])
        acknowledge(Progress(rows, 8 * rows))
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return {}

    killed = KILLED.replace("reader.read()", "writer.done_writing()\nreader.read()")
    with trial_server(trial=FunctionSource(Trial, awrite=awrite)) as running:
        location, request = f"grpc://127.0.0.1:{running.server.port}", json.dumps({"type": "trial"})
        subprocess.run([sys.executable, "-c", killed, location, request], check=False, timeout=SOON * 3)
        assert cancelled.wait(SOON)
        assert running.settled()
        assert running.stats()["cancelled"] == 1


def test_a_source_that_is_not_there(running: TrialServer) -> None:
    writer, reader = running.client.do_put(flight.FlightDescriptor.for_path("demo", "/a.csv"), SCHEMA)
    with pytest.raises(pa.ArrowInvalid, match=r"there is no request type 'device.file'"):
        writer.done_writing()
        acks(reader)
        writer.close()


def test_app_metadata_has_a_limit(running: TrialServer, mode: str) -> None:
    """What other clients put beside a batch is passed over, as far as it is small."""
    writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
    with pytest.raises(pa.ArrowInvalid, match=f"{MAX_APP_METADATA_BYTES} are allowed"), writer:
        writer.write_with_metadata(BATCH, bytes(MAX_APP_METADATA_BYTES))
        writer.write_with_metadata(BATCH, bytes(MAX_APP_METADATA_BYTES + 1))
        writer.done_writing()
        acks(reader)
    assert running.settled()


@pytest.mark.parametrize("call", ["do_put", "do_exchange"])
def test_an_error_names_the_call(call: str) -> None:
    """Over gRPC, a client may lose the reason to the end of its own side."""

    class Reader:
        schema = SCHEMA

        def read_chunk(self) -> SimpleNamespace:
            return SimpleNamespace(data=BATCH, app_metadata=pa.py_buffer(bytes(MAX_APP_METADATA_BYTES + 1)))

    stream = SimpleNamespace(waiting_for_client=nullcontext, passing=lambda: None)
    with pytest.raises(DataError, match=f"^{call}: .* are allowed"):
        next(Incoming(cast(Any, Reader()), cast(Any, stream), call))


def test_one_that_is_ended_while_its_rows_wait_is_not_a_shorter_one(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has sent everything, the board is slow: what it has not taken yet is dropped, and is missing."""
    said_all, stopped, ended = threading.Event(), threading.Event(), threading.Event()
    took: list[str] = []
    finish: Callable[[Any], None] = Channel.finish

    def finished(batches: Any) -> None:
        finish(batches)
        said_all.set()

    @contextmanager
    def telling() -> Iterator[None]:
        try:
            yield
            took.append("the end")
        except Stopped:
            took.append("broke off")
            raise
        finally:
            ended.set()

    async def awrite(
        request: Trial, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: object
    ) -> Summary:
        with telling():
            async for _ in batches:
                took.append("a batch")
                await asyncio.to_thread(stopped.wait, SOON)
        return {}

    monkeypatch.setattr(Channel, "finish", finished)
    with trial_server(trial=FunctionSource(Trial, write=sync_write(awrite), awrite=awrite)) as running:
        writer, _ = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
        for _ in range(3):
            writer.write_batch(BATCH)
        writer.done_writing()
        assert said_all.wait(SOON)
        running.server._registry.stop_all()
        stopped.set()
        assert ended.wait(SOON)
        assert took in (["broke off"], ["a batch", "broke off"])  # the first where the writer had not begun
        with pytest.raises(flight.FlightUnavailableError, match="the server shuts down"):
            writer.close()
        assert running.settled()


def test_a_writer_that_needs_longer_than_it_is_given_ends_by_itself(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clean-up is not waited for any longer; what it comes to then is nobody's, and no trouble."""
    monkeypatch.setattr("fastflight.server.uploads.ABORT_SECONDS", 0.0)
    go_on, cleaned = threading.Event(), threading.Event()

    async def awrite(
        request: Trial, schema: pa.Schema, batches: AsyncIterator[pa.RecordBatch], acknowledge: Acknowledge
    ) -> Summary:
        try:
            async for batch in batches:
                acknowledge(Progress(batch.num_rows, 0))
            return {}
        finally:
            await unbroken(asyncio.to_thread(go_on.wait, SOON))
            cleaned.set()

    with trial_server(trial=FunctionSource(Trial, write=sync_write(awrite), awrite=awrite)) as running:
        writer, reader = running.client.do_put(command(type="trial", mode=mode), SCHEMA)
        writer.write_batch(BATCH)
        assert reader.read() is not None
        with pytest.raises(flight.FlightUnavailableError, match="the client aborted the upload"):
            writer.write_metadata(ABORT)
            writer.close()
        go_on.set()
        assert cleaned.wait(SOON)
        assert running.settled()
    for thread in threading.enumerate():
        if thread.name == "upload-writer":
            thread.join(SOON)
