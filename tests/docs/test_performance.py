"""The tables of the documentation hold the figures of docs/results, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastflight_benchmark import performance_page
from fastflight_benchmark.performance_page import DOCS, PAGE, PAGES, TABLES, Results

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_are_those_of_the_kept_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert performance_page.filled(text, Results(DOCS / "results")) == text


def test_each_table_is_shown_once_and_is_not_empty() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = re.findall(r"<!-- table: (\S+) -->\n", text)
    kept = {path.stem for path in (DOCS / "results").glob("*.csv")}

    # The table of agent.md is older than the kept results: it is made from them as soon as there are some.
    assert sorted(names) == sorted(TABLES.keys() - ({"beside"} - kept))
    assert not re.search(r"-->\n<!-- end", text)


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
