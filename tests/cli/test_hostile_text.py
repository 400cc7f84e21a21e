"""Text from elsewhere on a terminal: a board, a server and file names that try to command it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import structlog
from pyarrow import flight
from serial.tools import list_ports
from serial.tools.list_ports_common import ListPortInfo

from fastflight.cli.log import log_to_stderr
from fastflight.cli.main import COMMANDS, app

pytest.importorskip("pty", reason="only a pseudo-terminal is one")
from tests.support.servers import ready_server
from tests.support.terminal import terminal  # it needs one

C1 = "".join(map(chr, range(0x80, 0xA0)))
# Sets a title; clears the screen by ESC, and by the one character that some terminals take for it; shows another order.
EVIL = f"x\x1b]0;mine\x07\x1b[2J\x9b2J\x7f\x08\r{C1}\u202e\u2066\u2028y"
SEEN = "\\x1b]0;mine"
ROWS = pa.table({f"n{EVIL}": [EVIL, EVIL], "s": [{f"f{EVIL}": EVIL}] * 2, "b": [EVIL.encode(), b"\x1b]0;mine\x07"]})
LINES = pa.table(
    {
        "seq": pa.array([1, 2], pa.uint64()),
        "time": pa.array([0, 1], pa.timestamp("us", "UTC")),
        "direction": ["rx", "rx"],
        "data": [EVIL.encode(), b"\x9b2J\x1b[31m\xc2\x9b\n"],
    }
)
LISTING = pa.table(
    {"path": [f"/{EVIL}"], "kind": ["file"], "size": [1], "modified": pa.array([0], pa.timestamp("us", "UTC"))}
)
PIECE = pa.table({"offset": [0], "data": [EVIL.encode()]})
OUTPUT = pa.table({"line": [1, 2], "text": [EVIL, "x"]})
AS_TEXT = LINES.set_column(3, "data", pa.array([EVIL, "x"]))
DRAWN = pa.table({"time": LINES["time"], "n": [1.0, 2.0]})
TABLES = {"device.listing": LISTING, "device.exec": OUTPUT}
SESSIONS = {"bytes": LINES, "lines": AS_TEXT, "jsonl": DRAWN}
RECORDED = {
    "name": "demo",
    "state": f"recording failed: {EVIL}",
    **dict.fromkeys(("rows", "bytes", "first_seq", "next_seq", "lost", "failures"), 1),
    "first_time": None,
    "last_time": None,
    "damage": [EVIL],
}
FIGURES = {
    name: [[{"device": EVIL, "source": EVIL, "limit": EVIL, "shard": EVIL, "direction": "rx"}, 1]]
    for name in (
        "fastflight_device_open",
        "fastflight_device_in_trouble",
        "fastflight_streams_open",
        "fastflight_limit",
        "fastflight_recording_rows",
        "fastflight_shard_streams",
        "fastflight_shard_tasks",
        "fastflight_shard_lag_seconds",
        "fastflight_shard_longest_lag_seconds",
        "fastflight_shard_stuck_total",
    )
}
ANSWERS: dict[str, Any] = {
    "devices": {"name": "demo", "url": EVIL, "open": True, "holder": EVIL, "recording": EVIL},
    "device.info": {"version": EVIL, f"k{EVIL}": EVIL, "features": [EVIL, {EVIL: EVIL}]},
    "health": {"status": EVIL},
    "cluster.status": {
        "server": EVIL,
        "trouble": EVIL,
        "servers": [{"name": EVIL, "location": EVIL, "devices": 1, "differs": [EVIL]}],
        "devices": [{"name": EVIL, "owner": EVIL, "why": EVIL}],
    },
    "cluster.storage": {
        "waiting": {EVIL: 1},
        "oldest_waiting": {EVIL: {"time": EVIL, "seconds": 1.5}},
        "unanswered": [{"name": EVIL, "location": EVIL, "why": EVIL}],
        "replicas": [{"name": EVIL, "replicas": 3, "current": 2, "leader": EVIL, "behind": [EVIL]}],
    },
    "recordings": RECORDED,
    "recording.start": RECORDED,
    "recording.stop": RECORDED,
    "stats": {"figures": FIGURES, "threads": {"all": EVIL}},
    "file.stat": {"path": f"/{EVIL}", "kind": "file", "size": 1, "modified": 0},
    "file.hash": {"path": f"/{EVIL}", "size": 1, "algorithm": "sha256", "digest": EVIL},
}
SUMMARY = {
    "rows": 2,
    "sha256": hashlib.sha256(EVIL.encode()).hexdigest(),
    "rejected": 1,
    "rejected_rows": [{"offset": 0, "reason": EVIL, "device": EVIL}],
    "failed": [{"device": EVIL, "where": EVIL, "what": EVIL, "hint": EVIL}],
    "ended": EVIL,
    "why": EVIL,
}


class EvilServer(flight.FlightServerBase):  # type: ignore[misc]
    """Answers everything, or refuses everything, in the worst words."""

    refuses = ""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.location = f"grpc://127.0.0.1:{self.port}"

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        self._refuse()
        request = json.loads(ticket.ticket)
        of_session = request["type"] in ("device.session", "recording")
        form = "jsonl" if "as" in request else request.get("format", "lines")
        table = SESSIONS[form] if of_session else TABLES.get(request["type"], ROWS)
        if request["type"] == "device.file" and request.get("format") == "raw":
            table = PIECE
        return flight.GeneratorStream(table.schema, self._batches(table))

    def _batches(self, table: pa.Table) -> Iterator[Any]:
        empty = pa.RecordBatch.from_pylist([], table.schema)
        yield empty, json.dumps({"recording": EVIL}).encode()
        yield empty, json.dumps({"gap": {"first": 0, "last": 1, "why": EVIL, "detail": EVIL}}).encode()
        yield from table.to_batches()
        yield empty, json.dumps({**SUMMARY, "rows": table.num_rows}).encode()

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        self._refuse()
        ticket = flight.Ticket(descriptor.command)
        return flight.FlightInfo(ROWS.schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self._refuse()
        raise flight.FlightServerError(EVIL)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        self._refuse()
        return iter([json.dumps(ANSWERS[action.type]).encode()] if action.type in ANSWERS else [])

    def _refuse(self) -> None:
        told = {"what": EVIL, "where": EVIL, "hint": EVIL, "holder": EVIL, "kind": EVIL, "traceback": f"T\n{EVIL}"}
        if self.refuses == "plain":
            raise flight.FlightServerError(EVIL)
        if self.refuses == "not found":
            raise KeyError(EVIL)
        if self.refuses:
            raise flight.FlightServerError(EVIL, json.dumps({"code": self.refuses, **told}).encode())


@pytest.fixture(scope="module")
def evil() -> Iterator[EvilServer]:
    with EvilServer() as server:
        yield server


Typed = Callable[..., str]


@pytest.fixture
def term() -> str:
    """A terminal without escape sequences of our own, so that none at all may come."""
    return "dumb"


@pytest.fixture
def typed(term: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Typed:
    """Run a command at a terminal, and give what it prints there: nothing that commands the terminal."""
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)

    def run(server: str, *arguments: str) -> str:
        monkeypatch.setenv("FASTFLIGHT_SERVER", server)
        with terminal() as ended:
            with pytest.raises(SystemExit):
                app(arguments)
            told = ended()
        if term == "dumb":
            assert commands_in(told) == ""
        for each in ("\x1b]", "\x1b[2J", "\x9b", "\x7f", "\x08", "\u202e", "\u2028"):
            assert each not in told
        return told

    return run


def commands_in(text: str) -> str:
    """The characters that a terminal obeys, or that it does not show."""
    shown = ("\n", "\t")
    return "".join(c for c in text if not c.isprintable() and c not in shown and unicodedata.category(c) != "Zs")


# What each verb asks for. Those that change something say nothing where it goes well.
VERBS = {
    "devices": ["devices"],
    "devices as JSON": ["devices", "--json"],
    "cluster": ["cluster", "status"],
    "cluster as JSON": ["cluster", "status", "--json"],
    "stats": ["stats"],
    "stats as JSON": ["stats", "--json"],
    "ls": ["ls", "demo"],
    "ls as JSON": ["ls", "demo", "--json"],
    "ls of a glob": ["ls", "demo:/*"],
    "cat": ["cat", "demo:/a.csv"],
    "head": ["head", "demo:/a.csv"],
    "head of lines": ["head", "demo:/a.txt"],
    "get": ["get", "demo:/a.csv"],
    "get as JSON": ["get", "demo:/a.csv", "--json"],
    "get of many": ["get", "lab-*:/a.csv"],
    "get of a folder": ["get", "-r", "demo:/", "here"],
    "get of a glob": ["get", "demo:/*", "folder"],
    "get as it is": ["get", "demo:/a.csv", "-o", "-"],
    "cp": ["cp", "a.bin", f"demo:/{EVIL}"],
    "put": ["put", "a.bin", f"demo:/{EVIL}"],
    "put with rows": ["put", "a.csv", f"demo:/{EVIL}.jsonl"],
    "put of a folder": ["put", "-r", "folder", "demo:/"],
    "sync": ["sync", "folder", "demo:/"],
    "deploy": ["deploy", "program", "--healthy", "ready"],
    "agent": ["agent", "install", "demo"],
    "collect": ["collect", "demo:/a.csv", "-o", "here"],
    "exec": ["exec", "demo", "1"],
    "exec as JSON": ["exec", "demo", "1", "--json"],
    "run": ["run", os.devnull],
    "eval": ["eval", "demo", "1"],
    "edit": ["edit", f"demo:/{EVIL}"],
    "df": ["df", "demo"],
    "hash": ["hash", f"demo:/{EVIL}"],
    "hash as JSON": ["hash", f"demo:/{EVIL}", "--json"],
    "rtc": ["rtc", "demo"],
    "bootloader": ["bootloader", EVIL],
    "tail": ["tail", "demo"],
    "tail as it is": ["tail", "demo", "--raw"],
    "tail as CSV": ["tail", "demo", "--csv"],
    "tail as JSON": ["tail", "demo", "--json"],
    "plot": ["plot", "demo", "--column", "n"],
    "record": ["record", EVIL],
    "record, as JSON": ["record", EVIL, "--json"],
    "record no more": ["record", EVIL, "--stop"],
    "replay": ["replay", "demo"],
    "replay as it is": ["replay", "demo", "--raw"],
    "replay as CSV": ["replay", "demo", "--csv"],
    "replay as JSON": ["replay", "demo", "--json"],
    "sql": ["sql", "select 1"],
    "recordings": ["recordings"],
    "recordings as JSON": ["recordings", "--json"],
    "info": ["info", "demo"],
    "info as JSON": ["info", "demo", "--json"],
    "rm": ["rm", f"demo:/{EVIL}"],
    "mkdir": ["mkdir", f"demo:/{EVIL}"],
    "mv": ["mv", f"demo:/{EVIL}", f"/{EVIL}"],
    "ports": ["ports"],
    "ports as JSON": ["ports", "--json"],
    "reset": ["reset", EVIL],
    "soft-reset": ["soft-reset", EVIL],
    "doctor": ["doctor"],
}
WITHOUT_A_WORD = {"collect", "rm", "mkdir", "mv", "reset", "soft-reset", "plot"}
# One verb for each way in which output is written.
WRITTEN = [
    "devices", "devices as JSON", "ls of a glob", "cat", "get", "get of a folder", "get as it is", "put of a folder",
    "exec", "tail", "tail as it is", "tail as CSV", "tail as JSON", "ports", "doctor", "hash", "info", "stats",
]  # fmt: skip


def strings_in(value: Any) -> set[str]:
    if isinstance(value, dict | list):
        return {each for part in (value.values() if isinstance(value, dict) else value) for each in strings_in(part)}
    return {value} if isinstance(value, str) else set()


def test_no_verb_is_missing() -> None:
    # Those of a server print what they are told, and a log. `repl` and `mount` are the board's own terminal.
    own = {"serve", "bridge", "token", "cert", "repl", "mount"}
    assert {words[0] for words in VERBS.values()} == set(COMMANDS) - own


@pytest.fixture
def files(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = ListPortInfo("/dev/ttyS0")
    port.description = EVIL
    monkeypatch.setattr(list_ports, "comports", lambda: [port])
    (tmp_path / "a.bin").write_bytes(b"x")
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "main.py").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / EVIL.replace("/", "")).write_text("x")


@pytest.mark.parametrize("verb", VERBS)
def test_answers_do_not_command_the_terminal(evil: EvilServer, typed: Typed, files: None, verb: str) -> None:
    check_answer(evil, typed, verb)


@pytest.mark.parametrize("term", ["xterm"])
@pytest.mark.parametrize("verb", ["devices", "ls", "get", "put of a folder", "deploy", "tail", "info", "sql"])
def test_answers_with_colours_do_not_either(evil: EvilServer, typed: Typed, files: None, verb: str) -> None:
    check_answer(evil, typed, verb)


def check_answer(evil: EvilServer, typed: Typed, verb: str) -> None:
    evil.refuses = ""
    told = typed(evil.location, *VERBS[verb])
    if verb in WITHOUT_A_WORD:
        assert "error" not in told
    elif "JSON" in verb and "get" not in verb:
        values = [json.loads(line) for line in told.splitlines() if line.startswith(("{", "["))]
        assert any(EVIL in each for each in strings_in(values))
    elif verb != "edit":  # its error does not quote what came in place of a file
        assert SEEN in told


REFUSALS = ["plain", "not found", "device.exception", "busy", "device.file_missing"]


@pytest.mark.parametrize("refuses", REFUSALS)
@pytest.mark.parametrize("verb", ["ls", "put", "info"])
def test_errors_do_not_command_the_terminal(
    evil: EvilServer, typed: Typed, files: None, verb: str, refuses: str
) -> None:
    """Every kind of error, of each of the three ways to ask: reading, writing and an action."""
    evil.refuses = refuses
    assert SEEN in typed(evil.location, *VERBS[verb])


# All other verbs leave their errors to `exit_codes`, which the tests above show.
HANDLED = ["cat", "collect", "deploy", "doctor", "edit", "get of a folder", "get of many", "put of a folder", "sync"]


@pytest.mark.parametrize("verb", HANDLED)
def test_verbs_that_handle_errors_show_them_so(evil: EvilServer, typed: Typed, files: None, verb: str) -> None:
    evil.refuses = "device.exception"
    assert SEEN in typed(evil.location, *VERBS[verb])


BOARD = {
    "output": ["exec", "demo", f"print({EVIL!r})"],
    "an exception": ["exec", "demo", f"raise ValueError({EVIL!r})"],
    "names": ["ls", "demo"],
    "columns": ["get", "demo:/table.csv"],
    "fields": ["get", "demo:/table.jsonl"],
    "a name that lands here": ["get", "-r", "demo:/", "here"],
    "a path": ["get", f"demo:/no{EVIL}"],
    "the command line": ["ls", EVIL, EVIL],
    "an option": [f"--{EVIL}"],
    "a file that is not there": ["put", EVIL, "demo:/x"],
    "a fleet file": ["serve", "--fleet", EVIL],
}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a simulated board that holds hostile files."""
    folder = tmp_path_factory.mktemp("board")
    (folder / EVIL).write_text("x\n")
    (folder / "table.csv").write_text(f"a{EVIL.replace(chr(13), '')},b\n{EVIL.replace(chr(13), '')},1\n")
    (folder / "table.jsonl").write_text(json.dumps({"a": {EVIL: EVIL}}) + "\n")
    with ready_server({"demo": f"sim:?telemetry=0&files={folder}"}) as location:
        yield location


