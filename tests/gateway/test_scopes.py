"""Any scopes, every request and every action, by Flight, HTTP and WebSocket: what is had is what the table says.

And a device of others is answered as one that nobody has, to the byte. The boards of these devices cannot be reached:
whoever may do something is told that, and whoever is told anything else has had nothing of the board.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from pyarrow import flight
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from fastflight.access.actions import Actions
from fastflight.access.authority import Authority
from fastflight.access.tokens import Book
from fastflight.concurrency import Shard, Shards
from fastflight.device import Inventory
from fastflight.gateway import Backend, Gateway, application, listen
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server import FlightServer
from fastflight.service import Catalog
from fastflight.service.requests import Verb
from fastflight.sources import device_actions, device_sources, recording_actions, recording_source
from fastflight.sources.state_actions import state_actions
from fastflight_benchmark import mock

from ..access import test_authority as access
from ..access.test_authority import REQUESTS
from ..server.test_authentication import TokenDesk

SOON = 60.0
SCHEMA = pa.schema([("data", pa.binary())])
# Nothing listens there.
NOWHERE = "socket://127.0.0.1:9"
DEVICES = {"lab-1": NOWHERE, "lab-2": NOWHERE, "roof": NOWHERE}
# Of the same length, and as unlike all others: what is refused repeats the name.
HIDDEN, ABSENT = "qqqqqqqq", "zzzzzzzz"
GLOBS = ("lab-1", "lab-*", "lab-?", "[!q]*[!z]", "roof", "none", "LAB-1")

# What each takes on the device.
READS = {name: str(verbs["read"]) for name, verbs in REQUESTS.items() if verbs["read"] is not None}
WRITES = {name: str(verbs["write"]) for name, verbs in REQUESTS.items() if verbs.get("write") is not None}
# `stats` is for no device.
ACTIONS = {name: str(verb) for name, verb in access.ACTIONS.items() if isinstance(verb, Verb) and name != "stats"}
KEYS = {
    "device.file": {"path": "/x.csv"},
    "device.exec": {"code": "1"},
    "device.session": {"limit_seconds": 0},
    "fleet.file": {"path": "/x.csv"},
    "file.rename": {"path": "/x", "to": "/y"},
}
KEYS |= {name: {"path": "/x"} for name in ("file.stat", "file.hash", "file.mkdir", "file.remove")}

scope_sets = st.lists(
    st.tuples(
        st.sets(st.sampled_from(["read", "write", "session", "exec", "admin"]), min_size=1), st.sampled_from(GLOBS)
    ),
    min_size=1,
    max_size=4,
)


@dataclass
class FlightAndHttp:
    """One server's two edges, and who its book has."""

    flight: flight.FlightClient
    gateway: Gateway
    inventory: Inventory
    desk: TokenDesk = field(default_factory=TokenDesk)

    def untouched(self, name: str) -> bool:
        """Whether nothing was asked of a board, and nobody wanted to hear it."""
        device = self.inventory.device(name)
        return not (device.turns or device.openings or device.is_open or device.trouble)


@pytest.fixture(scope="module")
def both() -> Iterator[FlightAndHttp]:
    with ExitStack() as parts:
        shards = Shards(1, "test")
        parts.callback(shards.close)
        inventory = parts.enter_context(Inventory({**DEVICES, HIDDEN: NOWHERE}, shards=shards))
        shards.start()
        catalog, registry, desk = Catalog(), StreamRegistry(), TokenDesk()
        for source in (*device_sources(inventory), recording_source(None), mock.SOURCE):
            catalog.add(source)
        authority, authenticator = Authority(inventory.names, inventory.names), desk.authenticator()
        on_devices = [*device_actions(inventory), *recording_actions(None)]
        server = FlightServer(
            catalog,
            on_devices,
            shards=shards,
            location="grpc://127.0.0.1:0",
            registry=registry,
            authority=authority,
            authenticator=authenticator,
        )
        parts.callback(server.close, 0)
        actions = Actions([*state_actions(registry, shards), *on_devices], authority)
        backend = Backend(catalog, actions, registry, shards, authority, authenticator)
        app = application(backend, CollectorRegistry())
        gateway = parts.enter_context(listen(app, Shard("gateway").start(), 0))
        parts.callback(registry.drain)
        client = parts.enter_context(flight.connect(f"grpc://127.0.0.1:{server.port}"))
        assert list(client.do_action("health"))  # connects, for as long as the module lasts
        yield FlightAndHttp(client, gateway, inventory, desk)


@dataclass
class Asker:
    """Who asks, by a token. Each way gives what was answered, without what each answer has of its own."""

    both: FlightAndHttp
    token: str

    @property
    def options(self) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(SOON, headers=[(b"authorization", f"Bearer {self.token}".encode())])

    def by_flight(self, call: Callable[[flight.FlightClient, flight.FlightCallOptions], object]) -> tuple[str, ...]:
        try:
            call(self.both.flight, self.options)
        except (pa.ArrowException, KeyError, OSError) as error:
            told = getattr(error, "extra_info", b"")
            return type(error).__name__, str(error).partition(". gRPC client debug")[0], told.decode()
        return ("granted",)

    def by_http(self, method: str, path: str, content: bytes = b"") -> tuple[str, ...]:
        headers = {"authorization": f"Bearer {self.token}"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.both.gateway.port, timeout=SOON)) as connection:
            connection.request(method, path, content or None, headers)
            answer = connection.getresponse()
            own = {name: value for name, value in answer.headers.items() if name not in BY_CHANCE}
            return str(answer.status), json.dumps(own), answer.read().decode()

    def by_websocket(self, path: str) -> tuple[str, ...]:
        url = f"ws://127.0.0.1:{self.both.gateway.port}{path}"
        heard: list[str] = []
        try:
            with connect(url, additional_headers={"authorization": f"Bearer {self.token}"}) as ws:
                while True:
                    heard.append(str(ws.recv(SOON)))
        except InvalidStatus as refused:
            return str(refused.response.status_code), bytes(refused.response.body or b"").decode()
        except ConnectionClosed as closed:
            assert closed.rcvd is not None
            return str(closed.rcvd.code), closed.rcvd.reason, *heard


