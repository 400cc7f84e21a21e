"""The files of a result: several CSV files, and a JSON file that describes the run and the machine.

`results/flight-20250101-120000.csv` is the main file. Beside it are `..._raw.csv`, other parts of the result, and
`....json`.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

HERE = Path(__file__).parent
# In a checkout, beside the scripts. If they are installed, results do not belong among the packages.
RESULTS = HERE / "results" if (HERE.parent / "pyproject.toml").is_file() else Path("results")
# Significant digits of each figure. More would claim a precision that was not measured.
DIGITS = 6


def default_path(suite: str) -> Path:
    """Return a new path in `RESULTS`."""
    return RESULTS / f"{suite}-{datetime.now():%Y%m%d-%H%M%S}.csv"


def beside(path: Path, part: str) -> Path:
    """Return the path of another part of the result whose main file is `path`."""
    return path.with_name(f"{path.stem}_{part}.csv")


def description_of(path: Path) -> Path:
    """Return the path of the JSON file of the result whose main file is `path`."""
    return path.with_suffix(".json")


def newest(suite: str) -> Path | None:
    """Return the main file of the newest result in `RESULTS`."""
    found = [path for path in RESULTS.glob(f"{suite}-*.csv") if description_of(path).exists()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def prepare(path: Path) -> None:
    """Make the folder of the result. `OSError` if the result could not be written there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent):
        pass
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def save(path: Path, frame: pd.DataFrame, parts: Mapping[str, pd.DataFrame], description: Mapping[str, Any]) -> None:
    """Write the result's files into a folder that `prepare` made."""
    for name, content in ((path, frame), *((beside(path, part), content) for part, content in parts.items())):
        content.to_csv(name, index=False, float_format=f"%.{DIGITS}g")
    description_of(path).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def described(path: Path) -> dict[str, Any]:
    """Return the description of the result at `path`."""
    content: dict[str, Any] = json.loads(description_of(path).read_text(encoding="utf-8"))
    return content
