"""Load from ghz, a load tool for gRPC services, which uses neither Python nor Arrow.

It needs Flight's methods as a protobuf file (`PROTO`), with the messages and fields that it writes. ghz counts every
complete answer with status OK as correct; the Flight clients (`calling`) check the content of the answers.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyarrow import flight

from fastflight.errors import TransportError
from fastflight_benchmark.loading.calling import DO_ACTION, DO_GET, GET_FLIGHT_INFO
from fastflight_benchmark.processes import finished

SERVICE = "arrow.flight.protocol.FlightService"
# Numbers and names are those of the Flight protocol. Fields and methods that are not used here are left out.
PROTO = """
syntax = "proto3";
package arrow.flight.protocol;

service FlightService {
  rpc DoGet(Ticket) returns (stream FlightData) {}
  rpc GetFlightInfo(FlightDescriptor) returns (FlightInfo) {}
  rpc DoAction(Action) returns (stream Result) {}
}
message Ticket { bytes ticket = 1; }
message FlightDescriptor { int32 type = 1; bytes cmd = 2; }
message Action { string type = 1; bytes body = 2; }
message Result { bytes body = 1; }
message FlightInfo { bytes schema = 1; }
message FlightData { bytes data_header = 2; bytes data_body = 1000; }
"""
METHODS = {DO_GET: "DoGet", GET_FLIGHT_INFO: "GetFlightInfo", DO_ACTION: "DoAction"}
# ghz may take this much longer than the load: it opens connections and writes its report.
EXTRA_SECONDS = 30.0
SHOWN_CHARACTERS = 300


def message(operation: str, payload: bytes) -> bytes:
    """Return the encoded request of an operation. `payload` is the same as for `calling.call`."""
    if operation == DO_GET:
        return bytes(flight.Ticket(payload).serialize())
    if operation == GET_FLIGHT_INFO:
        return bytes(flight.FlightDescriptor.for_command(payload).serialize())
    return bytes(flight.Action(payload.decode(), b"").serialize())


def load(
    program: Path, location: str, operation: str, payload: bytes, *, connections: int, seconds: float
) -> Mapping[str, Any]:
    """Load a server. Return ghz's report: `count`, `rps`, `total`, `details` with each `latency` in nanoseconds."""
    with tempfile.TemporaryDirectory(prefix="fastflight-ghz-") as folder:
        description, request = Path(folder) / "flight.proto", Path(folder) / "request"
        description.write_text(PROTO, encoding="utf-8")
        request.write_bytes(message(operation, payload))
        command = [
            str(program),
            "--insecure",
            f"--proto={description}",
            f"--call={SERVICE}/{METHODS[operation]}",
            f"--binary-file={request}",
            f"--connections={connections}",
            f"--concurrency={connections}",
            f"--duration={seconds}s",
            "--duration-stop=wait",
            "--format=json",
            location.partition("://")[2],
        ]
        text = finished(command, seconds + EXTRA_SECONDS).output
    try:
        report: Mapping[str, Any] = json.loads(text)
    except ValueError as error:
        raise TransportError(f"ghz wrote no report: {text[:SHOWN_CHARACTERS]}", where=location) from error
    return report


def latencies(report: Mapping[str, Any]) -> list[float]:
    """Return the seconds of each call with status OK."""
    return [one["latency"] / 1e9 for one in report.get("details") or () if one["status"] == "OK"]


def errors(report: Mapping[str, Any]) -> Counter[str]:
    """Count the statuses other than OK."""
    found = report.get("statusCodeDistribution") or {}
    return Counter({f"ghz: {code}": int(count) for code, count in found.items() if code != "OK"})
