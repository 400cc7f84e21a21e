"""The reference is made from the code: it has everything that is there, and nothing else."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import fastflight
import fastflight.client
from fastflight.cli.main import COMMANDS
from fastflight.errors import FastFlightError
from fastflight.runtime.metrics import DEFINITIONS
from tests.docs.site_pages import ALL, DOCS, generator


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    generator("limits_page")
    return generator("reference_pages")


def test_each_command_has_a_section_with_its_options(pages: ModuleType) -> None:
    page = pages.commands_part()
    assert re.findall(r"(?m)^## (\S+)$", page) == list(COMMANDS)
    assert "`--max-streams N`" in page and "variable `FASTFLIGHT_SERVER`" in page


def test_each_request_type_has_its_keys(pages: ModuleType) -> None:
    page = pages.requests_part()
    for kind in pages.request_types():
        section = page.partition(f"\n## {kind.type}\n")[2].partition("\n## ")[0]
        keys = {field.alias or name for name, field in kind.model_fields.items()}
        assert set(re.findall(r"(?m)^\| `(\w+)` \|", section)) == keys


def test_each_error_has_its_code(pages: ModuleType) -> None:
    page = pages.errors_part()
    assert "| `device.file_missing` | &nbsp;&nbsp;&nbsp;&nbsp;`FileMissing` | NOT_FOUND | 404 |" in page
    assert {kind.code for kind in FastFlightError.__subclasses__() if kind.__module__ == "fastflight.errors"} <= set(
        re.findall(r"(?m)^\| `([\w.]+)` \|", page)
    )


def test_each_metric_is_listed(pages: ModuleType) -> None:
    listed = re.findall(r"(?m)^\| `(\w+)` \| \w+ \|", pages.metrics_part())
    assert listed[: len(DEFINITIONS)] == list(DEFINITIONS)
    assert "fastflight_http_answers_total" in listed[len(DEFINITIONS) :]


def test_pages_name_metrics_that_exist(pages: ModuleType) -> None:
    known = set(re.findall(r"(?m)^\| `(\w+)` \|", pages.metrics_part()))
    known |= {"fastflight_benchmark", "fastflight_agent"}  # the folder; a module on boards
    for path in ALL:
        assert set(re.findall(r"\b(fastflight_[a-z_]*[a-z])\b", path.read_text(encoding="utf-8"))) <= known, path


def test_settings_have_types_and_defaults(pages: ModuleType) -> None:
    page = pages.settings_part()
    assert "| `limits.streams` | integer, at least 1 | `256` | restart | Streams in the whole server. |" in page
    assert "| `devices.*.url` | text | **required** | applied | Where the device is: " in page
    assert "`FASTFLIGHT_TOKEN_FILE`" in page


def test_actions_have_the_keys_of_their_bodies(pages: ModuleType) -> None:
    page = pages.actions_part()
    assert "## file.rename" in page and "## CancelFlightInfo" in page
    assert "| `to` |" in page


def test_a_key_without_a_text_and_a_text_without_a_key_are_errors(
    pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = pages.KEYS.read_text(encoding="utf-8")
    monkeypatch.setattr(pages, "KEYS", tmp_path / "keys.toml")
    pages.KEYS.write_text(text.replace("\nlimit_rows = ", "\nlimit_lines = "))
    with pytest.raises(ValueError, match="limit_rows"):
        pages.requests_part()
    pages.KEYS.write_text(f'{text}"limits.colour" = "No such thing."\n')
    with pytest.raises(ValueError, match=r"limits\.colour"):
        pages.settings_part()


def test_the_page_on_python_has_each_public_name() -> None:
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?m)^::: [\w.]+\.(\w+)$", page))
    # A text, one on the page on errors, and those of the module `progress`.
    elsewhere = {"DEFAULT_LOCATION", "IncompleteWarning", "Report", "Resuming", "TreeReport"}
    assert set(fastflight.client.__all__) - elsewhere <= named
    for path in re.findall(r"(?m)^::: ([\w.]+)$", page):
        module, _, name = path.rpartition(".")
        assert (
            importlib.util.find_spec(path if name.islower() and name not in ("traced", "create_server") else module)
            is not None
        )
