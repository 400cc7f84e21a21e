"""What a server answers, and what commands print with `--json`: the names of keys and columns, as observed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from serial.tools import list_ports
from serial.tools.list_ports_common import ListPortInfo
from typer.testing import CliRunner

from fastflight.app.compose import open_server
from fastflight.app.config import RecordingSettings
from fastflight.cli.main import app, load
from tests.support.servers import config
from tests.support.waiting import until

FILE = {"device": "demo", "path": "/readings.csv"}
# In this order: what is recorded is read later.
ACTIONS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("health", {}),
    ("identity", {}),
    ("devices", {}),
    ("device.info", {"device": "demo"}),
    ("recording.start", {"device": "demo"}),
    ("recordings", {}),
    ("device.exec", {"device": "demo", "code": "print(1)"}),
    ("file.stat", FILE),
    ("file.hash", FILE),
    ("file.mkdir", {"device": "demo", "path": "/x"}),
    ("file.rename", {"device": "demo", "path": "/x", "to": "/y"}),
    ("file.remove", {"device": "demo", "path": "/y"}),
    ("device.reset", {"device": "demo"}),
    ("device.add", {"name": "other", "url": "sim:"}),
    ("device.remove", {"name": "other"}),
)
REQUESTS: tuple[Mapping[str, Any], ...] = (
    {"type": "device.file", **FILE},
    {"type": "device.listing", "device": "demo"},
    {"type": "device.exec", "device": "demo", "code": "print(1)"},
    {"type": "device.tree", "device": "demo"},
    {"type": "device.session", "device": "demo", "limit_rows": 2},
    {"type": "fleet.file", "devices": "*", "path": "/readings.csv"},
    {"type": "recording", "name": "demo"},
)
COMMANDS = (
    "devices list --json",
    "ls demo:/ --json",
    "get demo:/readings.csv -o x.csv --json",
    "get demo:/readings.csv -o x.parquet --json",
    "put x.csv demo:/a.csv --json",
    "put x.parquet demo:/b.csv --json",
    "cp demo:/a.csv demo:/c.csv --json",
    "cp -r demo:/ copied --json",
    "sync demo:/ copied --json",
    "hash demo:/a.csv --json",
    "df demo --json",
    "info demo --json",
    "rtc demo --json",
    "exec demo print(1) --json",
    "eval demo 1+1 --json",
    "run program.py demo --json",
    "tail demo -n 1 --json",
    "record demo --json",
    "sql 'select 1' -o one.csv --json",
    "recordings --json",
    "replay demo -o kept.parquet --json",
    "replay demo -n 1 --json",
    "deploy app --healthy 1 --json",
    "ports --json",
    "doctor --json",
    "token add ada --scope read:* --file tokens.json --out ada.token",
    "token list --file tokens.json --json",
)


def observe(folder: Path, patch: pytest.MonkeyPatch) -> list[str]:
    """Serve the simulated board, with `folder` as the current one, and return the keys of all answers."""
    patch.chdir(folder)
    patch.setattr(list_ports, "comports", lambda: [ListPortInfo("/dev/ttyACM0")])
    Path("program.py").write_text("print(1)")
    Path("app").mkdir()
    Path("app/main.py").write_text("print(1)")
    settings = config(recordings=RecordingSettings(folder=folder / "recordings"))
    lines: set[str] = set()
    with open_server(settings) as server, flight.connect(server.location) as client:
        for name, body in ACTIONS:
            lines |= {f"action {name} gives {key}" for key in act(client, name, body)}
        until(lambda: any(each["rows"] for each in results(client, "recordings", {})))
        for request in REQUESTS:
            lines.update(stream(client, request))
        lines.update(write(client, {"type": "device.file", "device": "demo", "path": "/new.csv"}))
        for command in COMMANDS:
            words = shlex.split(command)
            name = " ".join(words[: 2 if hasattr(load(words[0]), "commands") else 1])
            lines |= {f"fastflight {name} --json has {key}" for key in printed(words, server.location)}
        lines |= {f"error has {key}" for key in refused(client)}
    return sorted(lines)


def results(client: flight.FlightClient, name: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    action = flight.Action(name, json.dumps(body).encode() if body else b"")
    return [json.loads(result.body.to_pybytes()) for result in client.do_action(action)]


def act(client: flight.FlightClient, name: str, body: Mapping[str, Any]) -> set[str]:
    answers = results(client, name, body)
    assert answers, name
    return {key for answer in answers for key in answer}


def stream(client: flight.FlightClient, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns of a request's rows where they are fixed, and the keys of its metadata and last batch."""
    reader = client.do_get(flight.Ticket(json.dumps(request).encode()))
    kind = request["type"]
    if kind != "device.file":
        columns = [each for each in reader.schema if kind != "fleet.file" or each.name == "device"]
        yield from (f"request {kind} gives the column {each.name}: {each.type}" for each in columns)
    yield from (f"request {kind} gives the metadata {key.decode()}" for key in reader.schema.metadata)
    last: bytes | None = None
    while True:
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            break
        last = chunk.app_metadata.to_pybytes() if chunk.app_metadata is not None else last
    assert last is not None
    yield from (f"request {kind} ends with {key}" for key in json.loads(last))


def write(client: flight.FlightClient, request: Mapping[str, Any]) -> Iterator[str]:
    rows = pa.record_batch({"a": [1, 2]})
    writer, reader = client.do_put(flight.FlightDescriptor.for_command(json.dumps(request).encode()), rows.schema)
    writer.write_batch(rows)
    writer.done_writing()
    while (acknowledgement := reader.read()) is not None:
        yield from (f"write acknowledges {key}" for key in json.loads(acknowledgement.to_pybytes()))
    writer.close()


def printed(words: list[str], location: str) -> set[str]:
    """Run a command and return the keys of the objects that it prints: one, a list of them, or one in each line."""
    result = CliRunner().invoke(app, words, env={"FASTFLIGHT_SERVER": location})
    assert result.exit_code == 0, (words, result.output)
    if "--json" not in words:
        return set()
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    objects = answers[0] if isinstance(answers[0], list) else answers
    assert objects, words
    return {key for each in objects for key in each}


def refused(client: flight.FlightClient) -> set[str]:
    """Return the keys of the error of code that raises on the board."""
    request = {"type": "device.exec", "device": "demo", "code": "raise ValueError(1)"}
    with pytest.raises(flight.FlightServerError) as caught:
        client.do_get(flight.Ticket(json.dumps(request).encode())).read_all()
    return set(json.loads(caught.value.extra_info))
