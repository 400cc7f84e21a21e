"""Keeps pandas out of the process of a command.

Arrow imports pandas when it first makes an array of Python values, or Python values of a time. That takes as long as
all the rest of most commands, and no command makes a data frame.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

import pyarrow as pa


def keep_pandas_out() -> None:
    """Have Arrow look for pandas now, and not find it. Arrow looks only once in a process."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
