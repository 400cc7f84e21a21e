"""JSON that a peer says: what it says on a good day, changed at places and to values that the bytes choose."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from tests.campaigns.fuzz.material import Material

# For keys that are there, made to fit together seldom enough.
VALUES: tuple[Any, ...] = (
    "demo", "/a.csv", "csv", "sync", "raw", "", "\ud800", "x" * 300, True, False, None, 0, 1, -1, 5, 1.5, 2**53, 2**64,
    10**400, float("nan"), float("inf"), [], ["a"], ["a", 1], {}, {"a": "int64"}, {"column": "t"}, {"a": 1}, [[[[]]]],
    "2025-01-01T00:00:00Z", "2025-01-01", "0" * 64,
)  # fmt: skip
# Python's reader of JSON gives up at some depth, and at numbers of so many digits.
RAW = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff",
    b'{"a":' * 2000,
    b"[" * 100_000,
    b'{"rows":' + b"9" * 5000 + b"}",
    b'{"a":1}x',
)
MOST_CHANGES = 4


def said(material: Material, usual: Sequence[Any]) -> bytes:
    """One of the `usual`, changed; seldom something else."""
    kind = material.byte()
    if kind >= 0xF0:
        return material.rest() if kind == 0xFF else RAW[kind % len(RAW)]
    given = copy.deepcopy(usual[kind % len(usual)])
    for _ in range(material.byte() % (MOST_CHANGES + 1)):
        given = _changed(given, material)
    return json.dumps(given).encode()


def _changed(given: Any, material: Material) -> Any:
    """`given` with one value of it, however deep, gone, or another."""
    inside = list(given) if isinstance(given, dict) else list(range(len(given))) if isinstance(given, list) else []
    choice = material.byte()
    if not inside or choice < 8:
        return copy.deepcopy(material.pick(VALUES))
    key = inside[choice % len(inside)]
    if material.byte() % 8 == 0:
        del given[key]
    else:
        given[key] = _changed(given[key], material)
    return given
