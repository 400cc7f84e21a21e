"""`df`, `rtc`, `soft-reset`, `bootloader`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fastflight.cli.main import app

RunOn = Callable[..., Result]

# Far longer than a command takes on a busy computer, and far shorter than the error of a clock that was not set.
MINUTES = timedelta(minutes=10)


@pytest.fixture
def run_on(monkeypatch: pytest.MonkeyPatch) -> RunOn:
    """Run a command on the board at a URL: `run_on("sim:", "df")`."""
    monkeypatch.delenv("FASTFLIGHT_SERVER", raising=False)

    def invoke(url: str, *arguments: str) -> Result:
        result = CliRunner().invoke(app, [*arguments, "--device", url], env={"COLUMNS": "120"})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


def test_the_space_of_a_file_system(run_on: RunOn, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.bin").write_bytes(bytes(8192))
    url = f"sim:?files={tmp_path}&telemetry=0&capacity=40960"
    (found,) = json.loads(run_on(url, "df", "--json").stdout)
    assert (found["path"], found["size"]) == ("/", 40960)
    assert 0 < found["free"] <= 40960 - 8192
    heading, row = run_on(url, "df").stdout.splitlines()
    assert heading.split() == ["path", "size", "used", "free", "use"]
    assert row.startswith("/ ")


def test_each_mounted_file_system_is_listed(run_on: RunOn, tmp_path: Path) -> None:
    """A board with its own file system, a card at /sd, and a folder; the first only as newer firmware lists it."""
    (tmp_path / "boot.py").write_text(BOARD_WITH_A_CARD)
    url = f"sim:?files={tmp_path}&telemetry=0"
    expected = [{"path": "/", "size": 4096, "free": 2048}, {"path": "/sd", "size": 51200, "free": 512}]
    assert json.loads(run_on(f"{url}&without=os.mount", "df", "--json").stdout) == expected
    (tmp_path / "boot.py").write_text(BOARD_WITH_A_CARD + "os.mount = lambda: [(None, '/'), (None, '/sd')]\n")
    assert json.loads(run_on(url, "df", "--json").stdout) == expected


BOARD_WITH_A_CARD = """\
import os
def statvfs(path):
  if path == '/broken':
    raise OSError(5)
  return (512, 512, 100, 1, 1) if path == '/sd' else (512, 512, 8, 4, 4)
os.statvfs = statvfs
os.listdir = lambda path: ['main.py', 'sd', 'broken', 'folder']
"""


def test_space_that_the_board_does_not_know_is_unknown(run_on: RunOn) -> None:
    url = "sim:?telemetry=0&without=os.statvfs"
    assert json.loads(run_on(url, "df", "--json").stdout) == [{"path": "/", "size": None, "free": None}]
    assert run_on(url, "df").stdout.splitlines()[1].split() == ["/", "unknown", "unknown", "unknown", "-"]


def test_the_names_of_the_program_on_the_board_stay(run: RunOn) -> None:
    run("exec", "r, l = 'mine', 'mine'")
    assert run("df").exit_code == 0
    assert run("eval", "r, l").stdout == "('mine', 'mine')\n"


def test_the_clock_is_shown(run_on: RunOn) -> None:
    shown = datetime.strptime(run_on("sim:?telemetry=0", "rtc").stdout, "%Y-%m-%d %H:%M:%S\n")
    assert abs(shown.replace(tzinfo=UTC) - datetime.now(UTC)) < MINUTES


@pytest.mark.parametrize("utc", [False, True], ids=["local time", "UTC"])
def test_the_clock_is_set_to_the_time_of_this_computer(run_on: RunOn, tmp_path: Path, utc: bool) -> None:
    (tmp_path / "boot.py").write_text("import machine\nmachine.RTC().datetime((2000, 1, 1, 5, 0, 0, 0, 0))\n")
    url = f"sim:?files={tmp_path}&telemetry=0"
    assert run_on(url, "rtc").stdout.startswith("2000-01-01 00:0")
    result = run_on(url, "rtc", "--set", "--json", *["--utc"] * utc)
    shown = datetime.fromisoformat(json.loads(result.stdout)["time"])
    assert abs(shown - datetime.now(UTC if utc else None).replace(tzinfo=None)) < MINUTES


@pytest.mark.parametrize(("platform", "monday"), [("rp2", 0), ("pyboard", 1)])
def test_the_weekday_counts_as_the_board_counts(run_on: RunOn, tmp_path: Path, platform: str, monday: int) -> None:
    (tmp_path / "boot.py").write_text(
        f"import machine, sys\nsys.platform = {platform!r}\n"
        "def set(self, moment=None):\n"
        "  if moment: open('set', 'w').write(repr(moment))\n"
        "  return (2026, 11, 23, 0, 1, 2, 3, 0)\n"
        "machine.RTC.datetime = set\n"
    )
    assert run_on(f"sim:?files={tmp_path}&telemetry=0", "rtc", "--set").exit_code == 0
    year, month, day, weekday, *_ = map(int, (tmp_path / "set").read_text().strip("()").split(","))
    assert weekday == datetime(year, month, day).weekday() + monday


def test_a_board_without_a_clock_is_an_error(run_on: RunOn) -> None:
    for options in ([], ["--set"]):
        refused = run_on("sim:?telemetry=0&without=machine.RTC", "rtc", *options)
        assert refused.exit_code == 1
        assert "has no clock" in refused.stderr


def test_a_clock_without_a_valid_time_is_an_error_that_says_how_to_set_it(run_on: RunOn, tmp_path: Path) -> None:
    (tmp_path / "boot.py").write_text(
        "import machine\nmachine.RTC.datetime = lambda self: (2000, 0, 0, 0, 0, 0, 0, 0)\n"
    )
    refused = run_on(f"sim:?files={tmp_path}&telemetry=0", "rtc")
    assert refused.exit_code == 1
    assert "--set" in refused.stderr


def test_a_line_that_goes_away_is_the_success_of_bootloader(run_on: RunOn) -> None:
    done = run_on("sim:?telemetry=0", "bootloader")
    assert (done.exit_code, done.stderr) == (0, "board is in its bootloader\n")


def test_a_board_without_bootloader_is_an_error(run_on: RunOn) -> None:
    refused = run_on("sim:?telemetry=0&without=machine.bootloader", "bootloader")
    assert (refused.exit_code, "buttons" in refused.stderr) == (1, True)


def test_a_board_that_is_not_there_is_not_in_its_bootloader(run_on: RunOn) -> None:
    assert run_on("socket://127.0.0.1:1", "bootloader").exit_code == 3
