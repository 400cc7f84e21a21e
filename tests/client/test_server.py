"""Both clients against the real server and its simulated board."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from fastflight.client import AsyncFastFlightClient, FastFlightClient
from fastflight.errors import (
    TransportError,
)
from fastflight.service.choices import Mode
from tests.support.servers import serving

BOTH: tuple[Mode, ...] = ("sync", "async")
TABLE = pa.table({"id": pa.array(range(10_000), pa.int64()), "name": [f"row {number}" for number in range(10_000)]})


@pytest.fixture(scope="module")
def location() -> Iterator[str]:
    with serving() as running:
        with FastFlightClient(running.location) as client:
            client.info("demo")
        yield running.location


@pytest.fixture
def client(location: str) -> Iterator[FastFlightClient]:
    with FastFlightClient(location) as client:
        yield client


@pytest.mark.parametrize("mode", BOTH)
def test_a_file_takes_the_path_that_was_asked_for(client: FastFlightClient, mode: Mode) -> None:
    stream = client.read("demo", "/readings.csv", mode=mode)
    frame = stream.to_pandas()
    assert (stream.path, len(frame), stream.summary["rows"]) == (mode, 10_000, 10_000)
    assert pd.api.types.is_datetime64_any_dtype(frame["time"])


@pytest.mark.parametrize(("mode", "path"), [("sync", "/t.csv"), ("async", "/t.arrow")])
def test_rows_come_back_as_they_were_written(client: FastFlightClient, mode: Mode, path: str) -> None:
    seen: list[tuple[int, int, int | None]] = []
    written = client.write("demo", path, TABLE, mode=mode, progress=lambda *report: seen.append(report))
    assert (written.rows, written.bytes) == (10_000, client.stat("demo", path).size)
    assert seen[-1][:2] == (10_000, written.bytes)
    stream = client.read("demo", path, mode=mode)
    assert stream.to_arrow().replace_schema_metadata(None).equals(TABLE)
    assert stream.summary["sha256"] == written.sha256 == client.hash("demo", path).digest
    client.remove("demo", path)


def test_a_local_file_is_copied(client: FastFlightClient, tmp_path: Path) -> None:
    content = bytes(range(256)) * 400
    (tmp_path / "x.bin").write_bytes(content)
    seen: list[int | None] = []
    written = client.write("demo", "/x.bin", tmp_path / "x.bin", progress=lambda rows, size, total: seen.append(total))
    assert (written.bytes, set(seen)) == (len(content), {len(content)})
    pieces = client.read("demo", "/x.bin", format="raw").to_arrow().column("data").to_pylist()
    assert b"".join(pieces) == content
    client.remove("demo", "/x.bin")


@pytest.mark.parametrize("mode", BOTH)
def test_rows_that_fail_half_way_leave_the_old_file(client: FastFlightClient, mode: Mode) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches(max_chunksize=100)
        raise LookupError("the rows ran out")

    old = client.write("demo", "/kept.csv", TABLE.slice(0, 3), mode=mode)
    with pytest.raises(LookupError, match="ran out"):
        client.write("demo", "/kept.csv", failing(), mode=mode)
    assert client.hash("demo", "/kept.csv").digest == old.sha256
    assert [entry.path for entry in client.ls("demo") if "kept" in entry.path] == ["/kept.csv"]
    client.remove("demo", "/kept.csv")


def test_a_cancelled_write_leaves_the_old_file(location: str) -> None:
    sent = threading.Event()

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield TABLE.to_batches()[0].slice(0, 10)
            sent.set()

    async def main() -> None:
        async with AsyncFastFlightClient(location) as client:
            writing = asyncio.ensure_future(client.write("demo", "/endless.csv", endless()))
            await asyncio.to_thread(sent.wait)
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing

    asyncio.run(main())
    with FastFlightClient(location) as client:
        assert "/endless.csv" not in [entry.path for entry in client.ls("demo")]


@pytest.mark.parametrize("mode", BOTH)
def test_a_stream_that_is_left_gives_the_device_back(client: FastFlightClient, mode: Mode) -> None:
    with client.exec("demo", "import time\nwhile True:\n print(1)\n time.sleep_ms(1)", mode=mode) as stream:
        assert next(iter(stream)).num_rows
    assert client.exec("demo", "print(2)").to_arrow().column("text").to_pylist() == ["2"]


def test_a_busy_device_says_who_has_it(location: str, client: FastFlightClient) -> None:
    with client.exec("demo", "import time\nwhile True:\n print(1)\n time.sleep_ms(1)") as stream:
        assert next(iter(stream)).num_rows
        (device,) = client.devices()
        assert device.holder == "a device.exec request (async)"


def test_a_server_that_went_away_is_a_transport_error() -> None:
    with serving() as running:
        client = FastFlightClient(running.location)
        assert client.health() == {"status": "serving"}
    with client, pytest.raises(TransportError):
        client.health()
