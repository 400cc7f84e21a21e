"""The notebooks run, and hold the outputs of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.notebooks import FILES, LIVE, MISSING, recording_server, run

Outputs = dict[str, list[dict[str, Any]]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with recording_server(tmp_path / "recordings") as location:
        yield location


def outputs(text: str) -> Outputs:
    """Return the outputs of each cell that has some."""
    return {cell["id"]: cell["outputs"] for cell in json.loads(text)["cells"] if cell.get("outputs")}


def text_of(ones: list[dict[str, Any]]) -> str:
    return "".join("".join(one["text"]) for one in ones if "text" in one)


def kinds(of: Outputs) -> dict[str, list[tuple[str, list[str]]]]:
    return {cell: [(one["output_type"], sorted(one.get("data", ()))) for one in ones] for cell, ones in of.items()}


def ran(server: str, folder: Path, notebook: Path) -> Outputs:
    done = run(server, folder, notebook)
    assert done.returncode == 0, done.stderr[-3000:]
    new = outputs(done.stdout)
    kept = outputs(notebook.read_text(encoding="utf-8"))
    assert kinds(kept) == kinds(new), "run python -m tests.docs.notebooks"
    return new


def test_the_notebook_on_files(server: str, tmp_path: Path) -> None:
    new = ran(server, tmp_path, FILES)
    assert "image/png" in new["cell-plot"][0]["data"]
    assert "<progress" in "".join(new["cell-bar"][0]["data"]["text/html"])


def test_the_live_notebook_draws_what_arrives_and_what_was_recorded(server: str, tmp_path: Path) -> None:
    new = ran(server, tmp_path, LIVE)
    assert ">demo</td>" in "".join(new["live-01"][0]["data"]["text/html"])
    assert "'limit reached'" in new["live-03"][-1]["data"]["text/plain"]
    # One picture that was drawn anew, not one for each batch; and one of yesterday.
    assert [sorted(one["data"]) for one in (*new["live-05"], *new["live-13"])] == [["image/png", "text/plain"]] * 2
    assert re.fullmatch(r"demo: \d+ lines, 0 gaps, limit reached", "".join(new["live-05"][0]["data"]["text/plain"]))
    assert '<progress style="width: 20em" max="1" value="1">' in "".join(new["live-07"][0]["data"]["text/html"])
    assert re.search(r"by the board's: \d+ ms", text_of(new["live-09"]))
    # A line is rejected if it may be incomplete: the first one, and the one behind the gap.
    assert text_of(new["live-11"]) == f"yesterday {24 * 60 - len(MISSING) - 2} rows, 1 gaps\n"
