"""One short run of each campaign that ends within seconds. The others, and all long runs, are started by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.commands import run_command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="several campaigns are for Linux")


@pytest.mark.parametrize(
    "arguments",
    [
        "collectors --rounds 25 --seed 1",
        "deploy --rounds 2 --seed 3",
        "faults --line socket --tls --seed 4 --only 1 --only 2 --only 13 --only 28 --only 40",
        "kills --rounds 2 --seed 1",
        "puts --rounds 2 --seed 4",
    ],
    ids=lambda arguments: str(arguments).partition(" ")[0],
)
def test_a_short_campaign_finds_nothing_wrong(arguments: str) -> None:
    command = [sys.executable, "-m", "tests.campaigns", *arguments.split()]
    ended = run_command(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110)
    assert ended.returncode == 0, ended.stdout + ended.stderr
