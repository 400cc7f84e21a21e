"""What a client shows, and to whom not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
import trustme
from pyarrow import flight

from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, Certificate, issued
from fastflight.app.compose import open_server
from fastflight.client import AsyncFastFlightClient, Credentials, FastFlightClient
from fastflight.errors import FastFlightError, Forbidden, RequestError, TransportError, Unauthenticated, UnknownName
from fastflight_benchmark.mock import Mock
from tests.support.servers import config, serving

NOW = datetime.now(UTC)
CA = trustme.CA()
SERVER = CA.issue_cert("127.0.0.1", not_after=NOW + timedelta(days=1))
CLIENT = CA.issue_cert("lab", not_after=NOW + timedelta(days=1))
PEM = CA.cert_pem.bytes()


def pair(certificate: trustme.LeafCert) -> tuple[bytes, bytes]:
    return b"".join(each.bytes() for each in certificate.cert_chain_pems), certificate.private_key_pem.bytes()


@contextmanager
def secured_server(folder: Path, *, client_ca: bool = False) -> Iterator[tuple[str, str]]:
    """A server with TLS: its location, and a token that may read `demo`."""
    entry, token = issued("ada", scopes(["read:demo"]), NOW)
    other, opening = issued("bob", scopes(["read:*"]), NOW)
    book = Book((entry, other), (Certificate("lab", scopes(["session:bench"])),))
    chain, key = pair(SERVER)
    files = {"tokens.json": book.encode(), "server.pem": chain, "server.key": key, "ca.pem": PEM}
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    ca = folder / "ca.pem" if client_ca else None
    settings = config(
        {"demo": "sim:", "bench": "sim:"},
        location="grpc+tls://127.0.0.1:0",
        auth={"tokens": folder / "tokens.json"},
        tls={"cert": folder / "server.pem", "key": folder / "server.key", "client_ca": ca},
    )
    with open_server(settings) as running:
        if not client_ca:
            with FastFlightClient(running.location, credentials=Credentials(opening, PEM)) as client:
                for name in ("demo", "bench"):
                    client.info(name)
        yield running.location, token


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with secured_server(tmp_path_factory.mktemp("access")) as running:
        yield running


def test_both_clients_get_what_their_token_grants(server: tuple[str, str]) -> None:
    location, token = server
    credentials = Credentials(token, PEM)
    with FastFlightClient(location, credentials=credentials) as client:
        assert [(each.name, each.url) for each in client.devices()] == [("demo", "sim:")]
        assert client.read("demo", "/readings.csv").to_arrow().num_rows == 10_000
        for refused in (
            lambda: client.exec("demo", "1"),
            lambda: client.read("demo", "/readings.csv", interrupt=True),
            lambda: client.write("demo", "/x.csv", pa.table({"a": [1]})),
            lambda: client.interact("demo"),
        ):
            with pytest.raises(Forbidden, match="ada may not (exec|write|session) here. Granted: read"):
                refused()

    async def names() -> list[str]:
        async with AsyncFastFlightClient(location, credentials=credentials) as client:
            return [each.name for each in await client.devices()]

    assert asyncio.run(names()) == ["demo"]


@pytest.mark.parametrize("credentials", [Credentials(ca=PEM), Credentials("ff_wrong", PEM)], ids=["none", "wrong"])
def test_without_a_good_token_a_client_is_told_what_to_do(server: tuple[str, str], credentials: Credentials) -> None:
    location, _ = server
    wanted = "this server requires authentication.*--token-file"
    with FastFlightClient(location, credentials=credentials) as client:
        for call in (client.devices, client.recordings, lambda: client.read("demo", "/readings.csv")):
            with pytest.raises(Unauthenticated, match=wanted):
                call()
        assert client.health() == {"status": "serving"}


def test_what_is_wrong_with_tls_is_said_with_what_to_do(server: tuple[str, str]) -> None:
    location, token = server
    plain = location.replace("grpc+tls", "grpc")
    foreign = trustme.CA().cert_pem.bytes()
    trials = [
        (location, Credentials(token, foreign), "certificate is not trusted.*--tls-ca"),
        (location, Credentials(token), "certificate is not trusted.*--tls-ca"),
        (location, Credentials(token, PEM, server_name="other.example"), "certificate is for another name"),
        (plain, Credentials(token), "with grpc:// it may want TLS: use grpc\\+tls://"),
    ]
    with serving() as unencrypted:
        encrypted = unencrypted.location.replace("grpc", "grpc+tls")
        trials.append((encrypted, Credentials(ca=PEM), "the server does not speak TLS. Use grpc://"))
        for at, credentials, said in trials:
            with FastFlightClient(at, credentials=credentials) as client, pytest.raises(TransportError, match=said):
                client.devices()


def test_a_certificate_instead_of_a_token(tmp_path: Path) -> None:
    with secured_server(tmp_path, client_ca=True) as (location, _):
        with FastFlightClient(location, credentials=Credentials(None, PEM, *pair(CLIENT))) as client:
            assert [each.name for each in client.devices()] == ["bench"]
            with pytest.raises(UnknownName, match="demo: no such device. Known: bench"):
                client.read("demo", "/readings.csv")
        with FastFlightClient(location, credentials=Credentials(ca=PEM)) as client:
            with pytest.raises(TransportError, match="it may want a client's certificate"):
                client.devices()


@pytest.mark.parametrize(
    ("location", "credentials", "refused"),
    [
        ("grpc://10.0.0.7:8815", Credentials("ff_x"), "not sent without TLS to another computer. Use grpc\\+tls://"),
        ("grpc://boards.example:8815", Credentials("ff_x"), "not sent without TLS"),
        ("grpc://127.0.0.1:8815", Credentials("ff x"), "this is not a token. Give it as it was printed"),
        ("grpc://127.0.0.1:8815", Credentials("x\n"), "this is not a token"),
        ("grpc+tls://127.0.0.1:8815", Credentials(certificate=b"x"), "certificate and its key go together"),
        ("grpc://127.0.0.1:8815", Credentials(ca=b"x"), "certificates are for TLS"),
    ],
)
def test_what_must_not_be_shown_is_not(location: str, credentials: Credentials, refused: str) -> None:
    with pytest.raises(RequestError, match=refused) as told:
        FastFlightClient(location, credentials=credentials)
    assert "ff" not in str(told.value)


@pytest.mark.parametrize(
    ("own", "other", "may"),
    [
        ("grpc+tls://boards:8815", "grpc+tls://boards:9000", True),
        ("grpc+tls://boards:8815", "grpc://boards:9000", False),
        ("grpc+tls://boards:8815", "grpc+tls://127.0.0.1:9000", False),
        ("grpc://127.0.0.1:8815", "grpc://127.0.0.1:9000", True),
        ("grpc://127.0.0.1:8815", "grpc://[bad", False),
    ],
)
def test_a_token_follows_a_location_to_the_same_host_alone(own: str, other: str, may: bool) -> None:
    assert Credentials("ff_x").may_follow(own, other) == may


def test_a_location_elsewhere_is_not_shown_the_token() -> None:
    seen: list[object] = []

    class Elsewhere(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> None:
            seen.append(ticket)
            raise NotImplementedError

    class Here(flight.FlightServerBase):  # type: ignore[misc]
        def get_flight_info(self, context: object, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
            there = f"grpc://localhost:{elsewhere.port}"
            return flight.FlightInfo(pa.schema([]), descriptor, [flight.FlightEndpoint(b"{}", [there])], -1, -1)

    with Elsewhere("grpc://127.0.0.1:0") as elsewhere, Here("grpc://127.0.0.1:0") as here:
        for credentials, error in ((Credentials("ff_x"), RequestError), (Credentials(), FastFlightError)):
            location = f"grpc://127.0.0.1:{here.port}"
            with FastFlightClient(location, credentials=credentials) as client, pytest.raises(error):
                list(client._connection.parallel_stream(Mock(), 1, True))
        assert len(seen) == 1


def test_nothing_secret_is_in_the_repr() -> None:
    shown = repr(Credentials("ff_secret", b"ca", b"certificate", b"private"))
    assert "ff_secret" not in shown and "private" not in shown
