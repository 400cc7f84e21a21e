"""Kills the owner of a board on the network, again and again, and measures until another server has the board.

`python -m tests.campaigns.failover --runs 10` runs a cluster of three NATS servers and three fastflight servers, all of
them processes of their own. In each run a client follows a board's live session through a server that does not own it.
Then the owner gets SIGKILL. Reported are the seconds until another server says that it owns the board, and until the
client has the next line.

Each line of a board has the time at which the board printed it, by its own clock, at a fixed rate. So the lines that
are missing can be counted. There must be exactly one `gap` note, at the place where lines are missing, and no line
may come twice. Ends with exit code 1 if something did not hold, or if a board was away for 6 s or longer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from fastflight.app.local_cluster import TELEMETRY, DemoCluster, DemoServer, demo_cluster
from fastflight.client import FastFlightClient
from tests.campaigns import engine

LIMIT_SECONDS = 6.0
BOARDS = 6
# Lines that are read before the kill, and after the session goes on.
LINES = 5
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Failover:
    """One run: seconds since the kill, and how many lines are missing: in one place, if `problem` is empty."""

    owned: float
    followed: float
    missed: int
    problem: str


@dataclass(slots=True)
class FailoverOutcome:
    """All runs. `seconds` has the median and the longest, until another owner and until the next line."""

    runs: list[Failover] = field(default_factory=list)
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not any(run.problem or max(run.owned, run.followed) >= LIMIT_SECONDS for run in self.runs)


def fail_over(cluster: DemoCluster, board: str) -> Failover:
    """Kill the owner of `board` while a client follows it through another server."""
    running = list(cluster.servers.values())
    owner = cluster.servers[_owner(running[0], board)]
    other = next(server for server in running if server is not owner)
    with FastFlightClient(other.location) as client, ThreadPoolExecutor(1) as pool:
        session = client.session(board, format="lines", reconnect=True, flush_ms=0)
        pieces = session.pieces()
        before: list[str] = []
        after: list[str] = []
        while len(before) < LINES:
            before += next(pieces)[0]["text"].to_pylist()
        owner.process.kill()
        killed = time.monotonic()
        owned = pool.submit(_until_owned, other, board, owner.name)
        outages, followed = 0, 0.0
        while len(after) < LINES:
            batch, note = next(pieces)
            outages += note is not None and "gap" in note
            (after if outages else before).extend(batch["text"].to_pylist())
            followed = followed or (time.monotonic() - killed if after else 0.0)
        session.cancel()
        seconds = owned.result() - killed
    problem = "" if outages == 1 else f"{outages} outages"
    # The numbers of the lines, by the board's own clock. The first and the last line of a part may be cut off.
    ticks = [[round(json.loads(line)["ms"] * TELEMETRY / 1000) for line in part[1:-1]] for part in (before, after)]
    if any(later - earlier != 1 for part in ticks for earlier, later in pairwise(part)):
        problem = f"lines are missing elsewhere, or are there twice: {ticks}"
    return Failover(seconds, followed, ticks[1][0] - ticks[0][-1] - 1, problem)


def _owner(server: DemoServer, board: str) -> str:
    seen = server.status()
    assert seen is not None, f"{server.name} does not answer"
    return str(next(each["owner"] for each in seen["devices"] if each["name"] == board))


def _until_owned(server: DemoServer, board: str, before: str) -> float:
    """Return when another server than `before` has the board, as `server` sees it."""
    while _owner(server, board) in (before, "None"):
        time.sleep(LOOK_SECONDS)
    return time.monotonic()


def campaign(folder: Path, asked: argparse.Namespace) -> FailoverOutcome:
    outcome = FailoverOutcome()
    with demo_cluster(BOARDS) as cluster:
        for number in range(asked.runs):
            outcome.runs.append(fail_over(cluster, cluster.boards[number % BOARDS]))
            engine.say(str(outcome.runs[-1]))
            for each in [each for each in cluster.servers.values() if each.process.poll() is not None]:
                cluster.start_server(each.name)
            cluster.wait_settled()
    for name in ("owned", "followed"):
        seconds = [getattr(run, name) for run in outcome.runs]
        outcome.seconds[name] = round(statistics.median(seconds), 2), round(max(seconds), 2)
    return outcome


if __name__ == "__main__":
    engine.command(__doc__, campaign, engine.option("--runs", 10, "how many times an owner is killed"))
