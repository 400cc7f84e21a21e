"""The public surface is the one in the snapshots of this folder. `docs/stability.md` says what may change, and how.

python -m tests.stability        # writes the snapshots again
"""

from __future__ import annotations

import difflib
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastflight.app.compose import open_server
from fastflight.app.config import RecordingSettings
from fastflight.cli.main import app
from tests.stability.answers import COMMANDS, observe
from tests.stability.surface import SURFACES, cli
from tests.support.servers import config

HERE = Path(__file__).parent
ADVICE = """
The public surface is not the one in {file}.
If this is intended, run `uv run --no-sync python -m tests.stability`, and write it in docs/CHANGELOG.md:
- lines that only begin with +: under Added;
- lines that begin with -: under Removed or Changed. First read docs/stability.md: what is promised is deprecated first.
"""


def check(name: str, lines: list[str]) -> None:
    file = HERE / f"{name}.txt"
    known = file.read_text(encoding="utf-8").splitlines()
    changes = [line for line in difflib.ndiff(known, lines) if line[0] in "+-"]
    if changes:
        pytest.fail("\n".join([ADVICE.format(file=f"tests/stability/{file.name}"), *changes]), pytrace=False)


@pytest.mark.parametrize("name", SURFACES)
def test_the_surface_is_the_one_in_the_snapshot(name: str) -> None:
    check(name, SURFACES[name]())


def test_the_answers_are_those_in_the_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check("answers", observe(tmp_path, monkeypatch))


def test_each_command_that_prints_json_is_observed() -> None:
    able = {line.partition(":")[0].removeprefix("fastflight ") for line in cli() if line.endswith(": --json")}
    observed = {command.partition(" --json")[0] for command in COMMANDS if command.endswith("--json")}
    missing = {name for name in able if not any(f"{command} ".startswith(f"{name} ") for command in observed)}
    assert missing == {"cluster status", "stats"}  # their keys are not promised


def test_a_recording_of_0_1_can_be_read(tmp_path: Path) -> None:
    folder = shutil.copytree(HERE / "recording", tmp_path / "recording")
    with open_server(config(recordings=RecordingSettings(folder=folder))) as running:
        result = CliRunner().invoke(app, ["replay", "weather", "--server", running.location, "--json"])
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"seq": n, "time": f"2026-03-01T00:00:0{n}+00:00", "text": f"line {n}"} for n in range(4)
    ]
