"""The last words of a process: that it ends, whoever listens to it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# For Python to start on a busy computer.
SECONDS = 15.0
# A thread that hangs, and what still waits to be written.
HANGS = """
import sys, threading
from fastflight.cli.ending import abandon, bounded, leave
threading.Thread(target=threading.Event().wait).start()
sys.stdout.write("one more line")
"""
ENDS = {
    "a command that is given up": ("abandon(130)", 130),
    "a server that is closed": ("leave()", 0),
    "a server that does not close": ("with bounded(0): sys.stdin.read()", 1),
}


@pytest.mark.skipif(os.name != "posix", reason="a pipe that nobody reads is another error there")
@pytest.mark.parametrize(("code", "exit_code"), ENDS.values(), ids=ENDS.keys())
def test_a_process_whose_reader_has_gone_ends_all_the_same(code: str, exit_code: int) -> None:
    """As in `fastflight tail demo | less`: Ctrl-C ends both, and `less` is the quicker one."""
    read, write = os.pipe()
    os.close(read)
    command, buffered = [sys.executable, "-c", HANGS + code], os.environ | {"PYTHONUNBUFFERED": ""}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=write, stderr=write, env=buffered) as child:
        os.close(write)
        try:
            assert child.wait(SECONDS) == exit_code
        finally:
            child.kill()
