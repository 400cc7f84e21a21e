"""The files of a campaign: CSV files, and a JSON file that describes the run and the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from fastflight_benchmark.result import RESULTS, prepare

__all__ = ["RESULTS", "default_path", "prepare", "save"]
DIGITS = 6


def default_path(campaign: str) -> Path:
    """Return a new path in `RESULTS`."""
    return RESULTS / f"{campaign}-{datetime.now():%Y%m%d-%H%M%S}.csv"


def save(path: Path, frame: pd.DataFrame, parts: Mapping[str, pd.DataFrame], description: Mapping[str, Any]) -> None:
    """Write the files, which are named after `path`, into a folder that `prepare` made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for part, content in {"": frame, **{f"_{part}": content for part, content in parts.items()}}.items():
        content.to_csv(path.with_name(f"{path.stem}{part}.csv"), index=False, float_format=f"%.{DIGITS}g")
    path.with_suffix(".json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