# Whether it is the last answer on its connection depends on whether the content had come by then.
BY_CHANCE = ("date", "x-request-id", "connection")


def put(client: flight.FlightClient, options: flight.FlightCallOptions, descriptor: flight.FlightDescriptor) -> None:
    writer, _ = client.do_put(descriptor, SCHEMA, options)
    with writer:
        writer.write_batch(pa.record_batch([pa.array([b"x"])], schema=SCHEMA))
        writer.done_writing()


def talk(client: flight.FlightClient, options: flight.FlightCallOptions, descriptor: flight.FlightDescriptor) -> None:
    writer, reader = client.do_exchange(descriptor, options)
    with writer:
        writer.begin(SCHEMA)
        writer.done_writing()
        reader.read_all()


def every_way(asker: Asker, device: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """What is asked, the verb that it takes, and the answer."""
    for name, verb in (READS | WRITES).items():
        where = {"fleet.file": "devices", "recording": "name"}.get(name, "device")
        request = json.dumps({"type": name, where: device, **KEYS.get(name, {})}).encode()
        ticket, command = flight.Ticket(request), flight.FlightDescriptor.for_command(request)
        verb = READS[name]
        yield f"do_get {name}", verb, asker.by_flight(lambda client, o, t=ticket: client.do_get(t, o).read_all())
        yield f"info {name}", verb, asker.by_flight(lambda client, o, c=command: client.get_flight_info(c, o))
        yield f"/stream {name}", verb, asker.by_http("POST", "/stream", request)
        if name in WRITES:
            yield f"do_put {name}", WRITES[name], asker.by_flight(lambda client, o, c=command: put(client, o, c))
    session = flight.FlightDescriptor.for_command(json.dumps({"type": "device.session", "device": device}))
    yield "do_exchange", "exec", asker.by_flight(lambda client, options: talk(client, options, session))
    yield "/ws/repl", "exec", asker.by_websocket(f"/ws/repl/{device}")
    yield "/ws/plotjuggler", "session", asker.by_websocket(f"/ws/plotjuggler/{device}?limit_seconds=0")
    yield "PUT", "write", asker.by_http("PUT", f"/devices/{device}/files/x.jsonl", b'{"a": 1}')
    yield "GET", "read", asker.by_http("GET", f"/devices/{device}/files/x.csv")
    yield "DELETE", "write", asker.by_http("DELETE", f"/devices/{device}/files/x.csv")
    yield "exec", "exec", asker.by_http("POST", f"/devices/{device}/exec", b'{"code": "1"}')
    yield "info", "read", asker.by_http("GET", f"/devices/{device}/info")
    yield "GET /recordings", "session", asker.by_http("GET", f"/recordings/{device}")
    yield "GET rows", "session", asker.by_http("GET", f"/devices/{device}/rows")
    for name, verb in ACTIONS.items():
        body = json.dumps({"device": device, **KEYS.get(name, {})}).encode()
        action = flight.Action(name, body)
        yield name, verb, asker.by_flight(lambda client, options, a=action: list(client.do_action(a, options)))
        yield f"/actions/{name}", verb, asker.by_http("POST", f"/actions/{name}", body)


def outcome(answer: tuple[str, ...]) -> str:
    """`not there`, `forbidden`, or `had` for everything that only who may is told."""
    text = " ".join(answer)
    if "no such device" in text or "no such recording" in text or "no device has such a name" in text:
        return "not there"
    return "forbidden" if "may not" in text else "had"


def expected(given: list[tuple[set[str], str]], verb: str, device: str, what: str) -> str:
    granted = {each for verbs, glob in given if fnmatchcase(device, glob) for each in verbs}
    if verb in granted:
        return "had"
    seen = any(fnmatchcase(device, glob) and verbs != {"admin"} for verbs, glob in given)
    # A fleet has no device that may not be read, and says so of none.
    return "forbidden" if seen and "fleet.file" not in what else "not there"


@settings(max_examples=8, deadline=None)
@given(scope_sets)
def test_what_is_had_is_what_the_table_says_by_every_edge(
    both: FlightAndHttp, given: list[tuple[set[str], str]]
) -> None:
    asker = Asker(both, both.desk.issue("ada", *(f"{','.join(sorted(verbs))}:{glob}" for verbs, glob in given)))
    for device in ("lab-1", "roof"):
        for what, verb, answer in every_way(asker, device):
            if what == "GET /recordings" or what.endswith("recording"):
                answer = tuple(each.replace("recording", "device") for each in answer)
            assert outcome(answer) == expected(given, verb, device, what), (what, device, answer)
    both.desk.change(Book())


@settings(max_examples=6, deadline=None)
@given(scope_sets)
def test_a_device_of_others_is_one_that_nobody_has(both: FlightAndHttp, given: list[tuple[set[str], str]]) -> None:
    asker = Asker(both, both.desk.issue("ada", *(f"{','.join(sorted(verbs))}:{glob}" for verbs, glob in given)))
    for hidden, absent in zip(every_way(asker, HIDDEN), every_way(asker, ABSENT), strict=True):
        assert outcome(hidden[2]) == "not there", hidden
        assert json.dumps(hidden).replace(HIDDEN, ABSENT) == json.dumps(absent)
    assert both.untouched(HIDDEN)
    both.desk.change(Book())
