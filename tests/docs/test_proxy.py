"""The files of docs/proxy as they stand, in a real nginx: what they let through to a server, and what they refuse."""

from __future__ import annotations

import getpass
import gzip
import os
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
import trustme
from pyarrow import flight
from websockets.sync.client import connect

from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, issued
from fastflight.client import Credentials, FastFlightClient
from fastflight.service.requests import DeviceSession
from fastflight.service.wire import encode
from tests.support.commands import FASTFLIGHT, Command
from tests.support.waiting import until

PROXY = Path(__file__).parents[2] / "docs" / "proxy"
CONFIGURATION = (PROXY / "nginx.conf").read_text()
HTTP_CONFIGURATION = (PROXY / "nginx-http.conf").read_text()
SERVICE = "/arrow.flight.protocol.FlightService/"
SECONDS = 30.0
# What a message of zeros unpacks to, and far less than that: what a server may take meanwhile.
UNPACKED, ROOM = 256 << 20, 64 << 20
CALLS = int(re.findall(r"limit_conn flight_calls (\d+);", CONFIGURATION)[0])

# Around the shipped file: a process that a test can own. The log says what a client sent, and what came of it.
AROUND = """
daemon off; worker_processes 1; user {user}; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    log_format told '$request_uri encoding=$http_grpc_encoding accepts=$http_grpc_accept_encoding '
                    'upstream=$upstream_addr status=$upstream_http_grpc_status$upstream_trailer_grpc_status end';
    access_log {folder}/access.log told;
    client_body_temp_path {folder}/bodies; proxy_temp_path {folder}/a; fastcgi_temp_path {folder}/b;
    uwsgi_temp_path {folder}/c; scgi_temp_path {folder}/d;
    include {folder}/fastflight.conf;
}}
"""


@dataclass
class Proxied:
    """nginx at `port`, in front of a server process."""

    port: int
    server: subprocess.Popen[str]
    ca: bytes
    token: str
    log: Path

    @property
    def url(self) -> str:
        return f"grpc+tls://127.0.0.1:{self.port}"

    def client(self) -> FastFlightClient:
        return FastFlightClient(self.url, credentials=Credentials(token=self.token, ca=self.ca))

    def peak(self) -> int:
        """The most memory that the server ever had."""
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) << 10

    def channel(self, **options: object) -> grpc.Channel:
        return grpc.secure_channel(
            f"127.0.0.1:{self.port}",
            grpc.ssl_channel_credentials(self.ca),
            options=[("grpc.max_send_message_length", -1)],
            **options,
        )

    def logged(self, path: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if line.startswith(path)]


