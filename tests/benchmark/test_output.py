"""Where results are written if nobody says where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which both packages lie among installed ones, and a folder `docs` of another package."""
    packages = tmp_path / "site-packages"
    (packages / "docs" / "results").mkdir(parents=True)
    for name in ("fastflight", "fastflight_benchmark"):
        (packages / name).symlink_to(ROOT / name, target_is_directory=True)
    return {**os.environ, "PYTHONPATH": str(packages)}


def test_installed_scripts_write_below_the_current_folder(installed: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fastflight_benchmark.plot_benchmark_results"]
    done = subprocess.run(command, env=installed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no result in results: run run_benchmark.py first" in " ".join(done.stderr.replace("│", " ").split())


def test_a_checkout_has_its_own_folder() -> None:
    code = "from fastflight_benchmark.output import RESULTS; print(RESULTS)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == [str(ROOT / "fastflight_benchmark" / "results")]
