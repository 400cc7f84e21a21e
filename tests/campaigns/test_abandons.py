"""The short form of the campaign: a few streams that are left in every way, and a check that it would notice."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow.flight as flight

from fastflight_benchmark.spawned import spawned
from tests.campaigns import abandons
from tests.campaigns.abandons import ANSWERS, LEFT, WAYS, ServerHeld, held
from tests.support.waiting import until

SERVER = ("fastflight", "serve", "--server", "grpc://127.0.0.1:0", "--shards", "3")


def test_nothing_is_left_of_streams_that_were_abandoned() -> None:
    # In a process of its own: what starts the processes keeps pipes for as long as it lives.
    script = [sys.executable, "-m", abandons.__name__, "--streams", "25"]
    ended = subprocess.run(script, capture_output=True, text=True, timeout=100)
    # Not by the code it ends with, which is about time, too.
    outcome = json.loads(ended.stdout)
    assert outcome["left"] == dict.fromkeys(LEFT, 0)
    assert outcome["streams"] >= outcome["asked"] == 25


def test_a_client_that_could_not_ask_is_an_error_and_not_waited_for() -> None:
    code = """
import random
from tests.campaigns import abandons

for way in abandons.WAYS:
    try:
        abandons._round("grpc://127.0.0.1:1", random.Random(1), 1, [way])
    except Exception as error:
        print(error)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    said = ended.stdout.splitlines()
    assert [f"a client that was to be {way} ended with 1" in line for way, line in zip(WAYS, said, strict=True)] == [
        True
    ] * len(WAYS)


def test_a_stream_that_is_still_there_is_noticed_and_so_are_the_shards() -> None:
    with spawned(*SERVER) as server, flight.connect(server.location) as client:
        client.do_get(flight.Ticket(json.dumps({"type": "mock", "total_rows": 1}))).read_all()
        before = held(server.pid, client)
        readers = [client.do_get(flight.Ticket(json.dumps({"type": "mock", **ANSWERS[2]}))) for _ in range(6)]

        def all_there() -> ServerHeld | None:  # tasks that begin a stream may be there a little longer
            now = held(server.pid, client)
            wanted = (before.started + 6, 6, before.tasks + 6)
            return now if (now.started, now.streams, now.tasks) == wanted else None

        now = until(all_there)
        assert now is not None and now.threads > before.threads
        (result,) = client.do_action(flight.Action("stats", b""))
        shards = json.loads(result.body.to_pybytes())["shards"]
        assert [shard["name"] for shard in shards] == ["shard-0", "shard-1", "shard-2"]
        # The line of the simulated board is listened to on one of them.
        assert sorted(shard["streams"] for shard in shards) == [2, 2, 3]
        for reader in readers:
            reader.cancel()
