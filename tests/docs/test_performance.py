"""The tables of the documentation hold the figures of docs/results, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastflight_benchmark import performance_page
from fastflight_benchmark.performance_page import DOCS, PAGE, PAGES, TABLES

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_are_those_of_the_kept_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert performance_page.filled(text) == text


def test_each_table_is_shown_once_and_is_not_empty() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert sorted(re.findall(r"<!-- table: (\S+) -->\n", text)) == sorted(TABLES)
    assert not re.search(r"-->\n<!-- end", text)


def test_results_and_plots_are_those_that_pages_show() -> None:
    plots = set(re.findall(r"!\[[^]]*\]\(results/([^)]+)\)", TEXT))
    kept = {path.name for path in (DOCS / "results").iterdir()} - {"README.md"}
    assert plots == {name for name in kept if name.endswith(".png")}
    listed = (DOCS / "results" / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in listed for name in kept if name.endswith(".json"))
