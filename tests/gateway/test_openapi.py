"""The routes and their OpenAPI description agree: schemathesis asks for what it allows, and for what it forbids."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import serving

# A run takes about half a minute; on a machine that does much else, a few times that.
MOST_SECONDS = 200.0
# JSON Schema does not say what depends on another key or on the board: that is a request for one, and no valid one.
NOT_SAID = "positive_data_acceptance"
# It would run code made by chance, whose exceptions break its answers off, as they are meant to.
RUNS_CODE = "/devices/{device}/exec"
# A session that follows a silent board waits for what it prints.
CONFIG = '[parameters]\n"path.device" = "demo"\n"query.follow" = "false"\n'


@pytest.mark.timeout(MOST_SECONDS + 40)
def test_the_routes_do_what_their_description_says(tmp_path: Path) -> None:
    files = tmp_path / "board"
    files.mkdir()
    (files / "0").write_bytes(b"a,b\n1,2\n")  # the path that is tried first
    (tmp_path / "config.toml").write_text(CONFIG)
    devices = {"demo": f"sim:?files={files}&telemetry=0"}
    with serving(devices=devices, http=("127.0.0.1", 0)) as running:
        ended = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(tmp_path / "config.toml")),
                *("run", f"{running.http}/openapi.json", "--phases", "examples,coverage"),
                *("--exclude-checks", NOT_SAID, "--exclude-path", RUNS_CODE),
                *("--seed", "1", "--max-examples", "8", "--request-timeout", "30", "--no-color", "--warnings", "off"),
            ],
            cwd=tmp_path,  # where it keeps what it found
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=MOST_SECONDS,
            text=True,
        )
    assert ended.returncode == 0, ended.stdout
    assert "Tested: 19" in ended.stdout, ended.stdout
