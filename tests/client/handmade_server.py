"""A Flight server written by hand: the wire contract, and the ways in which a server can break it."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv
from pyarrow import flight

READINGS = pa.table({"time": list(range(10)), "celsius": [20.0 + step / 2 for step in range(10)]})


class HandmadeServer(flight.FlightServerBase):
    """Serves `/readings.csv` in three batches, takes writes, and breaks on request (the file's name says how)."""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.location = f"grpc://127.0.0.1:{self.port}"
        self.files: dict[str, bytes] = {}
        self.asked: list[dict[str, Any]] = []
        self.refuse_after: int | None = None
        self.took = threading.Event()
        self.acknowledge = threading.Event()
        self.acknowledge.set()

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        request = json.loads(ticket.ticket)
        self.asked.append(request)
        if request.get("device", "demo") != "demo":
            raise pa.ArrowKeyError(f"{request['device']}: no such device. Known: demo")
        path = str(request.get("path"))
        if path == "/missing.csv":
            described = {
                "code": "device.file_missing",
                "what": "no such file",
                "where": path,
                "hint": "List the folder",
            }
            raise flight.FlightServerError("no such file", json.dumps(described).encode())
        if path == "/busy.csv":
            described = {"code": "busy", "what": "in use", "where": "demo", "hint": "Wait", "holder": "a bridge"}
            raise flight.FlightUnavailableError("in use", json.dumps(described).encode())
        if path == "/late.csv":
            self.took.set()
            self.acknowledge.wait()
        if path == "/wrong":
            raise pa.ArrowInvalid("format: 'cvs' is not allowed. Did you mean 'csv'?")
        schema = READINGS.schema.with_metadata({"fastflight.path": request.get("mode", "async")})
        return flight.GeneratorStream(schema, self._batches(path))

    def _batches(self, path: str) -> Iterator[Any]:
        empty = pa.RecordBatch.from_pylist([], READINGS.schema)
        yield empty  # a sign of life
        for batch in READINGS.to_batches(max_chunksize=4):
            yield batch
            if path == "/raises.csv":
                described = {"code": "device.exception", "what": "it raised", "kind": "ValueError", "traceback": "T"}
                raise flight.FlightServerError("it raised", json.dumps(described).encode())
            if path == "/short.csv":
                return
            if path == "/endless.csv":
                while True:
                    yield batch
        rows = 9 if path == "/miscounted.csv" else 10
        yield empty, json.dumps({"rows": rows, "bytes": 120, "sha256": "ab"}).encode()

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        request = json.loads(descriptor.command)
        self.asked.append(request)
        rows, taken, content = 0, 0, io.BytesIO()
        for chunk in reader:
            if chunk.app_metadata is not None and json.loads(chunk.app_metadata.to_pybytes()).get("abort"):
                raise flight.FlightServerError("the client gave up")
            if chunk.data is None:
                continue
            taken += 1
            if self.refuse_after is not None and taken > self.refuse_after:
                described = {"code": "device.full", "what": "no space left", "where": "demo", "hint": "Remove files"}
                raise flight.FlightServerError("no space left", json.dumps(described).encode())
            rows += chunk.data.num_rows
            pa.csv.write_csv(chunk.data, content, pa.csv.WriteOptions(include_header=taken == 1))
            self.took.set()
            self.acknowledge.wait()
            writer.write(json.dumps({"rows": rows, "bytes": content.tell()}).encode())
        data = content.getvalue()
        self.files[request["path"]] = data
        sha256 = hashlib.sha256(data).hexdigest()
        writer.write(json.dumps({"rows": rows, "bytes": len(data), "sha256": sha256, "done": True}).encode())

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """Take what is sent, once that is acknowledged, and say nothing of it."""
        request = json.loads(descriptor.command)
        self.asked.append(request)
        if request["device"] == "late":
            self.took.set()
            self.acknowledge.wait()
        writer.begin(READINGS.schema)
        self.took.set()
        self.acknowledge.wait()
        writer.write_with_metadata(pa.RecordBatch.from_pylist([], READINGS.schema), b'{"rows": 0}')
        for _ in reader:
            pass

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        body = json.loads(action.body.to_pybytes() or b"{}")
        self.asked.append({"action": action.type, **body})
        answers: dict[str, list[Any]] = {
            "devices": [{"name": "demo", "url": "sim:", "open": True, "holder": None}],
            "file.stat": [{"path": body.get("path"), "kind": "file", "size": 3, "modified": 1767323045.0}],
            "file.hash": [{"path": "/x", "algorithm": "crc32", "digest": "ab"}],
            "health": [{"status": "ok"}],
        }
        return iter([json.dumps(answer).encode() for answer in answers.get(action.type, [])])
