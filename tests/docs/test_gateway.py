"""What the page on HTTP shows is what happens, in front of both kinds of server."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.app.compose import open_server
from fastflight.app.settings import ServeSettings

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
SHOWN = "http://127.0.0.1:8000"


@pytest.fixture
def url() -> Iterator[str]:
    with open_server(ServeSettings("grpc://127.0.0.1:0", http=("127.0.0.1", 0))) as running:
        assert running.http is not None
        yield running.http


def test_the_lines_work_as_printed(url: str, tmp_path: Path) -> None:
    (transcript,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    commands = re.split(r"(?m)^\$ ", transcript)[1:]
    assert len(commands) == 10
    for shown in commands:
        command, _, output = shown.partition("\n")
        done = subprocess.run(
            ["bash", "-c", command.replace(SHOWN, url)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.stdout.rstrip("\n"), done.stderr) == (output.rstrip("\n"), ""), command


def test_the_python_that_is_shown_runs(url: str) -> None:
    shown = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for code in shown:
            exec(code.replace(SHOWN, url).replace(SHOWN.replace("http", "ws"), url.replace("http", "ws")), {})
    assert out.getvalue() == "10000\n3\n"


def test_the_script_of_a_page_that_is_shown_runs(url: str) -> None:
    (code,) = re.findall(r"```js\n(.*?)```", PAGE, re.DOTALL)
    node = shutil.which("node")
    with_sockets = [str(node), "--no-warnings", "--experimental-websocket", "-e"]
    if node is None or subprocess.run([*with_sockets, "WebSocket"], capture_output=True, check=False).returncode:
        pytest.skip("needs Node 20.10 or newer, which has WebSocket")
    done = subprocess.run(
        [*with_sockets, code.replace(SHOWN.replace("http", "ws"), url.replace("http", "ws"))],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.endswith("\n1000 limit reached\n")
