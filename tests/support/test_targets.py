"""A real interpreter that is missing or broken is named, with the way to install it. `tests/board` runs the others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import targets


def test_a_missing_program_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(targets.TargetMissing, match=r"qemu-system-arm is not on PATH.*apt-get install"):
        targets.microbit().__enter__()
    with pytest.raises(targets.TargetMissing, match="node is not on PATH"):
        targets.webassembly().__enter__()
    with pytest.raises(targets.TargetMissing, match="micropython is not on PATH"):
        targets.unix_port().__enter__()


def test_an_emulator_that_ends_at_once_is_broken_and_not_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program, firmware = tmp_path / "qemu-system-arm", tmp_path / "firmware.hex"
    program.write_text("#!/bin/sh\necho no such machine >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(targets.TargetMissing, match="firmware.hex is not installed"):
        targets.microbit(firmware).__enter__()
    firmware.touch()
    with pytest.raises(targets.TargetBroken, match="no such machine"):
        targets.microbit(firmware).__enter__()
