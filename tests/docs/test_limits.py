"""The page on limits has the defaults of the code, and a row for each constant that limits what a peer may send."""

from __future__ import annotations

import re
from dataclasses import asdict
from types import ModuleType

import pytest

from fastflight.runtime.admission import Limits
from tests.docs.site_pages import DOCS, generator


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return generator("limits_page")


def test_each_key_of_the_limits_has_its_default() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \| [^|]*\| (\w+) \|", (DOCS / "limits.md").read_text(encoding="utf-8"))
    assert dict(rows) == {key: f"{value:g}" if value else "none" for key, value in asdict(Limits()).items()}


def test_constants_are_rows_with_their_comments(page: ModuleType) -> None:
    rows = page.limits_part().splitlines()
    assert len(rows) > 100
    assert (
        "| `service.requests.MAX_SEQ` | 2^53 | Sequence numbers are uint64; JSON numbers are exact up to here. |"
        in rows
    )
    assert any(row.startswith("| `gateway.http.connections.IDLE_SECONDS` | 15 s | How long") for row in rows)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("MAX_BYTES", 65536, "64 KiB"),
        ("MAX_BYTES", 2000, "2,000"),
        ("A_SECONDS", 0.5, "0.5 s"),
        ("MAX_SEQ", 2**53, "2^53"),
    ],
)
def test_values_have_units(page: ModuleType, name: str, value: float, shown: str) -> None:
    assert page.formatted(name, value) == shown
