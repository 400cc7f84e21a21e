"""Kill -9 of the owner of a recorded board: another server goes on, for those who follow and in the recording."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from fastflight.app.local_cluster import NatsServers, nats_servers
from fastflight.client import FastFlightClient
from tests.campaigns.faulting.program import Program
from tests.support.printing_board import HOST, BufferingBoard
from tests.support.waiting import until

FLEET = """
[recordings]
sync_ms = 20

[devices.board]
url = "socket://{host}:{port}"
record = true
"""
SERVERS = ("alpha", "beta")
LINE = re.compile(rb"line (\d+)\.\n")
LINES = 20


@pytest.fixture
def board() -> Iterator[BufferingBoard]:
    with BufferingBoard() as board:
        yield board


@pytest.fixture
def servers(tmp_path: Path, board: BufferingBoard) -> Iterator[dict[str, tuple[Program, str]]]:
    (tmp_path / "fleet.toml").write_text(FLEET.format(host=HOST, port=board.port))
    (tmp_path / "nats").mkdir()
    with ExitStack() as stack:
        nats: NatsServers = stack.enter_context(nats_servers(tmp_path / "nats"))

        def start(name: str) -> tuple[Program, str]:
            options = ["--server", f"grpc://{HOST}:0", "--fleet", str(tmp_path / "fleet.toml")]
            options += ["--recordings", str(tmp_path / name), "--cluster", nats.url, "--cluster-name", name]
            program = Program(name, ["serve", *options], [r"listening on (\S+);"], tmp_path / f"{name}.log", os.environ)
            (location,) = program.start()
            stack.callback(program.kill)
            return program, location

        with ThreadPoolExecutor(len(SERVERS)) as threads:
            found = dict(zip(SERVERS, threads.map(start, SERVERS), strict=True))
        yield found


def owner(client: FastFlightClient) -> str | None:
    (device,) = client.cluster()["devices"]
    return str(device["owner"]) if device["owner"] else None


def lines(text: bytes) -> list[int]:
    """The numbers of the whole lines."""
    return [int(number) for number in LINE.findall(text)]


def recorded(client: FastFlightClient) -> tuple[list[int], int]:
    """The lines of the recording, and in how many places it does not go on. No row is missing otherwise."""
    stream = client.recording("board")
    text, outages = b"", 0
    for batch, note in stream.pieces():
        text += b"".join(batch["data"].to_pylist()) if batch is not None else b""
        outages += note is not None and "gap" in note
    assert stream.missed == (outages, 0)
    return lines(text), outages


def test_a_killed_owner_costs_one_exact_gap_and_no_row_comes_twice(
    servers: dict[str, tuple[Program, str]], board: BufferingBoard
) -> None:
    clients = {name: FastFlightClient(location) for name, (_, location) in servers.items()}
    with ExitStack() as stack:
        for client in clients.values():
            stack.enter_context(client)
        first = str(until(lambda: all(map(owner, clients.values())) and owner(clients["alpha"])))
        (second,) = (name for name in SERVERS if name != first)
        client = clients[second]
        until(lambda: "board" in {each.name for each in client.recordings()} and len(recorded(client)[0]) > LINES)
        session = client.session("board", reconnect=True, flush_ms=0)
        parts = [b""]
        pieces = session.pieces()
        while len(lines(parts[0])) < LINES:
            parts[0] += b"".join(next(pieces)[0]["data"].to_pylist())
        acknowledged, _ = recorded(client)
        servers[first][0].kill()
        while len(parts) == 1 or len(lines(parts[-1])) < LINES:
            batch, note = next(pieces)
            if note is not None and "gap" in note:
                parts.append(b"")
            parts[-1] += b"".join(batch["data"].to_pylist()) if batch is not None else b""
        session.cancel()
        assert owner(client) == second
        again = board.began[-1]
        until(lambda: recorded(client)[0][-1] > again + LINES)
        kept, outages = recorded(client)

    # One gap for those who follow: from the last line that they got to the first that the next owner has read.
    before, after = map(lines, parts)
    assert before == list(range(before[0], before[-1] + 1)) and before[-1] < again
    assert after == list(range(again, again + len(after)))
    # In the recording: all lines that were stored, all that the next owner has read, each once, and one hole between.
    last = max(number for number in kept if number < again)
    assert kept == [*range(kept[0], last + 1), *range(again, kept[-1] + 1)]
    assert kept[0] == 0 and last >= acknowledged[-1] and acknowledged == kept[: len(acknowledged)]
    assert outages == 1
