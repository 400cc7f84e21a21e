"""One short run of each campaign that ends within seconds. The others, and all long runs, are started by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaigns.faulting.stage import SOCKET, Stage
from tests.campaigns.faulting.trial import BAD, FaultTrials, warm_up
from tests.support.commands import run_command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="several campaigns are for Linux")

# Of a fault campaign: together they strike the client, the server, the bridge and the board.
SEED = 4
FAULTS = (0, 5, 7, 9, 10)


@pytest.mark.parametrize(
    "arguments",
    [
        "collectors --every 20",
        "deploy --cuts 2 --seed 3",
        "gaps --rounds 3 --fault kill --fault cut --fault stop --seed 164",
        "kills --runs 2 --seed 1",
        "puts --rounds 1 --seed 4",
    ],
    ids=lambda arguments: str(arguments).partition(" ")[0],
)
def test_a_short_campaign_finds_nothing_wrong(arguments: str) -> None:
    campaign, *options = arguments.split()
    command = [sys.executable, "-m", f"tests.campaigns.{campaign}", *options]
    ended = run_command(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_few_faults_lose_nothing_and_end_typed(tmp_path: Path) -> None:
    warm_up()
    with Stage(tmp_path, SOCKET, tls=True) as stage:
        trials = FaultTrials(stage, SEED, quick=True)
        outcomes = [trials.carry_out(number) for number in FAULTS]
        flaws = trials.finish()
    assert [outcome for outcome in outcomes if outcome.ended in BAD] == []
    assert flaws == []
    assert sum(outcome.struck for outcome in outcomes) > len(FAULTS) / 2
    assert trials.acknowledged > 0
