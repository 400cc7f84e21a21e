"""Writes to a device in a thread: what is under way when nobody wants it any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fastflight.concurrency import Channel
from fastflight.device import Inventory
from fastflight.errors import FastFlightError, Stopped
from fastflight.service.requests import DeviceFile, DeviceTree
from fastflight.service.source import Incoming
from fastflight.sources.device_file import DeviceFiles
from fastflight.sources.device_tree import DeviceTrees
from fastflight.transport.chunk_buffer import Chunk

SOON = 20.0
# For minutes of the line at hand.
SIZE = 16 * 1024 * 1024


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Inventory]:
    """A board at the end of a line of a megabaud."""
    with Inventory({"demo": f"sim:?files={tmp_path}&telemetry=0&baud=1000000"}) as inventory:
        yield inventory


def row(**columns: object) -> pa.RecordBatch:
    return pa.record_batch([pa.array([each]) for each in columns.values()], list(columns))


FILE = DeviceFile(device="demo", path="/big.bin", format="raw"), row(data=bytes(SIZE))
TREE = DeviceTree(device="demo", path="/"), row(path="big.bin", offset=0, data=bytes(SIZE))


@pytest.mark.parametrize(
    ("source", "request_", "batch"),
    [(DeviceFiles, *FILE), (DeviceTrees, *TREE)],
    ids=["file", "tree"],
)
def test_a_row_that_nobody_wants_any_more_is_broken_off(
    inventory: Inventory, tmp_path: Path, source: type, request_: object, batch: pa.RecordBatch
) -> None:
    device = inventory.device("demo")
    write: Callable[..., Any] = source(inventory).write
    batches = Channel[pa.RecordBatch](1)
    raised: list[FastFlightError] = []

    def run(batches: Incoming) -> None:
        try:
            write(request_, batch.schema, batches, lambda state: None)
        except FastFlightError as error:
            raised.append(error)

    crossing = device.tap.whole().reader()
    writing = threading.Thread(target=run, args=(batches,))
    writing.start()
    batches.put(batch, SIZE)
    while (
        sum(len(chunk.data) for chunk in crossing.take(SOON) if isinstance(chunk, Chunk) and chunk.direction == "tx")
        < 256
    ):
        assert writing.is_alive()
    batches.cancel(Stopped("the client has left"))
    writing.join(SOON)
    assert not writing.is_alive()
    assert [error.what for error in raised] == ["the client has left"]
    assert device.holder is None
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".fastflight", "big"))]
