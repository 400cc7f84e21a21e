"""What the stage of faults stands on: names that lead to one board only, and programs that do not outlive it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaigns.faulting.leash import LOST
from tests.campaigns.faulting.portname import PortName
from tests.campaigns.faulting.program import LEASH

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors have names on Linux only")


def test_a_port_that_is_gone_leads_to_nobody_even_when_its_number_is_taken_anew(tmp_path: Path) -> None:
    with PortName(tmp_path / "port") as name:
        board, slave = os.openpty()
        name.aim(os.ttyname(slave))
        os.close(slave)
        opened = os.open(name.path, os.O_RDWR | os.O_NOCTTY)
        os.write(opened, b"hello")
        assert os.read(board, 5) == b"hello"
        os.close(opened)
        os.close(board)
        stranger, slave = os.openpty()  # which has the number now, on a machine where nobody else wants one
        with pytest.raises(OSError):
            os.open(name.path, os.O_RDWR | os.O_NOCTTY)
        name.aim(os.ttyname(slave))
        os.close(os.open(name.path, os.O_RDWR | os.O_NOCTTY))
        os.close(stranger)
        os.close(slave)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("said", [b"", b"begin\n"])
def test_a_program_on_a_leash_ends_with_its_input(said: bytes) -> None:
    command = [sys.executable, "-m", LEASH, "serve", "--server", "grpc://127.0.0.1:0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None and program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        program.stdin.write(said)
        program.stdin.flush()
        if said:
            assert b"listening" in program.stdout.readline()
        program.stdin.close()
        assert program.wait(60) == LOST
