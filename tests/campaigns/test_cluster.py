"""The short form of the campaign `cluster`, and that its checks notice what they are for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fastflight.client.stream import Missed
from tests.campaigns.cluster import campaign, summary, table
from tests.campaigns.clustering.boards import CountingBoard
from tests.campaigns.clustering.compacting import damage_found, parts_made
from tests.campaigns.clustering.faults import stops_same
from tests.campaigns.clustering.stage import ClusterStage
from tests.campaigns.clustering.work import Auditor
from tests.campaigns.faulting.talker import Kept


def test_a_board_notices_a_server_that_writes_after_the_next_one() -> None:
    with CountingBoard() as board:
        for number, now in ((1, 0.0), (2, 1.0), (1, 1.05), (2, 2.0)):
            board.wrote(number, b"w", now)
        assert board.overlaps == []
        board.wrote(1, b"late", 2.1)
        assert len(board.overlaps) == 1 and "b'late'" in board.overlaps[0]


def test_rows_that_are_gone_or_others_are_noticed() -> None:
    auditor = Auditor.__new__(Auditor)
    auditor.device, auditor.promised, auditor.kept = "board0", 3, Kept({0: b"a", 1: b"b"})
    rows = {0: b"a", 1: b"b", 2: b"c"}
    assert auditor.compare(rows, [], 0) == []
    # A gap does not excuse a row that was said to be stored.
    assert auditor.compare({0: b"a", 1: b"b"}, [Missed(2, 2, "never written")], 0) == [
        "1 of 3 stored rows of board0 are lost"
    ]
    assert auditor.compare({**rows, 5: b"d"}, [Missed(3, 4, "never written")], 0) == []
    assert "are damaged" in auditor.compare(rows, [Missed(3, 4, "damaged")], 0)[0]
    assert "1 acknowledged rows" in auditor.compare({0: b"a", 2: b"c"}, [], 0)[0]
    assert "the first is 1" in auditor.compare({**rows, 1: b"x"}, [], 0)[0]


def test_what_servers_say_of_compaction_is_counted() -> None:
    log = """
2026-11-26T02:00:00Z [info     ] recordings tidied              compacted=2 swept=0
2026-11-26T02:00:01Z [warning  ] recordings cannot be tidied    error='it has damaged messages' kind=StorageError
2026-11-26T02:00:02Z [warning  ] recordings cannot be tidied    error='NATS is away' kind=TransportError
2026-11-26T02:00:03Z [info     ] recordings tidied              compacted=1 swept=1
"""
    assert parts_made(log) == 3
    assert ["damaged messages" in line for line in damage_found(log)] == [True]


def test_faults_that_stop_the_same_programs_come_one_after_the_other() -> None:
    assert stops_same("server killed", "all servers restarted in turn")
    assert stops_same("disk of a NATS node full", "NATS node stopped for a while")
    assert not stops_same("server killed", "NATS node killed")
    assert not stops_same("server killed", "clock of a server set")


@pytest.mark.skipif(sys.platform != "linux", reason="the campaign is for Linux")
def test_a_few_faults(tmp_path: Path) -> None:
    with ClusterStage(tmp_path, boards=2) as stage:
        outcome = campaign(stage, faults=3, seed=1)
    assert outcome.clean, (summary(outcome), outcome.flaws[:5], outcome.complaints[:5])
    assert "| faults in all | " in table(outcome)
