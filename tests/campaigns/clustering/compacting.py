"""Servers of the campaign `cluster` delete and compact often, so that faults happen meanwhile."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping

VARIABLE = "FASTFLIGHT_TESTING_COMPACTION"
LOOK_SECONDS = 2.0
TIDIED = re.compile(r"recordings tidied\s.*compacted=(\d+)")


def follow(environment: Mapping[str, str]) -> None:
    """Compact often if `environment` says so. Call it in a server that has not opened its recordings yet."""
    if VARIABLE not in environment:
        return
    setattr(importlib.import_module("fastflight.sources.tidying"), "TIDY_SECONDS", LOOK_SECONDS)  # noqa: B010


def parts_made(text: str) -> int:
    """Return how many parts a server says that it made, in its log."""
    return sum(int(count) for count in TIDIED.findall(text))


def damage_found(text: str) -> list[str]:
    """Return what a server says of damage that kept it from compacting: the campaign damages nothing."""
    return [
        line for line in text.splitlines() if "cannot be tidied" in line and ("damaged" in line or "changed" in line)
    ]
