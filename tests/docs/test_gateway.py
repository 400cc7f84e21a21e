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

from tests.support.servers import serving

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
SHOWN = "http://127.0.0.1:8000"


@pytest.fixture
def url() -> Iterator[str]:
    with serving(http=("127.0.0.1", 0)) as running:
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
            exec(code.replace(SHOWN, url), {})
    assert out.getvalue() == "10000\n"


def test_the_script_of_a_page_that_is_shown_runs(url: str) -> None:
    (code,) = re.findall(r"```js\n(.*?)```", PAGE, re.DOTALL)
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node 20 or newer")
    module = [node, "--no-warnings", "--input-type=module", "-e", code.replace(SHOWN, url)]
    done = subprocess.run(module, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    numbers = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert len(numbers) == 3 and numbers == sorted(set(numbers))  # a line in two reads leaves a number out