@pytest.mark.parametrize("what", BOARD)
def test_a_board_does_not_command_the_terminal(board: str, typed: Typed, what: str) -> None:
    assert "\\x1b]0;mine" in typed(board, *BOARD[what])


needs_a_full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@needs_a_full_disk
@pytest.mark.parametrize("verb", WRITTEN)
def test_output_that_cannot_be_written_is_an_error_in_one_line(
    evil: EvilServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, files: None, verb: str
) -> None:
    evil.refuses = ""
    monkeypatch.setenv("FASTFLIGHT_SERVER", evil.location)
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            app(VERBS[verb])
        monkeypatch.undo()
    assert ended.value.code == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "error: standard output: No space left on device" or verb.startswith(("get of", "put of"))


@needs_a_full_disk
def test_help_that_cannot_be_written_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "fastflight", "ls", "--help"]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "error: standard output: No space left on device\n")


@pytest.mark.parametrize("verb", ["exec", "tail as it is", "tail as CSV"])
def test_a_pipe_takes_what_a_board_says_as_it_is(
    evil: EvilServer, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    evil.refuses = ""
    monkeypatch.setenv("FASTFLIGHT_SERVER", evil.location)
    with pytest.raises(SystemExit):
        app(VERBS[verb])
    assert EVIL.encode() in capfdbinary.readouterr().out


def test_a_log_for_people_does_not_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr(as_json=False)
    log = structlog.get_logger()
    log.warning(EVIL, device=EVIL)
    try:
        raise ValueError(EVIL)
    except ValueError:
        log.exception("failed")
    told = capsys.readouterr().err
    assert SEEN in told
    assert commands_in(told) == ""
