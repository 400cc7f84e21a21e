"""`get` with a glob for the device."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from fastflight.cli.main import app
from tests.support.servers import serving

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("boards")


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Iterator[Run]:
    """The command line in front of a server with the boards `lab-0` and `lab-1`, and `roof` without a file."""
    for name in ("lab-0", "lab-1", "roof"):
        (folder / name).mkdir(exist_ok=True)
    for at, name in enumerate(("lab-0", "lab-1")):
        (folder / name / "t.csv").write_text(f"time,celsius\n1,{at}.5\n2,{at}.75\n")
    urls = {name: f"sim:?files={folder / name}&telemetry=0" for name in ("lab-0", "lab-1", "roof")}
    with serving(urls) as running:
        environment = {"FASTFLIGHT_SERVER": running.location, "COLUMNS": "120"}
        yield lambda *arguments: CliRunner().invoke(app, arguments, env=environment)


def test_a_glob_over_devices_is_one_table(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "all.parquet"
    result = run("get", "lab-*:/t.csv", "-o", str(file), "--ordered")
    assert (result.exit_code, result.stderr) == (0, "")
    assert pq.read_table(file).to_pylist() == [
        {"device": f"lab-{at}", "time": time, "celsius": at + part}
        for at in (0, 1)
        for time, part in ((1, 0.5), (2, 0.75))
    ]
    same = tmp_path / "all.csv"
    assert run("get", "lab-*:/t.csv", str(same), "--ordered").exit_code == 0
    assert same.read_text().splitlines()[:2] == ["device,time,celsius", "lab-0,1,0.5"]
    assert run("get", "lab-*:/t.csv", "--ordered").stdout == same.read_text()
    assert "4 rows, 3 columns" in run("get", "lab-*:/t.csv", "--head", "9").stdout

    some = tmp_path / "some.parquet"
    result = run("get", "*:/t.csv", "-o", str(some))
    assert result.exit_code == 1
    assert "error: roof:/t.csv: no such file" in result.stderr
    assert pq.read_table(some).num_rows == 4
    told = json.loads(run("get", "*:/t.csv", "--json").stdout)
    assert [failed["device"] for failed in told["failed"]] == ["roof"]

    result = run("get", "lab_*:/t.csv")
    assert result.exit_code == 1
    assert "no device has such a name" in result.stderr
