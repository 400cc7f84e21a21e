"""Servers of the campaign `cluster` compact after few messages, and look often: else it happens once in hours."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping

VARIABLE = "FASTFLIGHT_TESTING_COMPACTION"
# So many messages become a part. A server leaves the bucket alone for so long that another one has written to.
MESSAGES, QUIET_SECONDS = 1000, 6.0
LOOK_SECONDS = 2.0
TIDIED = re.compile(r"recordings tidied\s.*compacted=(\d+)")


def follow(environment: Mapping[str, str]) -> None:
    """Compact often if `environment` says so. Call it in a server that has not opened its recordings yet."""
    if VARIABLE not in environment:
        return
    compaction = importlib.import_module("fastflight.cluster.compaction")
    store = importlib.import_module("fastflight.cluster.replicated_store").ReplicatedStore
    limits = compaction.CompactionLimits(messages=MESSAGES, quiet_seconds=QUIET_SECONDS)
    store.compact.__defaults__ = (*store.compact.__defaults__[:-1], limits)
    setattr(importlib.import_module("fastflight.sources.tidying"), "TIDY_SECONDS", LOOK_SECONDS)  # noqa: B010


def parts_made(text: str) -> int:
    """Return how many parts a server says that it made, in its log."""
    return sum(int(count) for count in TIDIED.findall(text))


def damage_found(text: str) -> list[str]:
    """Return what a server says of damage that kept it from compacting: the campaign damages nothing."""
    return [
        line for line in text.splitlines() if "cannot be tidied" in line and ("damaged" in line or "changed" in line)
    ]
