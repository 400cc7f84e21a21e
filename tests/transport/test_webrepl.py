"""A board's WebREPL: its password, what it refuses, and a simulated board behind it, from files to bridges.

No real board was tried: its server is `tests/support/webrepl.py`.
"""

from __future__ import annotations

import dataclasses
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fastflight.app.device_address import PASSWORD_VARIABLE, device_address
from fastflight.app.local_board import PluggedBoard
from fastflight.errors import RequestError, TransportError
from fastflight.transport import parse_url
from fastflight.transport.webrepl import WebReplAddress
from tests.support.bridged import bridged
from tests.support.ports import open_port
from tests.support.webrepl import BINARY, WebRepl, webrepl
from tests.transport.port_reading import PATIENCE, read_exactly
from tests.transport.webrepl_peers import PASSWORD, webrepl_peer, with_password


@contextmanager
def board(url: str = "sim:?telemetry=0") -> Iterator[WebRepl]:
    """The WebREPL of a simulated board."""
    with bridged(url) as ports:
        line = urlsplit(ports["socket"])
        with socket.create_connection((str(line.hostname), line.port or 0)) as stream, webrepl(PASSWORD, stream) as it:
            yield it


def test_a_wrong_password_is_refused_and_never_shown() -> None:
    with webrepl_peer(True, False) as address:
        assert isinstance(address, WebReplAddress)
        wrong = dataclasses.replace(address, password="wrong-one")
        with pytest.raises(TransportError, match="refuses the password") as refusal:
            open_port(wrong, PATIENCE)
        assert "wrong-one" not in f"{refusal.value}{wrong}"
        open_port(address, PATIENCE).close()


def test_without_a_password_nothing_is_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with pytest.raises(TransportError, match="needs a password"):
            open_port(parse_url(f"ws://127.0.0.1:{listener.getsockname()[1]}"), PATIENCE)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_second_client_is_told_that_there_is_a_first() -> None:
    with webrepl_peer(True, False) as address:
        first = open_port(address, PATIENCE)
        with pytest.raises(TransportError, match="closed the connection") as refusal:
            open_port(address, PATIENCE)
        assert "one client" in refusal.value.hint
        first.write(b"still here", PATIENCE)
        assert read_exactly(first, 10) == b"still here"
        first.close()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 404 Not Found\r\n\r\n", b"SSH-2.0-x\r\n", b"\xff" * 70_000])
def test_what_is_no_webrepl_is_refused(answer: bytes) -> None:
    def serve() -> None:
        with listener.accept()[0] as client:
            client.recv(65536)
            client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(TransportError, match="WebREPL"):
            open_port(with_password(f"ws://127.0.0.1:{listener.getsockname()[1]}"), PATIENCE)
        serving.join()


def test_a_certificate_of_a_stranger_is_refused() -> None:
    with webrepl_peer(True, True) as address, pytest.raises(TransportError, match="certificate"):
        open_port(address, PATIENCE)


def test_where_the_password_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(url: str) -> str:
        address = device_address(url)
        assert isinstance(address, WebReplAddress)
        return address.password

    secret = tmp_path / "secret"
    secret.write_text("from-file\n")
    secret.chmod(0o600)
    monkeypatch.setenv(PASSWORD_VARIABLE, "default")
    monkeypatch.setenv("OTHER", "other")
    assert found("ws://h:8266") == "default"
    assert found("ws://h:8266?password_env=OTHER") == "other"
    assert found(f"wss://h:443?password_file={secret}") == "from-file"
    assert "secret" not in device_address(f"wss://h:443?password_file={secret}").url
    secret.chmod(0o644)
    with pytest.raises(RequestError, match="other users"):
        found(f"ws://h:8266?password_file={secret}")
    for url in (
        "ws://h:8266?password_env=NONE",
        "ws://u:p@h:8266",
        "ws://h:8266?password_env=A&password_file=B",
        "ws://h",
    ):
        with pytest.raises(RequestError):
            found(url)


def test_files_and_code_of_a_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(range(256)) * 40
    (tmp_path / "content").write_bytes(content)
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    with board() as server:
        with closing(PluggedBoard(f"ws://127.0.0.1:{server.port}")) as plugged:
            client = plugged.board()
            assert [row["text"] for row in client.exec("print('é' * 3)")] == ["ééé"]
            client.put_file("/content", tmp_path / "content")
            client.get_file("/content", tmp_path / "back")
        assert BINARY not in server.opcodes
    assert (tmp_path / "back").read_bytes() == content


def test_a_bridge_in_front_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    with board() as server, bridged(f"ws://127.0.0.1:{server.port}", parse=device_address) as ports:
        with closing(PluggedBoard(ports["socket"])) as plugged:
            assert [row["text"] for row in plugged.board().exec("print(6 * 7)")] == ["42"]
