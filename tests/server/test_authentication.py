"""Who asks over Flight: without a proof, with each kind of it, and with one that does not grant enough."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
import trustme
from pyarrow import flight

from fastflight.access.authenticator import LOOK_SECONDS, Authenticator
from fastflight.access.authority import Authority
from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, Certificate, Token, issued
from fastflight.runtime.admission import Limits
from fastflight.server import Tls
from tests.campaigns.fuzz import protobuf
from tests.support.refusals import refused

from .conftest import SCHEMA, SOON, TrialServer, trial_server

NOW = datetime(2030, 1, 1, tzinfo=UTC)
CA = trustme.CA()
SERVER = CA.issue_cert("127.0.0.1", "localhost")
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass
class TokenDesk:
    """The book of a server under test, as its operator changes it, and the clocks."""

    book: Book = field(default_factory=Book)
    changed: bool = True
    now: float = NOW.timestamp()
    ticks: float = 0.0

    def issue(self, name: str, *granted: str, expires: datetime | None = None) -> str:
        entry, token = issued(name, scopes(granted), NOW, expires)
        self.change(self.book.adding(entry))
        return token

    def change(self, book: Book) -> None:
        self.book, self.changed = book, True
        self.ticks += LOOK_SECONDS

    def read(self) -> bytes | None:
        changed, self.changed = self.changed, False
        return self.book.encode() if changed else None

    def authenticator(self) -> Authenticator:
        return Authenticator(self.read, clock=lambda: self.now, ticks=lambda: self.ticks)


@dataclass
class GuardedServer:
    """A server that wants to know who asks."""

    running: TrialServer
    desk: TokenDesk
    location: str

    @contextmanager
    def client(self, **more: Any) -> Iterator[flight.FlightClient]:
        with flight.FlightClient(self.location, **more) as client:
            yield client


@contextmanager
def guarded(tls: Tls | None = None, limits: Limits | None = None) -> Iterator[GuardedServer]:
    desk = TokenDesk()
    authority = Authority(lambda: ["bench", "demo"])
    more = {} if limits is None else {"limits": limits}
    with trial_server(tls=tls, authenticator=desk.authenticator(), authority=authority, **more) as running:
        scheme = "grpc" if tls is None else "grpc+tls"
        yield GuardedServer(running, desk, f"{scheme}://127.0.0.1:{running.server.port}")


@pytest.fixture(scope="module")
def server() -> Iterator[GuardedServer]:
    with guarded() as started:
        yield started


def showing(authorization: str | None) -> flight.FlightCallOptions:
    headers = [] if authorization is None else [(b"authorization", authorization.encode())]
    return flight.FlightCallOptions(timeout=SOON, headers=headers)


def command(**keys: object) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps({"type": "trial", **keys}))


def put(client: flight.FlightClient, options: flight.FlightCallOptions, **keys: object) -> None:
    writer, _ = client.do_put(command(**keys), SCHEMA, options)
    with writer:
        writer.write_batch(pa.record_batch([pa.array([1], pa.int64())], schema=SCHEMA))
        writer.done_writing()


def exchange(client: flight.FlightClient, options: flight.FlightCallOptions, **keys: object) -> None:
    writer, reader = client.do_exchange(command(**keys), options)
    with writer:
        writer.begin(SCHEMA)
        writer.done_writing()
        reader.read_all()


def act(client: flight.FlightClient, options: flight.FlightCallOptions, name: str, body: bytes = b"") -> list[bytes]:
    return [result.body.to_pybytes() for result in client.do_action(flight.Action(name, body), options)]


def handshake(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
    client.authenticate(Silent(), options)


class Silent(flight.ClientAuthHandler):
    """A handshake that says nothing."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        pass

    def get_token(self) -> bytes:
        return b""


Call = Callable[[flight.FlightClient, flight.FlightCallOptions], object]
EVERY_CALL: dict[str, Call] = {
    "list_flights": lambda client, options: list(client.list_flights(b"", options)),
    "list_flights of a request": lambda client, options: list(client.list_flights(b'{"type": "mock"}', options)),
    "get_flight_info": lambda client, options: client.get_flight_info(command(), options),
    "get_schema": lambda client, options: client.get_schema(command(), options),
    "do_get": lambda client, options: client.do_get(flight.Ticket(b'{"type": "trial"}'), options).read_all(),
    "do_get of nothing": lambda client, options: client.do_get(flight.Ticket(b"nonsense"), options).read_all(),
    "do_put": put,
    "do_exchange": exchange,
    "do_action": lambda client, options: act(client, options, "greet", b'{"name": "ada"}'),
    "do_action unknown": lambda client, options: act(client, options, "no.such"),
    "CancelFlightInfo": lambda client, options: act(client, options, "CancelFlightInfo", b"nonsense"),
    "RenewFlightEndpoint": lambda client, options: act(client, options, "RenewFlightEndpoint", b"nonsense"),
    "list_actions": lambda client, options: list(client.list_actions(options)),
    "handshake": handshake,
}


