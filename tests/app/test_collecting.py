"""Logs that a server collects by itself, from the fleet file."""

from __future__ import annotations

from pathlib import Path

from fastflight.app.compose import open_server
from fastflight.app.overlay import read_config
from tests.support.waiting import until

FLEET = """
[devices.weather]
url = "sim:?files={files}&telemetry=0"
collect = {{ path = "/log.csv", to = "collected", minutes = {minutes} }}

[devices.cellar]
url = "sim:?files={files}2&telemetry=0"
collect = {{ path = "/log.csv", to = "collected", minutes = {minutes} }}
"""


def fleet(folder: Path, minutes: float) -> Path:
    file = folder / "fleet.toml"
    file.write_text(FLEET.format(files=folder / "board", minutes=minutes))
    return file


def test_the_logs_of_the_devices_are_collected_again_and_again(tmp_path: Path) -> None:
    log, other = tmp_path / "board/log.csv", tmp_path / "board2/log.csv"
    for each in (log, other):
        each.parent.mkdir()
        each.write_text("1,21.5\n")
    settings = read_config("grpc://127.0.0.1:0", [], fleet(tmp_path, 0.001), shards=1)
    folder = tmp_path / "collected/weather/log.csv"
    with open_server(settings):
        until((folder / "0000001.csv").exists)
        until((tmp_path / "collected/cellar/log.csv/0000001.csv").exists)
        until(lambda: not list(log.parent.glob("log.csv*")))
        log.write_text("2,21.6\n")
        until((folder / "0000002.csv").exists)
    assert [path.read_text() for path in sorted(folder.glob("*.csv"))] == ["1,21.5\n", "2,21.6\n"]
