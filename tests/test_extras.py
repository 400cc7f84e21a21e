"""What a command says when packages of an extra are missing, or when another package is in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from fastflight.cli import doctor_checks
from fastflight.extras import MODULES, conflicting_package, install_hint, needs

SECONDS = 60.0
# Errors in boxes are not wrapped.
WIDE = {**os.environ, "COLUMNS": "200"}
FLEET = '[devices.demo]\nurl = "sim:"\npublish = ["mqtt://127.0.0.1"]\n'
SERVE = "serve --server grpc://127.0.0.1:0 --http 0 --record demo --recordings kept".split()
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
RUN = (
    "import sys; sys.modules[{module!r}] = None; sys.argv[1:] = {words!r}; "
    "from fastflight.cli.entry import main; main()"
)


@pytest.mark.parametrize(
    ("module", "words", "said"),
    [
        ("fastapi", SERVE, "--http needs the package fastapi"),
        ("cryptography", ["cert", "server", "localhost"], "`cert` needs the package cryptography"),
        ("paho", ["serve", "--fleet", "../fleet.toml"], "devices.demo.publish needs the package paho"),
        ("nats", ["serve", "--cluster", "nats://127.0.0.1:1"], "--cluster needs the package nats"),
        ("matplotlib", ["plot", "demo", "--column", "celsius"], "`plot` needs the package matplotlib"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, module: str, words: list[str], said: str
) -> None:
    (tmp_path / "fleet.toml").write_text(FLEET)
    folder = tmp_path / "empty"
    folder.mkdir()
    command = [sys.executable, "-c", RUN.format(module=module, words=words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=folder, env=WIDE)
    # 2 is that of a wrong fleet file.
    assert done.returncode == (2 if "--fleet" in words else 1)
    assert said in done.stderr and "uv sync --inexact --no-dev --extra" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and list(folder.iterdir()) == []


CLONE = "file:///home/ada/fastflight"


@pytest.mark.parametrize(
    ("origin", "is_tool", "hint"),
    [
        ({"url": CLONE, "dir_info": {"editable": True}}, False, "uv sync --inexact --no-dev --extra sql, in the clone"),
        ({"url": CLONE, "dir_info": {}}, True, "uv tool install '.[all]', in the clone"),
        ({"url": CLONE, "dir_info": {}}, False, "pip install '.[sql]', in the clone"),
        (None, False, "pip install 'fastflight-micropython[sql]'"),
    ],
)
def test_the_hint_is_what_works_where_the_package_came_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, origin: dict[str, object] | None, is_tool: bool, hint: str
) -> None:
    installed = SimpleNamespace(read_text=lambda name: None if origin is None else json.dumps(origin))
    monkeypatch.setattr(metadata, "distribution", lambda name: installed)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    if is_tool:
        (tmp_path / "uv-receipt.toml").touch()
    assert install_hint("sql") == hint


def test_a_server_loads_nothing_that_it_does_not_use_yet() -> None:
    code = (
        "import sys\n"
        "from fastflight.app.compose import open_server\n"
        "from fastflight.app.config import Config\n"
        "open_server(Config(location='grpc://127.0.0.1:0')).close()\n"
        "sys.exit(', '.join({'nats', 'google.protobuf', 'duckdb'} & {*sys.modules}) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=SECONDS)


def test_other_missing_modules_are_not_explained_away() -> None:
    with pytest.raises(ModuleNotFoundError), needs("http", "a test"):
        import fastflight.nothing  # type: ignore[import-not-found]  # noqa: F401


def test_each_package_of_an_extra_is_known() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    modules_of = {"nats-py": "nats", "opentelemetry-proto": "opentelemetry", "paho-mqtt": "paho", "protobuf": "google"}
    for extra, modules in MODULES.items():
        names = {line.partition(">")[0].partition("[")[0] for line in extras[extra]}
        assert {modules_of.get(name, name) for name in names - {"seaborn"}} <= modules, extra


def test_all_is_every_extra() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    (whole,) = extras.pop("all")
    assert set(whole.partition("[")[2].rstrip("]").split(",")) == set(extras)


@pytest.fixture
def other_package(tmp_path: Path) -> Path:
    """A folder for `sys.path`, with what pip leaves there of PyPI's package `fastflight`."""
    metadata = tmp_path / "fastflight-0.4.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: fastflight\nVersion: 0.4.0\n")
    return tmp_path


def test_a_server_warns_of_the_other_package(other_package: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastflight", "serve", "--device", "wrong"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(other_package), os.environ.get("PYTHONPATH", "")])},
    )
    warnings = [line for line in done.stderr.splitlines() if "fastflight 0.4.0" in line]
    assert len(warnings) == 1 and "pip uninstall fastflight" in warnings[0], done.stderr


def test_doctor_notes_the_other_package(other_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert conflicting_package() is None
    monkeypatch.syspath_prepend(str(other_package))
    found = doctor_checks.installation()
    assert found.healthy and [finding.level for finding in found.findings] == ["ok", "note"]
    assert "fastflight 0.4.0" in found.findings[1].what and "pip uninstall" in found.findings[1].advice
