"""The campaign of failovers, with one kill."""

from __future__ import annotations

from fastflight.app.cluster_demo import demo_cluster
from tests.campaigns.failover import fail_over


def test_another_server_takes_the_board_and_the_session_goes_on() -> None:
    with demo_cluster(2) as cluster:
        run = fail_over(cluster, cluster.boards[0])
    assert run.problem == "" and run.missed > 0
