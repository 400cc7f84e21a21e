"""The suite `identity`, small: all servers are asked for the same, and each shows what it is there for."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from pyarrow import flight
from rich.console import Console

from fastflight_benchmark import output
from fastflight_benchmark.options import Options
from fastflight_benchmark.peers.constant import ConstantServer
from fastflight_benchmark.suites import identity

TINY = identity.Scope(connections=(1,), seconds=0.02, rounds=1)


def test_servers_take_turns_in_an_order_that_turns_around() -> None:
    steps = [step for run in (1, 2) for step in identity.plan(identity.Scope((1, 16), 0.5, rounds=1), run)]
    asked = [
        (round_, server)
        for operation, connections, server, round_ in steps
        if (operation, connections) == ("do_get", 16)
    ]

    assert [server for round_, server in asked if round_ == 1] == [
        server for round_, server in reversed(asked) if round_ == 2
    ]
    assert {server for _, server in asked} == {server for pair in identity.PAIRS for server in pair}


def test_the_least_that_a_token_takes_refuses_who_does_not_show_it() -> None:
    with ConstantServer("grpc://127.0.0.1:0", "secret") as server:
        client = flight.connect(f"grpc://127.0.0.1:{server.port}")
        for shown in ([], [(b"authorization", b"Bearer other")]):
            with pytest.raises(flight.FlightUnauthenticatedError):
                client.get_flight_info(
                    flight.FlightDescriptor.for_command(b""), flight.FlightCallOptions(headers=shown)
                )
        client.close()


def test_what_each_costs_is_held_against_the_same_without_it(tmp_path: Path) -> None:
    path = tmp_path / "identity.csv"
    screen = io.StringIO()

    assert identity.run(Options("unused", True, 1, path, Console(file=screen, width=200)), TINY) == 0

    raw, ratios = pd.read_csv(output.beside(path, "raw")), pd.read_csv(output.beside(path, "ratios"))
    assert set(raw["mode"]) == {server for pair in identity.PAIRS for server in pair}
    assert (raw["requests"] > 0).all()
    assert set(zip(ratios["mode"], ratios["peer"], strict=True)) == set(identity.PAIRS)
    assert "get_flight_info, load by flight-client" in screen.getvalue()
