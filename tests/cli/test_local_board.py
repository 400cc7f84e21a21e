"""Commands on a board of this computer, without a server and without the board's name."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from serial.tools import list_ports
from serial.tools.list_ports_common import ListPortInfo
from typer.testing import CliRunner

from fastflight.cli import screen, server_options
from fastflight.cli.exit_codes import REFUSED, UNREACHABLE
from fastflight.cli.main import app

RunLocal = Callable[..., Result]
# Says that the only board that is plugged in is meant.
ANY = ("--device", "auto")


@pytest.fixture
def run_local(monkeypatch: pytest.MonkeyPatch) -> RunLocal:
    """Run a command where no server is named, and none answers at the default address."""
    monkeypatch.delenv("FASTFLIGHT_SERVER", raising=False)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setattr(server_options, "DEFAULT_LOCATION", f"grpc://127.0.0.1:{unused.getsockname()[1]}")

    def invoke(*arguments: str, input: str | None = None) -> Result:
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"}, input=input)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have one board plugged in: a simulated one, whose files are in the folder that is returned."""
    board = ListPortInfo(f"sim:?files={tmp_path}")
    board.vid, board.pid, board.serial_number = 0x2E8A, 0x0005, "e6605838"
    monkeypatch.setattr(list_ports, "comports", lambda: [ListPortInfo("/dev/ttyS0"), board])
    return tmp_path


# Commands for the only board that is plugged in, and what they print.
COMMANDS = [
    (["ls", "--json"], '"/a.txt"'),
    (["exec", "print(6 * 7)"], "42\n"),
    (["eval", "6 * 7"], "42\n"),
    (["info", "--json"], '"platform"'),
    (["df"], "/ "),
    # It needs rows after it has talked to the board.
    (["get", "/t.csv", "--json"], '"rows": 1'),
    # A board may be given by its URL, and gets a name.
    (["ls", "--device", "sim:?files={files}", "--json"], '"/a.txt"'),
    (["cat", "lab:/a.txt", "--device", "lab=sim:?files={files}"], "hello"),
    (["get", "lab:/t.csv", "--json", "--device", "lab=sim:?files={files}"], '"device": "lab"'),
]


@pytest.mark.parametrize(("command", "prints"), COMMANDS)
def test_the_only_board_needs_no_server_and_no_name(
    run_local: RunLocal, plugged: Path, command: list[str], prints: str
) -> None:
    (plugged / "a.txt").write_text("hello")
    (plugged / "t.csv").write_text("a\n1\n")
    done = run_local(*(word.format(files=plugged) for word in command))
    assert (done.exit_code, prints in done.stdout) == (0, True), done.output


def test_output_arrives_as_from_a_server_also_of_code_that_raises(run_local: RunLocal, plugged: Path) -> None:
    ran = run_local("exec", "--json", r"print('a\nb'); print('c', end='')")
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(row["line"], row["text"]) for row in rows] == [(0, "a"), (1, "b"), (2, "c")]
    failed = run_local("exec", "print('before', end=''); 1/0")
    assert (failed.exit_code, failed.stdout) == (REFUSED, "before\n")
    assert "ZeroDivisionError" in failed.stderr


def test_a_wrong_url_of_a_board_is_wrong_usage(run_local: RunLocal) -> None:
    refused = run_local("ls", "--device", "nonsense")
    assert refused.exit_code == 2
    assert "rfc2217" in refused.output


def test_without_server_and_board_the_message_offers_both(run_local: RunLocal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_ports, "comports", list)
    refused = run_local("ls")
    assert refused.exit_code == UNREACHABLE
    assert "fastflight serve" in refused.output
    assert "--device" in refused.output


def test_a_server_that_is_named_is_not_replaced_by_a_board(run_local: RunLocal, plugged: Path) -> None:
    assert run_local("ls", "--server", "grpc://127.0.0.1:1").exit_code == UNREACHABLE


@pytest.mark.parametrize(
    "command",
    [
        ("rm", ":/a.txt"),
        ("rm", "-r", "--yes", ":/"),
        ("mv", ":/a.txt", "/b.txt"),
        ("put", "{new}", ":/a.txt"),
        ("cp", "{new}", ":/a.txt"),
        ("sync", "{folder}", ":/"),
        ("ls", "+", "rm", ":/a.txt"),
    ],
    ids=" ".join,
)
def test_a_board_that_is_there_by_chance_is_changed_only_after_an_answer(
    run_local: RunLocal, plugged: Path, tmp_path_factory: pytest.TempPathFactory, command: tuple[str, ...]
) -> None:
    (plugged / "a.txt").write_text("old")
    folder = tmp_path_factory.mktemp("local")
    (folder / "a.txt").write_text("new")
    refused = run_local(*(word.format(new=folder / "a.txt", folder=folder) for word in command))
    # The message is wrapped in a box, whose lines depend on the length of the URL.
    assert refused.exit_code == 2 and "--device auto" in re.sub(r"[\s│]+", " ", refused.stderr), refused.output
    assert [(path.name, path.read_text()) for path in plugged.iterdir()] == [("a.txt", "old")]


@pytest.mark.parametrize(
    ("answer", "code", "is_there"), [("n\n", REFUSED, True), ("", REFUSED, True), ("y\n", 0, False)]
)
def test_a_person_is_asked_which_board_is_meant(
    run_local: RunLocal, plugged: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, is_there: bool
) -> None:
    (plugged / "a.txt").write_text("old")
    monkeypatch.setattr(screen, "can_ask", lambda: True)
    asked = run_local("rm", ":/a.txt", input=answer)
    assert (asked.exit_code, f"Change the board at sim:?files={plugged}? [y/N] " in asked.stderr) == (code, True)
    assert (plugged / "a.txt").exists() == is_there


def test_a_board_that_was_named_before_in_a_chain_is_changed(run_local: RunLocal, plugged: Path) -> None:
    (plugged / "a.txt").write_text("old")
    assert run_local("ls", *ANY, "+", "rm", ":/a.txt").exit_code == 0
    assert not (plugged / "a.txt").exists()


def test_the_name_of_a_device_is_not_run_as_code(run_local: RunLocal, plugged: Path) -> None:
    for name in ("weather", "lab-1", "7"):
        refused = run_local("exec", name)
        assert refused.exit_code == 2 and "is no code" in refused.stderr
    for code in ("pass", "print(1)", "x=1"):
        assert run_local("exec", code).exit_code == 0


def test_ports_lists_what_is_plugged_in(run_local: RunLocal, plugged: Path) -> None:
    listed = json.loads(run_local("ports", "--json").stdout)
    assert [(port["usb"], port["serial_number"]) for port in listed] == [(None, None), ("2e8a:0005", "e6605838")]


def test_without_a_port_the_cable_is_suspected(run_local: RunLocal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_ports, "comports", list)
    listed = run_local("ports")
    assert (listed.exit_code, "cable" in listed.output) == (0, True)
