"""A server that sends names which lead out of the folder that a command writes to: nothing is written there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from typer.testing import CliRunner

from fastflight.cli.main import app

CONTENT = b"1,21.5\n"
SHA256 = "b3d36d6741cbb3eb64037180b575eee18e37c2ecb0eed040f1143a9ce7417a2e"


class HostileServer(flight.FlightServerBase):  # type: ignore[misc]
    """Has one device and one file, under any names, and answers everything that a command asks of them."""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.location = f"grpc://127.0.0.1:{self.port}"
        self.device = self.path = self.inside = ""

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        request = json.loads(ticket.ticket)
        match request["type"]:
            case "device.listing":
                row = {"path": [self.path], "kind": ["file"], "size": [len(CONTENT)]}
                table = pa.table({**row, "modified": pa.array([0], pa.timestamp("us", "UTC"))})
            case "device.tree":
                table = pa.table({"path": [self.inside], "offset": [0], "data": [CONTENT]})
            case "device.session" | "recording":
                table = pa.table({"time": pa.array([0, 1], pa.timestamp("us", "UTC")), "n": [1.0, 2.0]})
            case "device.exec":
                table = pa.table({"line": [0], "text": [str(len(CONTENT))]})
            case _:
                table = pa.table({"offset": [0], "data": [CONTENT]})
        return flight.GeneratorStream(table.schema, self._batches(table))

    def _batches(self, table: pa.Table) -> Iterator[Any]:
        yield from table.to_batches()
        empty = pa.RecordBatch.from_pylist([], table.schema)
        yield empty, json.dumps({"rows": table.num_rows, "rejected": 0, "sha256": SHA256, "ended": ""}).encode()

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        file = {"path": self.path, "kind": "file", "size": len(CONTENT), "modified": 0}
        answers = {
            "devices": {"name": self.device, "url": "sim:", "open": True, "holder": None},
            "file.stat": {**file, "path": "/lib", "kind": "folder"},
            "file.hash": {**file, "algorithm": "sha256", "digest": SHA256},
            "file.rename": {},
        }
        return iter([json.dumps(answers[action.type]).encode()] if action.type in answers else [])


@pytest.fixture(scope="module")
def hostile() -> Iterator[HostileServer]:
    with HostileServer() as server:
        yield server


COMMANDS = {
    "collect": ["collect", "*:/log.csv", "-o", "in"],
    "collect, its only device": ["collect", ":/log.csv", "-o", "in"],
    "plot": ["plot", "--column", "n", "--seconds", "0.1"],
    "get -r": ["get", "-r", ":/lib", "in"],
    "get -r, unchanged left out": ["get", "-r", ":/lib", "in", "--skip-unchanged"],
    "get of a glob": ["get", ":/lib/*", "in"],
    "cp -r": ["cp", "-r", ":/lib", "in/"],
    "cp of a glob": ["cp", ":/lib/*", "in/"],
    "sync": ["sync", ":/lib", "in", "--delete"],
    "sync to the device": ["sync", "in", ":/lib", "--delete"],
    "deploy": ["deploy", "in", "--healthy", "ready", "--devices", "*"],
}
# Each command with one name of a device, and with one path. `tests/client/test_local_names.py` has all kinds.
ESCAPES = [(command, "../../escaped", "/lib/a") for command in COMMANDS]
ESCAPES += [(name, "demo", "/lib/../../escaped") for name, words in COMMANDS.items() if ":/lib" in " ".join(words)]


@pytest.mark.parametrize(("command", "device", "path"), ESCAPES)
def test_a_command_fails_and_writes_nothing_elsewhere(
    hostile: HostileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, device: str, path: str
) -> None:
    hostile.device, hostile.path, hostile.inside = device, path, path.removeprefix("/lib/")
    here = tmp_path / "x/y/in"
    here.mkdir(parents=True)
    (here / "main.py").write_text("print('ready')\n")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(here.parent)
    result = CliRunner().invoke(app, COMMANDS[command], env={"FASTFLIGHT_SERVER": hostile.location})
    assert isinstance(result.exception, SystemExit) and result.exit_code == 1, (result.output, result.exception)
    assert "error: " in result.stderr and "Traceback" not in result.output
    assert [path for path in tmp_path.rglob("*") if path not in before and here not in path.parents] == []
    assert (here / "main.py").exists()
