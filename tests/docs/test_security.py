"""The set-up that SECURITY.md shows, done as it stands there, on the loopback."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fastflight.app.compose import open_server
from fastflight.app.config import AuthTable
from fastflight.app.overlay import read_config
from fastflight.cli.main import app

TEXT = (Path(__file__).parents[2] / "docs" / "SECURITY.md").read_text()
SETUP = re.search(r"## Set-up\n\n```sh\n(.*?)```", TEXT, re.DOTALL)
FLEET = re.search(r"```toml\n(.*?)```", TEXT, re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
ADDRESS = "grpc+tls://boards.example:8815"


def command(line: str, at: str = "") -> str:
    """Run a line as it stands; where it redirects stdout to a file, that is written."""
    words = shlex.split(line.replace("boards.example 10.0.0.5", "127.0.0.1").replace(ADDRESS, at), comments=True)
    target = words[words.index(">") + 1] if ">" in words else None
    ran = CliRunner().invoke(app, words[1 : words.index(">") if target else len(words)])
    assert ran.exit_code == 0, ran.output
    if target:
        Path(target).write_text(ran.stdout)
    return ran.stdout


@contextmanager
def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[str], list[str]]]:
    """The files are there, made as the page says; the options of `serve`, and the lines of the set-up."""
    assert SETUP is not None
    monkeypatch.chdir(folder)
    lines = [line.partition("#")[0].strip() for line in SETUP[1].splitlines()]
    command(lines[0])
    command(lines[1])
    yield shlex.split(lines[2]), lines


def test_four_lines_serve_others_and_plain_clients_log_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with made(tmp_path, monkeypatch) as (serve, lines):
        options = dict(zip(serve[2::2], serve[3::2], strict=True))
        assert read_config(options["--server"], [], None, **paths(options)).auth == AuthTable(
            tokens=Path("tokens.json")
        )
        with open_server(read_config("grpc+tls://127.0.0.1:0", [], None, **paths(options))) as running:
            assert "demo" in command(lines[3], running.location)
            for example in PYTHON:
                names: dict[str, object] = {}
                exec(example.replace(ADDRESS, running.location).replace("\nprint(", "\nshown = ("), names)
                if "header" in names:
                    assert "readings.csv" in str(names["shown"])
                    names["client"].close()  # type: ignore[attr-defined]


def test_the_fleet_file_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FLEET is not None
    with made(tmp_path, monkeypatch):
        (tmp_path / "fleet.toml").write_text(f'[devices.demo]\nurl = "sim:"\n{FLEET[1]}')
        with open_server(read_config("grpc+tls://127.0.0.1:0", [], Path("fleet.toml"))) as running:
            assert running.location.startswith("grpc+tls://127.0.0.1:")


def paths(options: dict[str, str]) -> dict[str, Path]:
    names = {"tokens": "--tokens", "tls_cert": "--tls-cert", "tls_key": "--tls-key"}
    return {name: Path(options[option]) for name, option in names.items()}
