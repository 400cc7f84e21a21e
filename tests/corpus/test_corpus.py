"""The corpus as a whole: how much there is of it, and that none of it is there twice.

`pytest tests/corpus -s -k corpus` prints the counts by entry point.
"""

from __future__ import annotations

import collections
import hashlib
import importlib
from pathlib import Path

from .case import Case

LEAST = 500


def corpus() -> dict[str, list[Case]]:
    """The cases by entry point."""
    found: dict[str, list[Case]] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if not path.name.startswith("test_") and path.stem not in (
            "__init__",
            "case",
            "broken",
            "conftest",
        ):
            found |= importlib.import_module(f".{path.stem}", __package__).CASES
    return found


def test_the_corpus_is_as_large_as_it_says() -> None:
    counts = {entry: len(cases) for entry, cases in corpus().items()}
    lines = [f"{count:5} {entry}" for entry, count in [*counts.items(), ("in all", sum(counts.values()))]]
    print("\n" + "\n".join(lines))  # noqa: T201  # for whoever asks with -s
    assert sum(counts.values()) >= LEAST


def test_no_case_is_there_twice() -> None:
    for entry, cases in corpus().items():
        names = collections.Counter(case.name for case in cases)
        assert max(names.values()) == 1, (entry, names.most_common(1))
        given = collections.Counter(
            hashlib.sha256(repr(case.given).encode(errors="replace")).digest() for case in cases
        )
        assert max(given.values()) == 1, entry
