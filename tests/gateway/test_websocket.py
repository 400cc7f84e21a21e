"""WebSockets of clients that send what they like and do not read, frame by frame."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from fastflight.concurrency import Channel
from fastflight.gateway import listen
from fastflight.gateway.http.connections import Connections
from fastflight.gateway.ws.channel import WebSocketChannel
from fastflight.gateway.ws.repl import MAX_INPUT_BYTES, _receive_input
from tests.support.waiting import until

from .conftest import TrialGateway
from .raw_websocket import CLOSE, accepted, frame, opened

PAGE = "/ws/fleet"


def test_they_count_as_connections(running: TrialGateway) -> None:
    connections = Connections(max_connections=1)
    with listen(running.app, running.shard, 0, connections=connections) as gateway:
        with accepted(gateway, PAGE) as raw:
            assert connections.open == 1
            with suppress(ConnectionError), opened(gateway, PAGE) as second:
                assert second.recv(1) == b""
            raw.sendall(frame(CLOSE, b"\x03\xe8"))
            while raw.recv(65536):
                pass
            until(lambda: connections.open == 0)


@pytest.mark.parametrize("size", [64 * 1024, 1])
def test_what_is_typed_and_waits_for_the_device_is_bounded(size: int) -> None:
    """A key is a batch of its own, and takes more than its byte. Nobody reads the channel."""
    typed = Channel[pa.RecordBatch](MAX_INPUT_BYTES)
    received, sent = 0, []

    async def receive() -> dict[str, Any]:
        nonlocal received
        received += size
        return {"type": "websocket.receive", "bytes": b"x" * size}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def run() -> None:
        channel = WebSocketChannel(receive, send)
        await channel.fail(await _receive_input(channel, typed))

    asyncio.run(run())
    assert (sent[-1]["type"], sent[-1]["code"]) == ("websocket.close", 4413)
    batches = typed.take()
    assert batches is not None and sum(batch.num_rows * size for batch in batches) == received
    assert MAX_INPUT_BYTES // 4096 < received <= MAX_INPUT_BYTES
