"""The table of what a peer may send: each constant is there, has that value, and is reached by a test that is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.corpus.test_corpus import corpus

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "limits.md").read_text()
ROWS = re.findall(r"^\| `([\w.]+\.MAX_\w+)` \| ([^|]+) \| [^|]+ \| `([^`|]+)` \|$", PAGE, re.MULTILINE)
UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "Mi": 1024**2}
# Whose limits must all be there: what stands between a peer's bytes and everything else.
WHOLE = (
    "service/requests.py",
    "server/incoming.py",
    "server/uploads.py",
    "tables/*.py",
    "device/*.py",
    "transport/url*.py",
)
# A table by another measure, and limits on numbers.
ELSEWHERE = {"tables.schemas.MAX_DIGITS", "tables.columns.MAX_MAGNITUDE"}


@pytest.mark.parametrize(("constant", "value", "test"), ROWS, ids=[row[0] for row in ROWS])
def test_a_limit(constant: str, value: str, test: str) -> None:
    module, _, name = constant.rpartition(".")
    assert getattr(importlib.import_module(f"fastflight.{module}"), name) == meant(value)
    if test.startswith("corpus: "):
        names = {case.name for cases in corpus().values() for case in cases}
        assert test.removeprefix("corpus: ") in names
        return
    path, _, function = test.partition("::")
    content = (ROOT / path).read_text()
    assert f"def {function}(" in content if function else name in content


def test_each_row_of_the_table_is_tried() -> None:
    assert len(ROWS) == len(re.findall(r"^\| `[\w.]*MAX_", PAGE, re.MULTILINE)) > 0


def test_no_limit_is_left_out() -> None:
    known = {row[0] for row in ROWS} | ELSEWHERE
    for pattern in WHOLE:
        paths = list((ROOT / "fastflight").glob(pattern))
        assert paths, pattern
        for path in paths:
            module = f"{path.parent.name}.{path.stem}"
            for name in re.findall(r"^(MAX_\w+) = ", path.read_text(), re.MULTILINE):
                assert f"{module}.{name}" in known, "give it a row in docs/limits.md"


def meant(value: str) -> int:
    if power := re.fullmatch(r"2\^(\d+)", value):
        return 2 ** int(power[1])
    number, _, unit = value.partition(" ")
    return int(number.replace(",", "")) * UNITS[unit]
