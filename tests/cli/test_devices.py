"""`devices`, `info`, `reset`, `doctor`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result
from serial.tools import list_ports, list_ports_common
from typer.testing import CliRunner

from fastflight.cli.main import app
from tests.support.servers import ready_server, serving
from tests.support.waiting import until

Run = Callable[..., Result]


def test_a_device_is_added_listed_and_removed(run: Run) -> None:
    with serving({"demo": "sim:"}) as running:
        server = ("--server", running.location)

        def names(*words: str) -> list[str]:
            return [each["name"] for each in json.loads(run("devices", *words, "--json", *server).stdout)]

        # The log of the server in this process is on standard output, too.
        added = run("devices", "add", "new=sim:", *server).stdout
        assert added.endswith("new: added until the server ends. Try: fastflight ls new\n")
        assert names() == ["demo", "new"]
        until(lambda: "closed" not in run("devices", *server).stdout)  # the boards start meanwhile
        assert "/readings.csv" in run("ls", "new", *server).stdout
        assert run("devices", "remove", "new", *server).stdout.endswith("new: removed\n")
        assert run("ls", "new", *server).exit_code == 1
        assert names("list") == ["demo"]


def test_a_device_whose_program_has_crashed_has_a_mark(run: Run, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text('raise ValueError("cable")\n')
    with serving({"demo": f"sim:?files={tmp_path}"}) as running:
        said = until(
            lambda: [s for s in run("devices", "--server", running.location).stdout.splitlines() if "crash" in s]
        )
    assert re.fullmatch(r"demo crashed once, last at [-0-9]+ [:0-9]+: ValueError: cable at main.py:1", said[-1])


@pytest.mark.parametrize(("typed", "offered"), [("info ", "demo"), ("tail d", "demo"), ("info x", "")])
def test_the_shell_completes_the_names_of_devices(opened: str, typed: str, offered: str) -> None:
    words = f"fastflight {typed}"
    environment = {"_FASTFLIGHT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "2"}
    result = CliRunner().invoke(app, env={**environment, "FASTFLIGHT_SERVER": opened}, prog_name="fastflight")
    assert (result.exit_code, result.stdout.strip()) == (0, offered)


def test_without_a_server_the_shell_completes_nothing() -> None:
    environment = {"_FASTFLIGHT_COMPLETE": "complete_bash", "COMP_WORDS": "fastflight info ", "COMP_CWORD": "2"}
    nowhere = {"FASTFLIGHT_SERVER": "grpc://127.0.0.1:1"}
    result = CliRunner().invoke(app, env={**environment, **nowhere}, prog_name="fastflight")
    assert (result.exit_code, result.output.strip()) == (0, "")


def test_what_a_board_does_not_know_is_unknown() -> None:
    with serving({"poor": "sim:?without=os.statvfs,gc.mem_free"}) as running:
        run = partial(CliRunner().invoke, app)
        said = run(["info", "poor", "--server", running.location]).stdout
        told = json.loads(run(["info", "poor", "--json", "--server", running.location]).stdout)
    sizes = ["free_memory", "storage_bytes", "storage_free"]
    assert [told[name] for name in sizes] == [None] * 3
    assert [line.split()[-1] for line in said.splitlines() if line.startswith(("free memory", "storage"))] == [
        "unknown"
    ] * 3


def test_the_doctor_opens_the_simulated_board(run: Run) -> None:
    result = run("doctor")
    assert result.exit_code == 0
    assert "raw paste" in result.stdout
    assert "serving; devices: demo" in result.stdout


def test_the_doctor_says_what_is_wrong_with_a_device(run: Run) -> None:
    result = run("doctor", "--device", "gone=socket://127.0.0.1:1", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["healthy"]) == (1, False)
    gone = next(subject for subject in told["subjects"] if subject["name"].startswith("gone"))
    assert [finding["level"] for finding in gone["findings"]] == ["problem"]
    assert gone["findings"][0]["advice"]


def test_the_doctor_goes_on_where_a_port_is_pulled_as_it_lists_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def comports() -> list[str]:
        raise TypeError("int() argument must be a string")  # as pyserial does then

    monkeypatch.setattr(list_ports, "comports", comports)
    assert run("doctor").exit_code == 0


def test_the_doctor_does_not_deny_ports_that_it_names_elsewhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_ports, "comports", lambda: [list_ports_common.ListPortInfo("/dev/ttyS0")])
    assert "no board found; ports without a known device: /dev/ttyS0" in run("doctor").stdout
    monkeypatch.setattr(list_ports, "comports", list)
    assert "none found" in run("doctor").stdout


def test_the_doctor_does_without_a_server(run: Run) -> None:
    result = run("doctor", "--server", "grpc://127.0.0.1:1", "--json")
    server = json.loads(result.stdout)["subjects"][-1]
    assert result.exit_code == 0
    assert (server["findings"][0]["level"], "fastflight serve" in server["findings"][0]["advice"]) == ("note", True)


def test_a_running_program_is_left_alone_unless_interrupted(run: Run) -> None:
    endless = "import time\nwhile True:\n time.sleep_ms(10)\n"
    assert run("exec", "demo", f"f = open('/main.py', 'w'); f.write({endless!r}); f.close()").exit_code == 0
    assert run("reset", "demo").exit_code == 0
    busy = run("ls", "demo")
    assert (busy.exit_code, "--interrupt" in busy.stderr) == (1, True)
    assert run("rm", "demo:/main.py", "--interrupt").exit_code == 0
    assert run("ls", "demo").exit_code == 0


def test_a_hard_reset_stops_a_running_program_and_starts_it_again(run: Run, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    # The program does not clean up, so the second reset need not wait for it.
    with ready_server({"demo": {"url": f"sim:?files={tmp_path}&telemetry=0", "grace": 0.3}}) as location:
        (tmp_path / "main.py").write_text("with open('/runs', 'a') as f:\n f.write('x')\nwhile True:\n pass\n")
        for expected in ("x", "xx"):
            result = run("reset", "demo", "--hard", "--server", location)
            assert (result.exit_code, result.stderr) == (0, "")
            until(lambda expected=expected: runs.exists() and runs.read_text() == expected)
