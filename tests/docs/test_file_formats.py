"""The files that the page shows become the tables that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastflight.tables import Layout, WholeFile

PAGE = (Path(__file__).parents[2] / "docs" / "file-formats.md").read_text()
EXAMPLES = re.findall(r"```(csv|json)\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("language", "data", "shown"), EXAMPLES)
def test_a_file_becomes_the_table_that_is_shown(language: str, data: str, shown: str) -> None:
    file = WholeFile(Layout("csv" if language == "csv" else "jsonl"), lambda: iter([data.encode()]))
    columns = ", ".join(f"{field.name}: {field.type}" for field in file.schema)
    assert [columns, *filter(None, [file.summary.one_line()])] == shown.splitlines()
    assert sum(batch.num_rows for batch in file.batches()) == file.summary.rows


def test_every_file_of_the_page_is_read() -> None:
    assert len(EXAMPLES) == len(re.findall(r"```(?:csv|json)\n", PAGE)) == 6
