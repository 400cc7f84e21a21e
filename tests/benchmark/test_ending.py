"""How a script ends before its time."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import signal
from fastflight_benchmark import ending
ending.like_ctrl_c()
try:
    signal.raise_signal({number})
    signal.raise_signal({number})
except KeyboardInterrupt:
    signal.raise_signal({number})  # does not stop what ends
    print("ends")
else:
    print("goes on")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no terminals that are closed")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_what_is_not_ignored_ends_it_in_good_order_once(name: str) -> None:
    number = int(getattr(signal, name))
    whatever_these_tests_ignore = f"import signal\nsignal.signal({number}, signal.SIG_DFL)\n"
    assert outcome(whatever_these_tests_ignore + SCRIPT.format(number=number)) == "ends"


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no terminals that are closed")
def test_a_script_that_is_to_outlive_its_terminal_does() -> None:
    number = int(signal.SIGHUP)
    as_nohup_does = f"import signal\nsignal.signal({number}, signal.SIG_IGN)\n"
    assert outcome(as_nohup_does + SCRIPT.format(number=number)) == "goes on"


def outcome(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
