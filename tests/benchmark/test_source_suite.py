"""`--source`: own sources of both sizes are measured, in the modes that they have."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from fastflight_benchmark import run_benchmark
from fastflight_benchmark.suites import source as suite

NUMBERS = "fastflight_benchmark.mock_data_service:NUMBERS"


@pytest.mark.parametrize(("rows", "unit"), [(10, "answers/s"), (2_000, "MiB/s")])
def test_a_source_is_measured_as_its_size_requires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, unit: str
) -> None:
    monkeypatch.setattr(suite, "QUICK_CLIENTS", (1, 2))
    monkeypatch.setattr(suite, "QUICK_SECONDS", 0.05)
    path = tmp_path / "source.csv"
    arguments = ["--source", NUMBERS, "--request", f'{{"total_rows": {rows}}}', "--quick", "--output", str(path)]
    result = CliRunner().invoke(run_benchmark.app, arguments)
    assert result.exit_code == 0, result.output
    measured = pd.read_csv(path)
    assert set(measured["unit"]) == {unit} and (measured["rate"] > 0).all()
    assert set(zip(measured["clients"], measured["mode"], strict=True)) == {
        (1, "alone"),
        *((clients, mode) for clients in (1, 2) for mode in ("sync", "async")),
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--source", "nowhere:X"], "there is no module 'nowhere'"),
        (["--source", NUMBERS, "--request", "{"], "--request: not JSON"),
        (["--source", NUMBERS, "--request", '{"rows": 1}'], "rows: unknown key"),
        (["--source", NUMBERS, "--suite", "memory"], "it goes with --request"),
    ],
)
def test_what_cannot_be_measured(tmp_path: Path, arguments: list[str], says: str) -> None:
    result = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "200"}).invoke(
        run_benchmark.app, [*arguments, "--output", str(tmp_path / "never.csv")]
    )
    assert result.exit_code in (1, 2)
    assert says in result.output
