"""What a command says when packages of an extra are missing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fastflight.app.extras import MODULES, needs

SECONDS = 60.0
SERVE = "serve --server grpc://127.0.0.1:0 --http 0 --record demo --recordings kept".split()
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
RUN = (
    "import sys; sys.modules[{module!r}] = None; sys.argv[1:] = {words!r}; "
    "from fastflight.cli.entry import main; main()"
)


@pytest.mark.parametrize(
    ("module", "words", "said"),
    [
        ("fastapi", SERVE, "--http needs the package fastapi"),
        ("uvicorn", ["gateway", "--http", "0"], "the gateway needs the package uvicorn"),
        ("cryptography", ["cert", "server", "localhost"], "`cert` needs the package cryptography"),
        ("matplotlib", ["plot", "demo", "--column", "celsius"], "`plot` needs the package matplotlib"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, module: str, words: list[str], said: str
) -> None:
    command = [sys.executable, "-c", RUN.format(module=module, words=words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr and "pip install 'fastflight-micropython[" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and list(tmp_path.iterdir()) == []


def test_other_missing_modules_are_not_explained_away() -> None:
    with pytest.raises(ModuleNotFoundError), needs("http", "a test"):
        import fastflight.nothing  # type: ignore[import-not-found]  # noqa: F401


def test_each_package_of_an_extra_is_known() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    for extra, modules in MODULES.items():
        names = {line.partition(">")[0].partition("[")[0] for line in extras[extra]}
        assert names - {"seaborn"} <= modules, extra
