"""Imports Arrow for a command, without the packages that Arrow imports if they are installed."""

from __future__ import annotations

import importlib
import sys


def load_arrow(*, numpy: bool = True) -> None:
    """Import Arrow so that it never imports pandas, and unless `numpy`, does without NumPy.

    Arrow looks for each only once in a process: for NumPy when it is imported, for pandas when it first makes Python
    values of some types. Each takes about as long as the rest of a small command. No command makes data frames, and
    only servers and commands that convert tables need NumPy in Arrow. Other modules can import both afterwards.
    """
    if numpy:
        importlib.import_module("pyarrow")
    loaded = sys.modules.get("numpy")
    sys.modules["numpy"] = None  # type: ignore[assignment]  # its import fails, and with it that of pandas
    try:
        pyarrow = importlib.import_module("pyarrow")
        pyarrow.scalar(0, pyarrow.timestamp("ns")).as_py()
    finally:
        del sys.modules["numpy"]
        if loaded is not None:
            sys.modules["numpy"] = loaded