@contextmanager
def running_nginx(nginx: str, folder: Path, upstream: str, shipped: str = CONFIGURATION) -> Iterator[int]:
    """The shipped configuration with another address for each line marked SET; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        text = re.sub(r"127\.0\.0\.1:(8816|8000);", f"{upstream};", shipped)
        text = re.sub(r"listen \d+ ssl", f"listen 127.0.0.1:{port} ssl", text).replace("/etc/fastflight", str(folder))
        assert text.count(str(folder)) == 2 and upstream in text and f":{port} ssl" in text
        (folder / "fastflight.conf").write_text(text)
        (folder / "nginx.conf").write_text(AROUND.format(folder=folder, user=getpass.getuser()))
        # It takes over a socket that listens already, as when one nginx follows another: no port is lost to others.
        running = subprocess.Popen(
            [nginx, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")],
            env={**os.environ, "NGINX": f"{listener.fileno()};"},
            pass_fds=[listener.fileno()],
            stderr=subprocess.DEVNULL,
        )
    try:
        yield port
    finally:
        running.terminate()
        running.wait(SECONDS)


def certificates(folder: Path) -> bytes:
    ca = trustme.CA()
    server = ca.issue_cert("127.0.0.1")
    server.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    server.private_key_pem.write_to_path(str(folder / "server.key"))
    return ca.cert_pem.bytes()


@contextmanager
def guarded_server(folder: Path, *options: str) -> Iterator[tuple[Command, str]]:
    """A server process that takes one token; yield it, and the token."""
    token, text = issued("ada", scopes(["read,write,session,exec:*"]), datetime.now(UTC))
    (folder / "tokens.json").write_bytes(Book((token,)).encode())
    command = [*FASTFLIGHT, "serve", "--server", "grpc://127.0.0.1:0", "--tokens", str(folder / "tokens.json")]
    server = Command([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield server, text
    finally:
        server.terminate()
        server.communicate(timeout=SECONDS)


def address_of(server: Command, scheme: str) -> str:
    """Wait until a server listens."""
    assert server.stdout is not None
    line = next(line for line in server.stdout if f"{scheme}://" in line)
    return str(re.findall(rf"listening on {scheme}://([\d.:]+)", line)[0])


@pytest.fixture(scope="module")
def proxied(nginx: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder = tmp_path_factory.mktemp("proxy")
    ca = certificates(folder)
    with guarded_server(folder, "--max-streams-per-device", str(2 * CALLS)) as (server, token):
        with running_nginx(nginx, folder, address_of(server, "grpc")) as port:
            until((folder / "access.log").exists)  # its first reader may come before nginx has opened it
            yield Proxied(port, server, ca, token, folder / "access.log")


def test_a_client_does_everything_through_it(proxied: Proxied, tmp_path: Path) -> None:
    with proxied.client() as client:
        assert "demo" in [device.name for device in client.devices()]
        table = client.read("demo", "/readings.csv").to_arrow()
        assert table.num_rows == 10_000
        # More than a call of one message may have.
        data = os.urandom(1 << 18) * 5
        (tmp_path / "big.bin").write_bytes(data)
        client.put_file("demo", "/big.bin", tmp_path / "big.bin")
        client.get_file("demo", "/big.bin", tmp_path / "back.bin")
        assert (tmp_path / "back.bin").read_bytes() == data
        client.write("demo", "/copy.csv", table)
        assert client.read("demo", "/copy.csv").to_arrow().equals(table)
        assert "42" in str(client.exec("demo", "print(6 * 7)").to_arrow().to_pydict())
        with client.session("demo") as live:
            assert next(iter(live)).num_rows > 0
        with client.interact("demo") as line:
            line.send(b"\r\x03\x03\r")
            line.send(b"print(6 * 7)\r")
            line.read_until(b"\r\n42\r\n")


def test_a_plain_client_logs_in_and_sends_no_encoding(proxied: Proxied) -> None:
    client = flight.FlightClient(proxied.url, tls_root_certs=proxied.ca)
    header = client.authenticate_basic_token("ada", proxied.token)
    listed = list(client.list_flights(b"", flight.FlightCallOptions(headers=[header])))
    client.close()
    assert listed
    line = until(lambda: proxied.logged(f"{SERVICE}ListFlights"))[-1]  # nginx logs a call when it is over
    assert "encoding=- accepts=identity, deflate, gzip" in line


@pytest.mark.parametrize("method", ["DoGet", "GetFlightInfo"])
def test_a_packed_message_is_refused_before_the_server_sees_it(proxied: Proxied, method: str) -> None:
    before, count = proxied.peak(), len(proxied.logged(SERVICE + method))
    with proxied.channel(compression=grpc.Compression.Gzip) as channel:
        call = channel.stream_stream(SERVICE + method)(iter([b"\x0a" + bytes(UNPACKED)]), timeout=SECONDS)
        with pytest.raises(grpc.RpcError) as raised:
            list(call)
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "compressed messages are refused" in raised.value.details()
    line = until(lambda: proxied.logged(SERVICE + method)[count:])[-1]
    assert "encoding=gzip" in line and "upstream=- " in line
    assert proxied.peak() < before + ROOM


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def raw_call(method: str, message: bytes, *more: tuple[str, str]) -> bytes:
    """The bytes of a gRPC call that no client of gRPC would make: the message is flagged as compressed."""
    heads = [(":method", "POST"), (":scheme", "https"), (":authority", "127.0.0.1"), (":path", SERVICE + method)]
    heads += [("te", "trailers"), ("content-type", "application/grpc"), *more]
    block = b""
    for name, value in heads:
        block += bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    data = b"\x01" + len(message).to_bytes(4, "big") + message
    frames = [frame(0, 0, 1, data[at : at + 16_000]) for at in range(0, len(data), 16_000)]
    opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, block)
    return opening + b"".join(frames) + frame(0, 1, 1, b"")


@pytest.mark.parametrize("encodings", [(), ("identity", "gzip"), ("", "gzip")])
def test_the_compressed_flag_alone_unpacks_nothing(proxied: Proxied, encodings: tuple[str, ...]) -> None:
    """Neither without its header, nor with a second one, of which nginx sees the first."""
    packed = gzip.compress(b"\x0a" + bytes(48 << 20))
    assert len(packed) < 60_000  # what may be sent before a peer allows more
    before, count = proxied.peak(), len(proxied.logged(f"{SERVICE}DoGet"))
    context = ssl.create_default_context(cadata=proxied.ca.decode())
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", proxied.port), SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as line,
    ):
        line.sendall(raw_call("DoGet", packed, *(("grpc-encoding", encoding) for encoding in encodings)))
        with line.makefile("rb") as answer:
            ended = False
            while not ended:
                head = answer.read(9)
                answer.read(int.from_bytes(head[:3], "big"))
                # A reset of the stream, or its end with data or a head.
                ended = head[3] == 3 or head[3] in (0, 1) and bool(head[4] & 1)
    told = until(lambda: proxied.logged(f"{SERVICE}DoGet")[count:])[-1]  # written a moment after the answer
    assert "upstream=- " in told or "status=13" in told, told
    assert proxied.peak() < before + (24 << 20)


@pytest.mark.parametrize(
    ("method", "size", "code"),
    [
        (f"{SERVICE}DoGet", 2 << 20, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ("/grpc.health.v1.Health/Check", 0, grpc.StatusCode.UNIMPLEMENTED),
    ],
    ids=["a call of one message with too much", "another method"],
)
def test_a_call_that_does_not_reach_the_server(proxied: Proxied, method: str, size: int, code: grpc.StatusCode) -> None:
    with proxied.channel() as channel, pytest.raises(grpc.RpcError) as raised:
        list(channel.unary_stream(method)(bytes(size), timeout=SECONDS))
    assert raised.value.code() is code


def test_too_many_calls_of_one_address_are_refused(proxied: Proxied) -> None:
    """Over any number of connections; those that are open go on, and a place that is free is given again."""
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {proxied.token}".encode())])
    ticket = flight.Ticket(encode(DeviceSession(device="demo")))
    with ExitStack() as stack:
        clients = [flight.FlightClient(proxied.url, tls_root_certs=proxied.ca) for _ in range(4)]
        for client in clients:
            stack.callback(client.close)
        streams = [clients[number % 4].do_get(ticket, options) for number in range(CALLS)]
        for stream in streams:
            assert isinstance(stream.schema, pa.Schema)
        with pytest.raises(flight.FlightUnavailableError, match="too many calls from this address"):
            assert clients[0].do_get(ticket, options).schema
        assert streams[0].read_chunk().data is not None
        streams[0].cancel()
        freed = None
        while freed is None:
            try:
                freed = clients[1].do_get(ticket, options)
                assert freed.schema
            except flight.FlightUnavailableError:
                freed = None
        for stream in [*streams[1:], freed]:
            stream.cancel()


def test_a_server_that_is_not_there_is_unavailable(nginx: str, tmp_path: Path) -> None:
    ca = certificates(tmp_path)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and never listens
        with running_nginx(nginx, tmp_path, f"127.0.0.1:{closed.getsockname()[1]}") as port:
            client = flight.FlightClient(f"grpc+tls://127.0.0.1:{port}", tls_root_certs=ca)
            with pytest.raises(flight.FlightUnavailableError, match="the server does not answer"):
                list(client.list_flights())
            client.close()


def test_the_page_and_its_sockets_go_through_the_http_proxy(nginx: str, tmp_path: Path) -> None:
    context = ssl.create_default_context(cadata=certificates(tmp_path).decode())
    with guarded_server(tmp_path, "--http", "127.0.0.1:0") as (server, token):
        bearer = {"authorization": f"Bearer {token}"}
        with running_nginx(nginx, tmp_path, address_of(server, "http"), HTTP_CONFIGURATION) as port:
            there = HTTPSConnection("127.0.0.1", port, timeout=SECONDS, context=context)
            with closing(there):
                data = os.urandom(300_000)
                for method, path, content, status in (
                    ("GET", "/health", None, 200),
                    ("PUT", "/devices/demo/files/a.bin", data, 201),
                    ("GET", "/devices/demo/files/a.bin", None, 200),
                ):
                    there.request(method, path, content, bearer)
                    answer = there.getresponse()
                    body = answer.read()
                    assert answer.status == status, body
                assert body == data
            with connect(f"wss://127.0.0.1:{port}/ws/fleet", ssl=context, additional_headers=bearer) as page:
                assert '"type":"all"' in str(page.recv(SECONDS))