# What pyarrow's get_schema makes of each of Flight's errors is an OSError.
UNAUTHENTICATED = (flight.FlightUnauthenticatedError, OSError)


def refusal(call: Call, client: flight.FlightClient, authorization: str | None) -> str:
    """The words of a refusal."""
    with pytest.raises(UNAUTHENTICATED) as refused:
        call(client, showing(authorization))
    text = str(refused.value)
    assert "Detail: Unauthenticated" in text
    assert "Traceback" not in text and ".py" not in text and "demo" not in text
    return text.partition(". Detail")[0]


@pytest.mark.parametrize("call", EVERY_CALL.values(), ids=EVERY_CALL.keys())
def test_without_a_proof_every_call_is_refused_in_the_same_words(server: GuardedServer, call: Call) -> None:
    good = server.desk.issue("ada", "read:demo")
    wrong = good[:-4] + ("AAAA" if not good.endswith("AAAA") else "BBBB")
    attempts = [
        None,
        f"Bearer {wrong}",
        f"Bearer {'ff_' + '0' * 16 + '_' + 'A' * 43}",
        "Bearer",
        f"Basic {base64.b64encode(f'bob:{good}'.encode()).decode()}",
        "Basic !!!",
        f"Digest {good}",
        good,
        "x" * 5000,
    ]
    with server.client() as client:
        told = {refusal(call, client, attempt) for attempt in attempts}
    assert len(told) == 1
    assert next(iter(told)).startswith(
        "this server requires authentication, and the request has no valid token or certificate"
    )


def test_an_upload_is_refused_before_it_is_read(server: GuardedServer) -> None:
    with server.client() as client, pytest.raises(flight.FlightUnauthenticatedError):
        put(client, showing(None), device="demo")
    assert server.running.trials.taken == [] and server.running.stats()["started"] == 0


@pytest.mark.parametrize("authorization", [None, "Bearer wrong"])
def test_a_load_balancer_asks_without_a_proof_how_the_server_is(
    server: GuardedServer, authorization: str | None
) -> None:
    with server.client() as client:
        assert act(client, showing(authorization), "health") == [b'{"status": "serving"}']


@pytest.mark.usefixtures("lively")
@pytest.mark.parametrize("ending", ["revoked", "expired", "narrowed"])
def test_a_stream_ends_when_what_it_began_with_holds_no_more(ending: str, mode: str) -> None:
    with guarded() as server, server.client() as client:
        token = server.desk.issue("ada", "read:demo", expires=LATER)
        header = showing(f"Bearer {token}")
        keys = {"type": "trial", "device": "demo", "idle": True, "rows": 1, "mode": mode}
        reader = client.do_get(flight.Ticket(json.dumps(keys)), header)
        assert reader.read_chunk().data.num_rows == 1
        if ending == "revoked":
            server.desk.change(Book())
        elif ending == "expired":
            server.desk.now = LATER.timestamp()
        else:
            (entry,) = server.desk.book.tokens
            other = scopes(["session:demo"])
            server.desk.change(Book((Token(entry.id, entry.name, entry.digest, other, entry.created),)))
        with pytest.raises(flight.FlightUnauthenticatedError):
            while True:
                reader.read_chunk()
        assert server.running.trials.closed.wait(SOON)


