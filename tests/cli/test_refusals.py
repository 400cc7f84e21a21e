"""Commands that are refused: their exit code and what they say, and that nothing is changed here or on a board."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.client import FastFlightClient
from tests.support.folders import files_below
from tests.support.servers import serving

from .conftest import Run

ROWS = (Path(__file__).parent / "refusals.txt").read_text().splitlines()
REFUSALS = [row.split(" | ", 2) for row in ROWS if row and not row.startswith("#")]
BOARD = {
    "readings.csv": "time,celsius\n1,20.5\n",
    "log.bin": "\0\1\2\3",
    "a.csv": "a\n1\n",
    "data/log-1.csv": "a\n1\n",
    "data/log-2.csv": "a\n2\n",
    "data/deep/x.bin": "x",
}
HERE = {"a.py": "a = 1\n", "a.csv": "a\n1\n", "b.csv": "b\n1\n", "empty": "", "app/main.py": "", "app/lib/c.py": ""}


def plant(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("boards")
    plant(folder / "demo", BOARD)
    plant(folder / "lab", {"t.csv": "a\n1\n"})
    return folder


@pytest.fixture(scope="module")
def location(boards: Path) -> Iterator[str]:
    urls = {name: f"sim:?files={boards / name}&telemetry=0" for name in ("demo", "lab")}
    with serving(urls) as running:
        with FastFlightClient(running.location) as client:
            for name in urls:
                client.info(name)
        yield running.location


@pytest.mark.parametrize(("code", "command", "says"), REFUSALS, ids=[command for _, command, _ in REFUSALS])
def test_a_refused_command_says_why_and_changes_nothing(
    run: Run, boards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, command: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    plant(tmp_path, HERE)
    before = files_below(tmp_path), files_below(boards)
    result = run(*shlex.split(command), input="x")
    assert (result.exit_code, result.stdout) == (int(code), ""), result.output
    assert says in re.sub(r"[\s│]+", " ", result.stderr)
    assert code == "2" or len(result.stderr.splitlines()) == 1, result.stderr
    assert (files_below(tmp_path), files_below(boards)) == before
    assert not (boards / "demo" / "p").exists()
