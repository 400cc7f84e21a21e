"""`serve` as a process: its ready line, its end, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastflight.cli.main import app
from fastflight.cli.serve import first_steps
from fastflight.client import FastFlightClient
from fastflight.errors import TransportError
from tests.support.commands import FASTFLIGHT, run_command
from tests.support.servers import running, serving
from tests.support.waiting import until

# For a process that has to import all of it on a busy machine.
SECONDS = 60


def test_it_says_where_it_listens_and_ends_at_ctrl_c() -> None:
    with running() as server:
        (ready,) = server.lines
        assert ready == f"listening on {server.location}; devices: demo (sim:)\n"
        assert re.fullmatch(r"grpc://127\.0\.0\.1:\d+", server.location)
        with FastFlightClient(server.location) as client:
            assert [device.name for device in client.devices()] == ["demo"]
        # Loading it takes half a second, and 30 MB.
        maps = Path(f"/proc/{server.process.pid}/maps")
        assert not maps.exists() or "/pandas/" not in maps.read_text()
        assert server.end(signal.SIGINT) == 0


FLEET = """
[devices.demo]
url = "sim:?telemetry=20"

[devices.{name}]
url = "sim:?telemetry=20"
"""


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_a_hang_up_has_the_fleet_file_read_again(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(FLEET.format(name="lab"))
    with running("--fleet", str(fleet), "--log-json") as server:
        with FastFlightClient(server.location) as client, client.session("demo") as session:
            next(iter(session))
            fleet.write_text(FLEET.format(name="new") + "bridge = {}")
            server.process.send_signal(signal.SIGHUP)
            refused = json.loads(server.read_until(r'^(.*"level": "error".*)$'))
            assert f"{fleet}: devices.new.bridge" in str(refused["error"])
            assert [device.name for device in client.devices()] == ["demo", "lab"]
            fleet.write_text(FLEET.format(name="new"))
            server.process.send_signal(signal.SIGHUP)
            changed = json.loads(server.read_until(r'^(.*"removed": .*)$'))
            assert {"added": ["new"], "removed": ["lab"], "replaced": []}.items() <= changed.items()
            assert [device.name for device in client.devices()] == ["demo", "new"]
            next(iter(session))
        assert server.end() == 0


# Makes stdin the terminal of the process, ignores SIGHUP as `nohup` does if that is asked for, and runs the command.
# Without that SIGHUP has its default effect: the tests themselves may run under `nohup`.
ON_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] else signal.SIG_DFL)
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize("nohup", [False, True])
def test_a_server_ends_with_its_terminal(tmp_path: Path, nohup: bool) -> None:
    """Though SIGHUP alone does not end it. With nohup it goes on."""
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(FLEET.format(name="lab"))
    command = [*FASTFLIGHT, "serve", "--server", "grpc://127.0.0.1:0", "--fleet", str(fleet)]
    controlling, own = os.openpty()
    with os.fdopen(own, "rb") as end:
        first = [sys.executable, "-c", ON_TERMINAL, "nohup" if nohup else ""]
        child = subprocess.Popen([*first, *command], stdin=end, stdout=end, stderr=end, start_new_session=True)
    try:
        with os.fdopen(controlling, "rb", buffering=0) as terminal:
            said = b""
            while b"Ctrl-C ends the server" not in said:
                said += terminal.read(4096)
            fleet.write_text(FLEET.format(name="new"))
        location = re.search(rb"fastflight ls demo --server (grpc://[0-9.:]+)", said)
        assert location is not None
        if nohup:
            with FastFlightClient(location[1].decode()) as client:
                until(lambda: "new" in [device.name for device in client.devices()])
            child.terminate()
        assert child.wait(SECONDS) == 0
    finally:
        child.kill()
        child.wait()


def test_the_first_steps_fit_the_server() -> None:
    steps = first_steps("grpc://127.0.0.1:8815", {"demo": "sim:"}, "http://127.0.0.1:8000", {}).splitlines()
    assert steps[0] == "Open http://127.0.0.1:8000/ in a browser."
    assert steps[2:4] == ["  fastflight ls demo", "  fastflight get demo:/readings.csv"]
    assert steps[6] == "  FastFlightClient().read('demo', '/readings.csv').to_pandas()"
    board = first_steps("grpc://127.0.0.1:1", {"lab": "/dev/ttyACM0"}, None, {"UV_RUN_RECURSION_DEPTH": "1"})
    assert "or in uv run --no-sync python:" in board and "FastFlightClient('grpc://127.0.0.1:1').info('lab')" in board
    assert "  uv run --no-sync fastflight tail lab --server grpc://127.0.0.1:1\n" in board


def test_the_help_fits_a_terminal() -> None:
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "80"}).stdout
    assert "--device" in shown and "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_port_is_taken_once(location: str) -> None:
    with pytest.raises(TransportError, match="cannot listen there"):
        serving(location=location)
    command = [*FASTFLIGHT, "serve", "--server", location]
    done = run_command(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 3
    assert "Another server may have the port" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_port_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    port = tmp_path / "ttyNOPE"
    # It listens all the same: the board may be plugged in later.
    with running("--device", f"x={port}", "--device", "y=serial:?serial_number=E6") as server:
        server.read_until(f"^warning: x: there is no port {re.escape(str(port))}. Ports found here: ")
        server.read_until("^warning: y: no single port here has serial_number=E6. Ports found here: ")


def test_arrow_has_looked_for_pandas_before_the_first_request_comes() -> None:
    """It takes seconds on a busy machine, and would hold up every line of the loop that it happens on."""
    code = (
        "import sys\n"
        "from fastflight.app.compose import open_server\n"
        "from fastflight.app.config import Config\n"
        "with open_server(Config(location='grpc://127.0.0.1:0', devices={})): print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout == "True\n"


CLIENT = r"""
import subprocess
import sys
from pathlib import Path
from fastflight.client import FastFlightClient
with FastFlightClient(sys.argv[1]) as client:
    client.put_file("demo", "/b.bin", Path(sys.argv[2]))
    client.get_file("demo", "/b.bin", Path(sys.argv[2]))
    with client.session("demo", limit_rows=5) as rows:
        assert sum(batch.num_rows for batch in rows) == 5
    with client.interact("demo") as repl:
        repl.send("\x03print(6 * 7)\r")
        repl.read_until(b"42")
print("pandas" in sys.modules)
"""


def test_a_client_that_moves_bytes_and_lines_does_not_load_pandas(tmp_path: Path) -> None:
    """A write and an exchange have the device: while a client loads pandas, nobody else gets it."""
    (tmp_path / "b.bin").write_bytes(b"bytes" * 100)
    with serving() as server:
        command = [sys.executable, "-c", CLIENT, server.location, str(tmp_path / "b.bin")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert (done.stdout, done.stderr) == ("False\n", "")
