"""Imports Arrow for a command, without the packages that Arrow imports if they are installed."""

from __future__ import annotations

import functools
import importlib
import sys


@functools.cache  # NumPy must not be hidden again while other threads import it
def load_arrow(*, numpy: bool = True) -> None:
    """Import Arrow so that it never imports pandas, and unless `numpy`, does without NumPy.

    Arrow looks for each only once in a process: for NumPy when it is imported, for pandas when it first makes an array
    of Python values, and again when it first makes Python values of times. Each takes about as long as the rest of a
    small command. No command makes data frames, and only servers and commands that convert tables need NumPy in Arrow.
    Other modules can import both afterwards.
    """
    if numpy:
        importlib.import_module("pyarrow")
    loaded = sys.modules.get("numpy")
    sys.modules["numpy"] = None  # type: ignore[assignment]  # its import fails, and with it that of pandas
    try:
        pyarrow = importlib.import_module("pyarrow")
        pyarrow.array([0])
        pyarrow.scalar(0, pyarrow.timestamp("ns")).as_py()
    finally:
        del sys.modules["numpy"]
        if loaded is not None:
            sys.modules["numpy"] = loaded
