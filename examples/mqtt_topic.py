"""The messages of an MQTT topic, as they come. Needs paho-mqtt, which the extra `publish` installs.

MQTT_BROKER=127.0.0.1:1883 fastflight serve --source mqtt_topic:MESSAGES
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import paho.mqtt.client as mqtt
import pyarrow as pa

from fastflight import Source, SourceRequest
from fastflight.errors import DataError, TransportError

SCHEMA = pa.schema([("time", pa.timestamp("us", "UTC")), ("topic", pa.string()), ("payload", pa.binary())])
# What waits for a slow reader.
MAX_WAITING = 10_000


class MessagesRequest(SourceRequest):
    """The messages that match a filter, as `sensors/#`, until there were `limit` of them."""

    type = "mqtt"
    topic: str = "#"
    limit: int | None = None


async def aread(request: MessagesRequest) -> AsyncIterator[pa.RecordBatch]:
    host, _, port = os.environ["MQTT_BROKER"].partition(":")
    loop, waiting, arrived = asyncio.get_running_loop(), list[dict[str, Any]](), asyncio.Event()

    def keep(row: dict[str, Any]) -> None:
        if len(waiting) <= MAX_WAITING:
            waiting.append(row)
        arrived.set()

    def on_message(client: mqtt.Client, _: object, message: mqtt.MQTTMessage) -> None:
        row = {"time": datetime.now(UTC), "topic": message.topic, "payload": message.payload}
        loop.call_soon_threadsafe(keep, row)

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.on_connect = lambda *_: client.subscribe(request.topic)
    client.on_message = on_message
    try:
        await asyncio.to_thread(client.connect, host, int(port or 1883))
    except OSError as error:
        raise TransportError("no broker answers", where=os.environ["MQTT_BROKER"]) from error
    client.loop_start()
    try:
        left = request.limit
        while left is None or left > 0:
            await arrived.wait()
            if len(waiting) > MAX_WAITING:
                raise DataError("messages come faster than the client reads", where=request.topic)
            rows = waiting[:left]
            waiting.clear()
            arrived.clear()
            left = None if left is None else left - len(rows)
            yield pa.RecordBatch.from_pylist(rows, SCHEMA)
    finally:
        client.disconnect()
        await asyncio.to_thread(client.loop_stop)


MESSAGES = Source(MessagesRequest, aread=aread, describe=lambda request: SCHEMA)
