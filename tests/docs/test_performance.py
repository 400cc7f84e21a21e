"""docs/performance.md holds the figures of docs/results, and no others in its tables."""

from __future__ import annotations

import re

import pytest

from fastflight_benchmark import performance_page
from fastflight_benchmark.performance_page import DOCS, PAGE, TABLES, Results

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_kept_results() -> None:
    assert performance_page.filled(TEXT, Results(DOCS / "results")) == TEXT


def test_each_table_is_shown_once_and_is_not_empty() -> None:
    names = re.findall(r"<!-- table: (\S+) -->\n", TEXT)

    assert sorted(names) == sorted(TABLES)
    assert not re.search(r"-->\n<!-- end", TEXT)


def test_a_figure_that_was_changed_by_hand_is_found() -> None:
    changed = re.sub(r"\| 190\.73 \|", "| 190.74 |", TEXT, count=1)

    assert changed != TEXT
    assert performance_page.filled(changed, Results(DOCS / "results")) == TEXT


def test_a_table_that_nobody_can_make_is_refused() -> None:
    with pytest.raises(KeyError, match="wishes"):
        performance_page.filled("<!-- table: wishes -->\n<!-- end -->", Results(DOCS / "results"))


def test_the_plots_that_are_shown_are_there() -> None:
    for plot in re.findall(r"!\[[^]]*\]\(([^)]+)\)", TEXT):
        assert (DOCS / plot).is_file(), plot
