"""What people write wrong: `settings` has it. The texts go to them, so a path that they gave may stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastflight.app.overlay import read_config
from fastflight.transport import parse_url

from . import settings
from .case import Case, check, each

HERE = "grpc://127.0.0.1:0"


@each(settings.URLS)
def test_a_device_url(case: Case) -> None:
    check(case, parse_url)


@each(settings.FLEETS)
def test_a_fleet_file(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("fleet.toml")
    path.write_bytes(case.given)
    check(case, lambda _: read_config(HERE, [], path))


@each(settings.OPTIONS)
def test_an_option(case: Case) -> None:
    name, text = case.given
    match name:
        case "location":
            check(case, lambda _: read_config(text, [], None))
        case "http":
            check(case, lambda _: read_config(HERE, [], None, http=text))
        case "device":
            check(case, lambda _: read_config(HERE, [text], None))
        case _:
            check(case, lambda _: read_config(HERE, [], None, http="0", origins=[text]))
