"""What a command loads: none waits for packages, or for parts of fastflight, that it does not use."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fastflight
from fastflight.cli.main import COMMANDS, PANELS, app, load
from fastflight.client import FastFlightClient
from tests.support.servers import serving

SECONDS = 60.0
# Packages that take long to load.
ARROW = {"numpy", "pandas", "pyarrow", "pydantic"}
SERVER = {"fastapi", "matplotlib", "prometheus_client", "serial", "structlog", "uvicorn"}
# What only styled text and previews need.
DRAWING = {"rich"}
# The kinds of devices that a command on a simulated board does not open.
OTHER_KINDS = {"serial"} | {f"fastflight.transport.{name}" for name in ("exec", "rfc2217", "serial", "webrepl")}
# The parts of fastflight that only a server, or a command that opens a device itself, needs.
SERVER |= {f"fastflight.{name}" for name in ("bridge", "device", "gateway", "log", "server", "sources", "transport")}
# Commands that open devices, or read and write files of a server.
OWN = {"serve", "bridge", "doctor", "ports", "token", "cert"}


def loaded_by(code: str) -> set[str]:
    """Run `code` in a process of its own, and return the modules that it has then."""
    code = f"import json, sys\n{code}\nprint(json.dumps(list(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr))


def command(*words: str) -> str:
    """Return code that runs the command with these words."""
    run = "from fastflight.cli.entry import main\ntry:\n    main()\nexcept SystemExit:\n    pass"
    return f"sys.argv[1:] = {list(words)}\n{run}"


@pytest.mark.parametrize("code", ["import fastflight", command("--help"), command("--version"), command()])
def test_nothing_is_loaded_where_nothing_is_called(code: str) -> None:
    assert loaded_by(code) & (ARROW | SERVER) == set()


def test_a_command_that_calls_a_server_loads_only_the_client() -> None:
    names = sorted(set(COMMANDS) - OWN)
    code = f"from fastflight.cli.main import load\nfor name in {names}:\n    load(name)"
    loaded = loaded_by(code)
    assert "fastflight.client" in loaded
    assert loaded & (SERVER | {"pandas"}) == set()
    assert loaded_by(command("ls", "--help")) & SERVER == set()


@pytest.mark.parametrize(
    "words",
    [
        ("exec", "print(1)"),
        ("cp", ":log.bin", "copy"),
        ("put", __file__, ":"),
        ("repl",),
    ],
)
def test_short_commands_on_a_board_without_a_server_load_no_arrow_and_no_server(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = loaded_by(command(*words, "--device", "sim:?telemetry=0"))
    assert "fastflight.device" in loaded
    server = {"prometheus_client", "fastflight.server", "fastflight.log"}
    assert loaded & (ARROW | DRAWING | OTHER_KINDS | server) == set()


@pytest.mark.parametrize("words", [("ls", "demo"), ("exec", "print(1)"), ("mkdir", "-p", "demo:/a")])
def test_short_commands_on_a_server_load_no_numpy_no_pandas_and_no_server(words: tuple[str, ...]) -> None:
    with serving({"demo": "sim:"}) as running:
        loaded = loaded_by(command(*words, "--server", running.location))
    assert "pyarrow.flight" in loaded
    assert loaded & (SERVER | DRAWING | {"numpy", "pandas"}) == set()


@pytest.mark.parametrize("is_chain", [False, True])
def test_commands_that_convert_tables_load_numpy(is_chain: bool, tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("a,b\n1,2\n3,4\n")
    put = ("put", str(tmp_path / "two.csv"), "demo:/two.bin", "--format", "packed", "--struct", "<hh")
    with serving({"demo": "sim:"}) as running:
        server = ("--server", running.location)
        before = ("ls", "demo", *server, "+") if is_chain else ()
        loaded = loaded_by(command(*before, *put, *server))
        with FastFlightClient(running.location) as client:
            client.get_file("demo", "/two.bin", tmp_path / "two.bin")
    assert (tmp_path / "two.bin").read_bytes() == struct.pack("<4h", 1, 2, 3, 4)
    assert "numpy" in loaded and "pandas" not in loaded


def test_the_list_of_commands_says_what_each_command_says() -> None:
    assert {name: text for name, (_, text) in COMMANDS.items()} == {
        name: load(name).help.partition("\n\n")[0] for name in COMMANDS
    }


def test_each_command_is_under_one_heading_of_the_help() -> None:
    listed = [name for names in PANELS.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(COMMANDS) <= set(listed)


def test_the_public_names_are_listed_before_they_are_loaded() -> None:
    assert set(fastflight.__all__) <= set(dir(fastflight))
    names: dict[str, object] = {}
    exec("from fastflight import *", names)
    assert set(fastflight.__all__) <= set(names)


def test_the_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastflight", "--version"], capture_output=True, text=True, timeout=SECONDS
    )
    assert (done.returncode, done.stdout) == (0, f"fastflight {fastflight.__version__}\n")


@pytest.mark.parametrize("name", ["ls", "get", "serve", "token"])
def test_the_help_has_no_types_of_flags(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"]).stdout
    assert "--help" in shown and "<bool>" not in shown
