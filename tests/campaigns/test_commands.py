"""Campaigns as they are started: `python -m tests.campaigns.NAME`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

SOON = 30.0


def started(campaign: str, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.campaigns.{campaign}", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(environment or {})},
    )


@pytest.mark.parametrize("campaign", ["faults", "transfer_faults"])
def test_a_campaign_explains_itself(campaign: str) -> None:
    with started(campaign, "--help") as process:
        said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "--seed" in said


@pytest.mark.skipif(sys.platform != "linux", reason="the campaign is for Linux")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_campaign_that_is_stopped_ends_what_it_started(stop: signal.Signals, tmp_path: Path) -> None:
    if signal.getsignal(stop) is signal.SIG_IGN:
        pytest.skip("what these tests are started to ignore, campaigns do, too")
    with started("server_kills", "--runs", "1000", environment={"TMPDIR": str(tmp_path)}) as process:
        campaign = psutil.Process(process.pid)
        while not (servers := campaign.children()):
            assert process.poll() is None
        process.send_signal(stop)
        process.communicate(timeout=SOON)
    assert not psutil.wait_procs(servers, timeout=SOON)[1]
    assert list(tmp_path.iterdir()) == []
