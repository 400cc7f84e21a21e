"""A token that the user's shell exports is not for the programs that are started for devices."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fastflight.cli.server_options import TOKEN_VARIABLE
from fastflight.transport import parse_url
from fastflight.transport.exec import SECRETS, child_environment
from tests.support.ports import open_port

PATIENCE = 60.0


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_child_of_a_device_does_not_inherit_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "ff_secret")
    monkeypatch.setenv("FASTFLIGHT_ELSE", "kept")
    program = tmp_path / "program.py"
    program.write_text("import os; print(sorted(n for n in os.environ if n.startswith('FASTFLIGHT_')), 'end', flush=1)")
    address = parse_url(f"exec:{sys.executable} {program}")
    port = open_port(address, PATIENCE)
    said = b""
    while b"end" not in said:
        said += port.read(PATIENCE)
    port.close()
    address.dispose()
    assert b"FASTFLIGHT_ELSE" in said
    assert TOKEN_VARIABLE.encode() + b"'" not in said


def test_what_is_left_out_is_what_commands_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "ff_secret")
    assert TOKEN_VARIABLE in SECRETS
    assert "ff_secret" not in child_environment().values()
