"""Publishes rows to InfluxDB as line protocol.

The measurement is the device, the columns are fields. InfluxDB replaces a point with the same measurement and time, so
the time of a row is that of its chunk, plus its `line` in nanoseconds: rows of a chunk never share a time, and a row
that is sent again replaces itself. A row without a known time gets the time at which it is sent, and so does not
replace itself.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from fastflight.publish.address import OutputAddress
from fastflight.publish.http import HttpOutput, quoted
from fastflight.publish.output import Message, Refusal
from fastflight.publish.rows import PLACE, RowFormat
from fastflight.tables.writing import as_text

# In the answer of InfluxDB 1 when it took some of the points.
DROPPED = re.compile(r"partial write: .* dropped=([0-9]{1,9})")
# Integers of InfluxDB have 64 bits and a sign.
MAX_INTEGER = 2**63


class InfluxOutput(HttpOutput):
    """An `Output`."""

    def __init__(self, device: str, address: OutputAddress, rows: RowFormat) -> None:
        super().__init__(address, "Token")
        self._measurement = escaped(device)
        options = address.options
        if "db" in options:
            self._path, self._params = "/write", {"db": options["db"], "precision": "ns"}
        else:
            self._path, self._params = "/api/v2/write", {"bucket": options["bucket"], "precision": "ns"}
            if "org" in options:
                self._params["org"] = options["org"]

    def encode(self, rows: pa.RecordBatch) -> Message:
        now = time.time_ns()
        points = (
            point(self._measurement, row, now + number if known is None else known)
            for number, (row, known) in enumerate(timed(rows))
        )
        return Message(rows.num_rows, "\n".join(filter(None, points)).encode())

    async def send(self, message: Message) -> Refusal | None:
        if not message.content:
            return None
        answer = await self.post(self._path, message.content, "text/plain; charset=utf-8", self._params)
        if answer.acknowledges:
            return None
        text = answer.content.decode(errors="replace")
        dropped = DROPPED.search(text)
        return Refusal(min(message.rows, int(dropped[1])) if dropped else message.rows, quoted(text))


def timed(rows: pa.RecordBatch) -> list[tuple[dict[str, Any], int | None]]:
    """Return each row as a dict without `PLACE`, and its time in nanoseconds; None if it is not known."""
    times = rows.column("time").cast(pa.int64()).to_pylist()
    numbers = rows.column("line").to_pylist()
    columns = rows.select(range(len(PLACE), rows.num_columns))
    for place, each in enumerate(columns.schema):
        if getattr(each.type, "unit", "") == "ns":  # Python's times have no nanoseconds: text, as in JSON lines
            columns = columns.set_column(place, each.name, as_text(columns.column(place), each.name))
    return [
        (row, None if microseconds is None else microseconds * 1000 + number)
        for row, microseconds, number in zip(columns.to_pylist(), times, numbers, strict=True)
    ]


def point(measurement: str, row: Mapping[str, Any], nanoseconds: int) -> str:
    """Return a row as a line of line protocol; empty if none of its values can be a field."""
    fields = [f"{escaped(name)}={value}" for name, value in ((name, field(row[name])) for name in row) if value]
    if not fields:
        return ""
    return f"{measurement} {','.join(fields)} {nanoseconds}"


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
