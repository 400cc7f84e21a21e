"""Publishes rows to an MQTT broker, with discovery messages for Home Assistant.

Topics, below `fastflight` or the path of the URL: `DEVICE/rows` gets each row as a JSON object, `DEVICE/status` is
`online` or `offline` (retained; the broker itself publishes `offline` if the server dies). With `discovery=PREFIX`
there is a retained message for each column of numbers, from which Home Assistant makes a sensor, and for each column of
truth values, from which it makes a binary sensor.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
from collections.abc import Iterator

import pyarrow as pa

from fastflight.errors import RequestError, TransportError
from fastflight.publish.address import OutputAddress
from fastflight.publish.mqtt_connection import MqttConnection
from fastflight.publish.output import Message, Refusal
from fastflight.publish.rows import RowFormat, is_number
from fastflight.tables import Layout, open_writer

REFUSED = 0x80
# What a packet has beside its topic and payload, at most.
OVERHEAD_BYTES = 10


class MqttOutput:
    """An `Output`."""

    def __init__(self, device: str, address: OutputAddress, rows: RowFormat) -> None:
        base = f"{address.path.strip('/') or 'fastflight'}/{device}"
        self._rows_topic, self._status_topic = f"{base}/rows", f"{base}/status"
        self._device = device
        self._address = address
        self._rows = rows
        self._connection: MqttConnection | None = None

    async def open(self) -> None:
        self._connection = MqttConnection(self._address, (self._status_topic, b"offline"))
        await self._connection.open()
        for topic, payload in [(self._status_topic, b"online"), *self._discovery()]:
            code = await self._connection.publish(topic, payload, retain=True)
            if code >= REFUSED:
                hint = "Allow it in the broker's access list"
                raise RequestError(f"the broker refuses the topic {topic}", where=self._address.label, hint=hint)

    def encode(self, rows: pa.RecordBatch) -> Message:
        writer = open_writer(Layout("jsonl", bytes_as="base64"), rows.schema)
        return Message(
            rows.num_rows, b"".join((writer.begin(), writer.encode(rows), writer.finish())).split(b"\n")[:-1]
        )

    async def send(self, message: Message) -> Refusal | None:
        connection = self._connection
        assert connection is not None
        all_payloads: list[bytes] = message.content
        longest = connection.max_packet_bytes - OVERHEAD_BYTES - len(self._rows_topic.encode())
        payloads = [each for each in all_payloads if len(each) <= longest]
        denied = 0
        for at in range(0, len(payloads), connection.window):
            sent = (connection.publish(self._rows_topic, payload) for payload in payloads[at : at + connection.window])
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                denied += outcome >= REFUSED
        if denied:
            reason = f"the broker refuses the topic {self._rows_topic}"
        else:
            reason = f"the broker takes at most {longest} bytes"
        refused = denied + len(all_payloads) - len(payloads)
        return Refusal(refused, reason) if refused else None

    def check(self) -> None:
        if self._connection is not None:
            self._connection.check()

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            with contextlib.suppress(TransportError):
                await connection.publish(self._status_topic, b"offline", retain=True)
        finally:
            connection.close()

    def _discovery(self) -> Iterator[tuple[str, bytes]]:
        """Yield the topics and payloads that Home Assistant reads (its page "MQTT", "Discovery messages")."""
        prefix = self._address.options.get("discovery")
        if prefix is None:
            return
        node = object_id(f"fastflight_{self._device}")
        for column in self._rows.columns:
            if not is_number(column.type):
                continue
            truth = pa.types.is_boolean(column.type)
            unit = self._rows.units.get(column.name)
            config = {
                "name": column.name,
                "unique_id": f"{node}_{object_id(column.name)}",
                "state_topic": self._rows_topic,
                "value_template": "{{ value_json[" + json.dumps(column.name) + "] }}",
                "availability_topic": self._status_topic,
                # What the template makes of JSON's true and false.
                **({"payload_on": "True", "payload_off": "False"} if truth else {"state_class": "measurement"}),
                **({} if truth or unit is None else {"unit_of_measurement": unit}),
                "device": {"identifiers": [node], "name": self._device},
                "origin": {"name": "fastflight"},
            }
            kind = "binary_sensor" if truth else "sensor"
            yield f"{prefix}/{kind}/{node}/{object_id(column.name)}/config", json.dumps(config).encode()


def object_id(name: str) -> str:
    """Return `name` as Home Assistant allows it in a topic. Names that differ stay different."""
    allowed = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    return allowed if allowed == name else f"{allowed}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"
