"""The light client beside `FastFlightClient`, on one server: the same answers, and the same errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastflight.cli.interruptible_client import InterruptibleClient
from fastflight.client.light.client import LightClient
from fastflight.errors import DeviceException, FastFlightError
from tests.support.servers import serving


@pytest.fixture(scope="module")
def location() -> Iterator[str]:
    with serving({"demo": "sim:"}) as running:
        with InterruptibleClient(running.location) as client:
            client.info("demo")  # the board is open from now on
        yield running.location


@pytest.fixture
def clients(location: str) -> Iterator[tuple[LightClient, InterruptibleClient]]:
    with LightClient(location) as light, InterruptibleClient(location) as full:
        yield light, full


READS: list[Callable[[Any], Any]] = [
    lambda client: [each.name for each in client.devices()],
    lambda client: client.ls("demo"),
    lambda client: client.ls("demo", "/", recursive=True),
    lambda client: client.stat("demo", "/readings.csv"),
    lambda client: client.hash("demo", "/readings.csv"),
    lambda client: client.hash("demo", "/readings.csv", limit=100),
    lambda client: client.info("demo")["platform"],
    lambda client: [row["text"] for row in client.exec_rows("demo", "for i in range(3): print(i)")],
    lambda client: sum(1 for _ in client.exec_rows("demo", "for i in range(20_000): print('x' * 40)")),
]


@pytest.mark.parametrize("read", READS)
def test_both_clients_give_the_same(
    clients: tuple[LightClient, InterruptibleClient], read: Callable[[Any], Any]
) -> None:
    light, full = clients
    assert read(light) == read(full)


REFUSED: list[Callable[[Any], Any]] = [
    lambda client: client.ls("nix"),
    lambda client: client.ls("demo", "/nix"),
    lambda client: client.stat("demo", "/nix"),
    lambda client: client.mkdir("nix", "/a"),
    lambda client: client.remove("demo", "/grün: es"),
    lambda client: client.hash("demo", "/nix"),
    lambda client: list(client.exec_rows("demo", "1 / 0")),
]


@pytest.mark.parametrize("call", REFUSED)
def test_both_clients_raise_the_same(
    clients: tuple[LightClient, InterruptibleClient], call: Callable[[Any], Any]
) -> None:
    errors = []
    for client in clients:
        with pytest.raises(FastFlightError) as raised:
            call(client)
        errors.append((type(raised.value), str(raised.value)))
    assert errors[0] == errors[1]


def test_files_are_changed(clients: tuple[LightClient, InterruptibleClient]) -> None:
    light, full = clients
    light.mkdir("demo", "/made")
    light.rename("demo", "/made", "/moved")
    assert full.stat("demo", "/moved").kind == "folder"
    light.remove("demo", "/moved")
    light.reset("demo")
    assert "/moved" not in {entry.path for entry in light.ls("demo")}


def test_code_that_is_left_is_stopped(clients: tuple[LightClient, InterruptibleClient]) -> None:
    light, _ = clients
    rows = light.exec_rows("demo", "import time\nprint(1)\nwhile True: time.sleep(0.01)")
    assert next(rows)["text"] == "1"
    rows.close()
    # The connection goes on, and the board is free.
    assert [row["text"] for row in light.exec_rows("demo", "print(2)")] == ["2"]


def test_a_long_request_is_sent_whole(clients: tuple[LightClient, InterruptibleClient]) -> None:
    light, _ = clients
    code = "x = 0\n" + "x += 1\n" * 15_000 + "print(x)"
    assert [row["text"] for row in light.exec_rows("demo", code)] == ["15000"]


def test_output_before_an_error_arrives(clients: tuple[LightClient, InterruptibleClient]) -> None:
    light, _ = clients
    rows = light.exec_rows("demo", "print('before')\nraise ValueError('no')")
    assert next(rows)["text"] == "before"
    with pytest.raises(DeviceException, match="no"):
        next(rows)
