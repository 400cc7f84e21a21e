"""What tests of live sessions share: what they ask for, and the messages of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

SESSION = {"type": "device.session", "device": "demo", "flush_ms": 0}
TELEMETRY = {"ms": "int64", "temperature": "double"}


def messages(reader: Any) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Rows and metadata of each message."""
    try:
        while True:
            chunk = reader.read_chunk()
            yield chunk.data.to_pylist(), json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata else {}
    except StopIteration:
        return


def said(stream: Iterator[tuple[list[dict[str, Any]], dict[str, Any]]], mark: bytes) -> bytes:
    data = b""
    for rows, _ in stream:
        data += b"".join(row["data"] for row in rows if row["direction"] == "rx")
        if mark in data:
            break
    return data
