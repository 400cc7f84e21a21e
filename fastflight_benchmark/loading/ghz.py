"""Load from ghz, a load tool for gRPC services, which uses neither Python nor Arrow.

`peers.wire` makes the description of Flight's methods that ghz needs. ghz counts every complete answer with status OK
as correct; the Flight clients (`calling`) check the content of the answers.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyarrow import flight

from fastflight.errors import TransportError
from fastflight_benchmark.loading.calling import DO_ACTION, DO_GET, GET_FLIGHT_INFO
from fastflight_benchmark.peers import wire

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
        description, request = Path(folder) / "flight.protoset", Path(folder) / "request"
        description.write_bytes(wire.description())
        request.write_bytes(message(operation, payload))
        command = [
            str(program),
            "--insecure",
            f"--protoset={description}",
            f"--call={wire.SERVICE}/{METHODS[operation]}",
            f"--binary-file={request}",
            f"--connections={connections}",
            f"--concurrency={connections}",
            f"--duration={seconds}s",
            "--duration-stop=wait",
            "--format=json",
            location.partition("://")[2],
        ]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds + EXTRA_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TransportError(f"ghz did not run to its end: {error}", where=location) from error
    if done.returncode or not done.stdout.startswith("{"):
        raise TransportError(f"ghz failed: {(done.stderr or done.stdout).strip()[-SHOWN_CHARACTERS:]}", where=location)
    report: Mapping[str, Any] = json.loads(done.stdout)
    return report


def latencies(report: Mapping[str, Any]) -> list[float]:
    """Return the seconds of each call with status OK."""
    return [one["latency"] / 1e9 for one in report.get("details") or () if one["status"] == "OK"]


def errors(report: Mapping[str, Any]) -> Counter[str]:
    """Count the statuses other than OK."""
    found = report.get("statusCodeDistribution") or {}
    return Counter({f"ghz: {code}": int(count) for code, count in found.items() if code != "OK"})
