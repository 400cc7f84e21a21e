"""How a script ends before its time."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import signal
signal.signal(signal.{name}, signal.{before})
from fastflight_benchmark import ending
ending.like_ctrl_c()
try:
    signal.raise_signal(signal.{name})
    signal.raise_signal(signal.{name})
except KeyboardInterrupt:
    signal.raise_signal(signal.{name})  # does not stop what ends
    print("ends")
else:
    print("goes on")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no terminals that are closed")
@pytest.mark.parametrize(
    ("name", "before", "outcome"),
    [("SIGTERM", "SIG_DFL", "ends"), ("SIGHUP", "SIG_DFL", "ends"), ("SIGHUP", "SIG_IGN", "goes on")],
    ids=["terminated", "without its terminal", "as nohup has it"],
)
def test_a_signal_that_is_not_ignored_ends_a_script_in_good_order_once(name: str, before: str, outcome: str) -> None:
    command = [sys.executable, "-c", SCRIPT.format(name=name, before=before)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == outcome
