"""Whose boards a listing asks: of those that may be read by who asks, and that can fit, and of no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from pyarrow import flight

from fastflight.access.authenticator import Authenticator
from fastflight.access.authority import Authority
from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, issued
from fastflight.concurrency import Shards
from fastflight.device import Inventory
from fastflight.server import FlightServer
from fastflight.service import Catalog, encode
from fastflight.service.requests import FleetFile
from fastflight.sources import device_actions, device_sources
from fastflight_benchmark import mock

from .conftest import SOON

DEVICES = {"lab-1": "sim:", "lab-2": "sim:", "bench": "sim:"}
GRANTED = {
    "reader": "read:lab-1",
    "writer": "write:*",
    "listener": "session:*",
    "admin": "admin:*",
    "two": "read:lab-*",
    "nobody's": "read:roof",
}


@dataclass
class GuardedBoards:
    """A server that wants to know who asks, and who there is."""

    client: flight.FlightClient
    inventory: Inventory
    options: dict[str, flight.FlightCallOptions] = field(default_factory=dict)

    def listed(self, who: str, criteria: bytes = b"") -> set[str]:
        """What a list_flights shows, as `DEVICE PATH` for files, else the command's bytes."""
        found = self.client.list_flights(criteria, self.options[who])
        return {b" ".join(info.descriptor.path or [info.descriptor.command]).decode() for info in found}

    def asked(self) -> set[str]:
        """The boards that were asked anything, or whose line was opened."""
        return {each.name for each in self.inventory.devices() if each.openings or each.turns or each.is_open}


@pytest.fixture
def guarded() -> Iterator[GuardedBoards]:
    made = {who: issued(who.replace("'", ""), scopes([granted]), datetime.now(UTC)) for who, granted in GRANTED.items()}
    book: list[bytes | None] = [Book(tuple(entry for entry, _ in made.values())).encode()]
    with ExitStack() as parts:
        shards = Shards(1, "test")
        parts.callback(shards.close)
        inventory = parts.enter_context(Inventory(DEVICES, shards=shards))
        shards.start()
        catalog = Catalog()
        for source in (*device_sources(inventory), mock.SOURCE):
            catalog.add(source)
        authority = Authority(inventory.names)
        server = FlightServer(
            catalog,
            device_actions(inventory),
            shards=shards,
            location="grpc://127.0.0.1:0",
            authority=authority,
            authenticator=Authenticator(lambda: book.pop() if book else None),
        )
        parts.callback(server.close, 0)
        client = parts.enter_context(flight.connect(f"grpc://127.0.0.1:{server.port}"))
        options = {
            who: flight.FlightCallOptions(SOON, headers=[(b"authorization", f"Bearer {token}".encode())])
            for who, (_, token) in made.items()
        }
        yield GuardedBoards(client, inventory, options)


@pytest.mark.parametrize(
    ("who", "asked"),
    [
        ("reader", {"lab-1"}),
        ("two", {"lab-1", "lab-2"}),
        # What these may do with a board shows them no file of it.
        ("writer", set()),
        ("listener", set()),
        ("admin", set()),
        ("nobody's", set()),
    ],
)
def test_a_listing_asks_those_boards_alone_that_may_be_read(guarded: GuardedBoards, who: str, asked: set[str]) -> None:
    guarded.listed(who)
    assert guarded.asked() == asked


def test_a_glob_that_names_a_board_asks_no_other(guarded: GuardedBoards) -> None:
    assert guarded.listed("two", b"lab-2/*.csv") == {"lab-2 /readings.csv"}
    assert guarded.asked() == {"lab-2"}


def test_what_was_listed_for_one_is_not_given_to_another(guarded: GuardedBoards) -> None:
    shared = encode(FleetFile(path="/readings.csv")).decode()
    assert shared in guarded.listed("two")
    # Now it is remembered what two boards have.
    for criteria in (b"", b"fleet.file/*"):
        assert shared not in guarded.listed("reader", criteria)
    assert shared in guarded.listed("two", b"fleet.file/*")


@pytest.mark.parametrize("criteria", [b"fleet.file/*", b'{"type": "fleet.file", "path": "/readings.csv"}', b"mock"])
def test_what_is_of_several_boards_asks_those_alone(guarded: GuardedBoards, criteria: bytes) -> None:
    guarded.listed("reader", criteria)
    assert guarded.asked() <= {"lab-1"}


def test_a_fleet_is_described_and_read_from_ones_own(guarded: GuardedBoards) -> None:
    command = b'{"type": "fleet.file", "devices": "*", "path": "/readings.csv"}'
    options = guarded.options["reader"]
    info = guarded.client.get_flight_info(flight.FlightDescriptor.for_command(command), options)
    table = guarded.client.do_get(info.endpoints[0].ticket, options).read_all()
    assert set(table.column("device").to_pylist()) == {"lab-1"}
    assert guarded.asked() == {"lab-1"}
