"""`fastflight agent` and `fastflight collect`, on a board without a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "board"
    folder.mkdir()
    (folder / "log.csv").write_text("1,21.5\n2,21.6\n")
    return folder


@pytest.fixture
def on_board(run: Run, files: Path) -> Run:
    return lambda *arguments: run(*arguments, "--device", f"sim:?files={files}&telemetry=0")


def test_the_agent_is_installed_and_removed(on_board: Run, files: Path) -> None:
    installed = on_board("agent", "install")
    assert installed.exit_code == 0
    assert "import fastflight_agent" in installed.stdout
    assert "agent = true" in installed.stdout
    before = {path.name for path in files.iterdir()}
    assert "fastflight_agent.py" in before
    removed = on_board("agent", "remove")
    assert removed.exit_code == 0
    assert {path.name for path in files.iterdir()} == before - {"fastflight_agent.py"}
    assert on_board("agent", "remove").exit_code == 1


def test_a_program_that_imports_a_removed_agent_is_named(on_board: Run, files: Path) -> None:
    on_board("agent", "install")
    (files / "main.py").write_text("if 0:\n import fastflight_agent\n")
    assert "/main.py starts it" in on_board("agent", "install").stdout
    assert "/main.py still imports" in on_board("agent", "remove").stderr


def test_a_board_whose_program_runs_the_agent_is_used_beside_it(on_board: Run, files: Path) -> None:
    on_board("agent", "install")
    (files / "main.py").write_text("import time, fastflight_agent\nn = 7\nwhile True:\n time.sleep(0.01)\n")
    assert on_board("exec", "print(n)", "--agent").stdout == "7\n"
    assert "agent" in on_board("info", "--agent").stdout


def test_a_board_without_timers_needs_a_program_with_asyncio(run: Run, files: Path) -> None:
    result = run("agent", "install", "--device", f"sim:?files={files}&telemetry=0&without=machine.Timer")
    assert result.exit_code == 0
    assert "asyncio.create_task(fastflight_agent.task())" in result.stderr
    assert "Start it in main.py: import" not in result.stdout