def test_an_upload_ends_with_its_next_batch_when_what_it_began_with_holds_no_more(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastflight.runtime.stream.LOOK_SECONDS", 0.0)
    batch = pa.record_batch([pa.array([1], pa.int64())], schema=SCHEMA)
    with guarded() as server, server.client() as client:
        options = showing(f"Bearer {server.desk.issue('ada', 'write:demo')}")
        writer, reader = client.do_put(command(device="demo", mode=mode), SCHEMA, options)
        writer.write_batch(batch)
        assert json.loads(reader.read().to_pybytes()) == {"rows": 1, "bytes": 8}
        server.desk.change(Book())
        writer.write_batch(batch)
        with pytest.raises(flight.FlightUnauthenticatedError):
            while reader.read() is not None:
                pass
            writer.close()
        assert server.running.trials.taken == [1]
        assert server.running.trials.broke_off == ["Unauthenticated"]


def test_streams_are_cancelled_by_whose_they_are() -> None:
    with guarded() as server, server.client() as client:
        ada, bob = (showing(f"Bearer {server.desk.issue(name, 'read:demo')}") for name in ("ada", "bob"))
        root = showing(f"Bearer {server.desk.issue('root', 'admin:*')}")
        keys = json.dumps({"type": "trial", "device": "demo", "idle": True}).encode()
        info = flight.FlightInfo(SCHEMA, command(), [flight.FlightEndpoint(keys, [])], -1, -1)
        message = protobuf.field(1, info.serialize())
        for who, done in ((bob, b"\x08\x03"), (ada, b"\x08\x02"), (root, b"\x08\x02")):
            reader = client.do_get(flight.Ticket(keys), ada)
            reader.read_chunk()
            assert act(client, who, "CancelFlightInfo", message) == [done]
            if done == b"\x08\x03":
                reader.cancel()
            else:
                with pytest.raises(flight.FlightUnavailableError, match="cancelled by CancelFlightInfo"):
                    while True:
                        reader.read_chunk()
            assert server.running.settled()


def test_one_identity_has_its_own_limit_from_wherever_it_asks() -> None:
    with guarded(limits=Limits(per_identity=1, wait_seconds=0)) as server, server.client() as client:
        ada, bob = (showing(f"Bearer {server.desk.issue(name, 'read:demo')}") for name in ("ada", "bob"))
        idle = flight.Ticket(json.dumps({"type": "trial", "device": "demo", "idle": True}))
        first = client.do_get(idle, ada)
        first.read_chunk()
        with refused(flight.FlightUnavailableError, scope="identity", limit=1):
            client.do_get(idle, ada).read_chunk()
        other = client.do_get(idle, bob)
        assert other.read_chunk().data.num_rows
        first.cancel()
        other.cancel()


def pem(certificate: trustme.LeafCert) -> tuple[bytes, bytes]:
    return b"".join(each.bytes() for each in certificate.cert_chain_pems), certificate.private_key_pem.bytes()


def tls(client_ca: trustme.CA | None = None) -> Tls:
    return Tls(*pem(SERVER), None if client_ca is None else client_ca.cert_pem.bytes())


def with_certificate(certificate: trustme.LeafCert | None) -> dict[str, Any]:
    if certificate is None:
        return {"tls_root_certs": CA.cert_pem.bytes()}
    chain, key = pem(certificate)
    return {"tls_root_certs": CA.cert_pem.bytes(), "cert_chain": chain, "private_key": key}


def test_without_a_certificate_of_the_ca_nobody_comes_as_far_as_a_call() -> None:
    with guarded(tls(CA)) as server:
        token = server.desk.issue("ada", "read:demo")
        stranger = trustme.CA().issue_cert("ada@example.org")
        for shown in (with_certificate(None), with_certificate(stranger)):
            with server.client(**shown) as client, pytest.raises(flight.FlightUnavailableError):
                list(client.list_actions(showing(f"Bearer {token}")))


def test_with_both_the_token_says_who_it_is() -> None:
    with guarded(tls(CA)) as server:
        token = server.desk.issue("ada", "read:demo")
        certificate = CA.issue_cert("lab")
        server.desk.change(server.desk.book.adding(Certificate("lab", scopes(["write:demo"]))))
        with server.client(**with_certificate(certificate)) as client:
            put(client, showing(None), device="demo")
            with pytest.raises(flight.FlightUnauthorizedError, match="ada may not write here"):
                put(client, showing(f"Bearer {token}"), device="demo")


def test_many_at_once_are_told_apart(server: GuardedServer) -> None:
    names = [f"user-{number}" for number in range(4)]
    tokens = {name: server.desk.issue(name, "read:demo") for name in names}
    told: dict[str, set[str]] = {name: set() for name in names}

    def ask(name: str) -> None:
        with server.client() as client:
            for _ in range(20):
                with pytest.raises(flight.FlightUnauthorizedError) as refused:
                    act(client, showing(f"Bearer {tokens[name]}"), "stats")
                told[name].add(str(refused.value).partition(" may not")[0].rpartition(" ")[2])

    with server.client() as client:  # one looks at the book; others do not wait for that
        assert list(client.list_actions(showing(f"Bearer {tokens[names[0]]}")))
    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == {name: {name} for name in names}
