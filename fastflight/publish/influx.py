"""Publishes rows to InfluxDB as line protocol.

The measurement is the device, the columns are fields. InfluxDB replaces a point with the same measurement and time, so
the time of a row is that of its chunk, plus its `line` in nanoseconds: two rows never share a time, and a row that is
sent again replaces itself. A row without a known time gets the time at which InfluxDB receives it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from fastflight.publish.address import OutputAddress
from fastflight.publish.http import HttpClient, quoted
from fastflight.publish.output import Refusal
from fastflight.publish.rows import PLACE, RowFormat

# Times have microseconds, so at most this many nanoseconds can tell the lines of a chunk apart.
MAX_LINE = 999
# Integers of InfluxDB have 64 bits and a sign.
MAX_INTEGER = 2**63


class InfluxOutput:
    """An `Output`."""

    def __init__(self, device: str, address: OutputAddress, rows: RowFormat) -> None:
        self._measurement = escaped(device)
        self._address = address
        self._client: HttpClient | None = None
        options = address.options
        if "db" in options:
            self._path, self._params = "/write", {"db": options["db"], "precision": "ns"}
        else:
            self._path, self._params = "/api/v2/write", {"bucket": options["bucket"], "precision": "ns"}
            if "org" in options:
                self._params["org"] = options["org"]

    async def open(self) -> None:
        self._client = HttpClient(self._address, "Token")

    async def send(self, rows: pa.RecordBatch) -> Refusal | None:
        assert self._client is not None
        lines = list(filter(None, (point(self._measurement, row, time) for row, time in timed(rows))))
        if not lines:
            return None
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        answer = await self._client.post(self._path, "\n".join(lines).encode(), headers, self._params)
        return None if answer.is_success else Refusal(rows.num_rows, quoted(answer))

    def check(self) -> None:
        """There is no lasting connection."""

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def timed(rows: pa.RecordBatch) -> list[tuple[dict[str, Any], int | None]]:
    """Return each row as a dict without `PLACE`, and its time in nanoseconds; None if it is not known."""
    times = rows.column("time").cast(pa.int64()).to_pylist()
    numbers = rows.column("line").to_pylist()
    values = rows.select(range(len(PLACE), rows.num_columns)).to_pylist()
    return [
        (row, None if time is None else time * 1000 + min(number, MAX_LINE))
        for row, time, number in zip(values, times, numbers, strict=True)
    ]


def point(measurement: str, row: Mapping[str, Any], time: int | None) -> str:
    """Return a row as a line of line protocol; empty if none of its values can be a field."""
    fields = [f"{escaped(name)}={value}" for name, value in ((name, field(row[name])) for name in row) if value]
    if not fields:
        return ""
    return f"{measurement} {','.join(fields)}" + ("" if time is None else f" {time}")


def field(value: Any) -> str:
    """Return a value as a field of line protocol; empty for null, and for numbers that are not finite."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}i" if -MAX_INTEGER <= value < MAX_INTEGER else repr(float(value))
    if isinstance(value, float):
        return repr(value)
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    quoted_text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted_text}"'


def escaped(name: str) -> str:
    """Return a name of a measurement or field with its special characters escaped."""
    name = " ".join(name.splitlines())
    for character in ("\\", ",", "=", " "):
        name = name.replace(character, "\\" + character)
    return name
