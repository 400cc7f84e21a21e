"""Authentication over HTTP and WebSocket: no caller gets in without it, or gets more than its scopes allow."""

from __future__ import annotations

import base64
import json
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.support.waiting import until

from .guarded_gateway import SOON, GuardedGateway, guarding


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedGateway]:
    with guarding() as running:
        for device, who in (("lab-1", "operator"), ("secret", "other")):  # opens the lines
            assert running.ask(who, "GET", f"/devices/{device}/info").status == 200
        yield running


ROUTES = [
    ("GET", "/devices"),
    ("GET", "/devices/lab-1"),
    ("GET", "/devices/lab-1/info"),
    ("GET", "/devices/lab-1/files/"),
    ("PUT", "/devices/lab-1/files/x.txt"),
    ("DELETE", "/devices/lab-1/files/main.py"),
    ("POST", "/devices/lab-1/exec"),
    ("POST", "/stream"),
    ("POST", "/tickets"),
    ("POST", "/actions/devices"),
    ("POST", "/actions/health"),
    ("GET", "/recordings"),
    ("GET", "/recordings/lab-1"),
    ("GET", "/devices/lab-1/rows"),
    ("GET", "/cluster"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/nothing/here"),
    ("OPTIONS", "/devices"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_who_shows_nothing_is_told_the_same_everywhere(guarded: GuardedGateway, method: str, path: str) -> None:
    said = guarded.ask("", method, path)
    assert (said.status, said.headers["www-authenticate"]) == (401, 'Bearer realm="fastflight"')
    assert said.json == guarded.ask("", "GET", "/devices/none").json
    assert b"lab" not in said.body and b"sim" not in said.body


@pytest.mark.parametrize(
    "value",
    [
        "Bearer ff_0000000000000000_" + "A" * 43,
        "Bearer x",
        "Basic " + base64.b64encode(b"reader:x").decode(),
        "Digest x",
        "Bearer",
        "\xff",
        "Bearer " + "a" * 5000,
    ],
)
def test_what_proves_nothing_is_told_no_more(guarded: GuardedGateway, value: str) -> None:
    said = guarded.ask("", "GET", "/devices", authorization=value)
    assert (said.status, said.json) == (401, guarded.ask("", "GET", "/devices").json)


def test_content_is_not_read_of_who_shows_nothing(guarded: GuardedGateway) -> None:
    with socket.create_connection(("127.0.0.1", guarded.gateway.port), SOON) as raw:
        raw.sendall(b"PUT /devices/lab-1/files/x HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000000000\r\n\r\n")
        said = b"".join(iter(lambda: raw.recv(65536), b""))  # the answer and the end, and nothing was sent
    assert said.startswith(b"HTTP/1.1 401 Unauthorized\r\n")


@pytest.mark.parametrize("request_line", ["GET /devices", "POST /actions/devices"])
def test_a_proof_after_the_content_is_none(guarded: GuardedGateway, request_line: str) -> None:
    with socket.create_connection(("127.0.0.1", guarded.gateway.port), SOON) as raw:
        raw.sendall(
            f"{request_line} HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
            f"0\r\nauthorization: Bearer {guarded.tokens['reader']}\r\n\r\n".encode()
        )
        said = b"".join(iter(lambda: raw.recv(65536), b""))
    assert said.startswith(b"HTTP/1.1 401 Unauthorized\r\n")


def test_health_says_the_state_alone_and_the_page_itself_wants_no_proof(guarded: GuardedGateway) -> None:
    for who in ("", "admin", ""):
        assert guarded.ask(who, "GET", "/health").json == {"status": "serving"}
    assert guarded.ask("", "GET", "/").status == 200
    assert guarded.ask("", "GET", "/page/page.js").status == 200


def test_basic_with_the_name_is_taken_as_well(guarded: GuardedGateway) -> None:
    for name, status in (("reader", 200), ("operator", 401)):
        pair = base64.b64encode(f"{name}:{guarded.tokens['reader']}".encode()).decode()
        assert guarded.ask("", "GET", "/devices", authorization=f"Basic {pair}").status == status


def test_each_sees_their_own_devices_however_fast_they_ask(guarded: GuardedGateway) -> None:
    for _ in range(3):  # kept answers are found by the second
        for who, names in (("reader", ["lab-1"]), ("other", ["secret"]), ("admin", ["lab-1", "secret"])):
            for said in (guarded.ask(who, "GET", "/devices"), guarded.ask(who, "POST", "/actions/devices")):
                (listed,) = [value for key, value in said.json.items() if key in ("devices", "results")]
                assert [each["name"] for each in listed] == names
    assert guarded.ask("reader", "GET", "/devices").json["devices"][0]["url"] == "sim:"
    etag = guarded.ask("admin", "GET", "/devices").headers["etag"]
    assert guarded.ask("reader", "GET", "/devices", **{"if-none-match": etag}).status == 200


@pytest.mark.parametrize(
    ("who", "method", "path", "status"),
    [
        ("reader", "GET", "/metrics", 403),
        ("reader", "POST", "/actions/stats", 403),
        ("reader", "GET", "/openapi.json", 200),
        ("admin", "GET", "/metrics", 200),
    ],
)
def test_each_gets_what_was_granted(  # for the verbs on devices, at every edge: test_scopes.py
    guarded: GuardedGateway, who: str, method: str, path: str, status: int
) -> None:
    said = guarded.ask(who, method, path)
    assert said.status == status, said.body
    if status == 403:
        assert "secret" not in said.json.get("hint", "")


def test_who_asks_is_told_as_who(guarded: GuardedGateway) -> None:
    (told,) = guarded.ask("operator", "POST", "/actions/identity").json["results"]
    assert told == {"name": "operator", "scopes": ["read,write,session,exec:lab-*"], "cluster": False}


def refused(url: str, **headers: str) -> int:
    with pytest.raises(InvalidStatus) as raised, connect(url, additional_headers=headers):
        pass
    assert b"lab" not in (raised.value.response.body or b"")
    return raised.value.response.status_code


def ended(client: ClientConnection) -> tuple[int | None, list[Any]]:
    """The close code, and the text messages before it."""
    texts = []
    try:
        while True:
            message = client.recv(SOON)
            if isinstance(message, str):
                texts.append(json.loads(message))
    except ConnectionClosed:
        return client.close_code, texts


def test_a_websocket_wants_a_ticket_or_the_header(guarded: GuardedGateway) -> None:
    for path in ("/ws/repl/lab-1", "/ws/fleet", "/ws/none"):
        assert refused(guarded.ws + path) == 401
        assert refused(f"{guarded.ws}{path}?ticket=x.y") == (401 if path == "/ws/none" else 403)
    ticket = guarded.ticket("operator", "repl", type="device.session", device="lab-1")
    with connect(f"{guarded.ws}/ws/repl/lab-1?ticket={ticket}") as client:
        assert "ready" in str(client.recv(SOON))
    assert refused(f"{guarded.ws}/ws/repl/lab-1?ticket={ticket}") == 403
    other = guarded.ticket("operator", "repl", type="device.session", device="lab-1")
    assert refused(f"{guarded.ws}/ws/repl/secret?ticket={other}") == 403
    operator = {"authorization": f"Bearer {guarded.tokens['operator']}"}
    with connect(f"{guarded.ws}/ws/repl/lab-1", additional_headers=operator) as client:
        assert "ready" in str(client.recv(SOON))
    shown = {"authorization": f"Bearer {guarded.tokens['listener']}"}
    with connect(f"{guarded.ws}/ws/repl/lab-1", additional_headers=shown) as client:
        assert ended(client)[0] == 4403
    with connect(f"{guarded.ws}/ws/repl/secret", additional_headers=shown) as client:
        assert ended(client)[0] == 4404


def whole(client: ClientConnection) -> dict[str, Any]:
    """The first message with devices."""
    while True:
        message = json.loads(client.recv(SOON))
        if message["devices"]:
            devices: dict[str, Any] = message["devices"]
            return devices


def test_the_page_shows_each_their_own(guarded: GuardedGateway) -> None:
    with (
        connect(f"{guarded.ws}/ws/fleet?ticket={guarded.ticket('operator', 'fleet')}") as operator,
        connect(f"{guarded.ws}/ws/fleet?ticket={guarded.ticket('other', 'fleet')}") as other,
        connect(f"{guarded.ws}/ws/fleet?ticket={guarded.ticket('reader', 'fleet')}") as reader,
    ):
        assert whole(operator)["lab-1"]["granted"] == ["read", "write", "session", "exec"]
        assert list(whole(other)) == ["secret"]
        seen = whole(reader)["lab-1"]
        assert (seen["url"], seen["granted"]) == ("sim:", ["read"])
        while "points" not in (whole(operator).get("lab-1") or {}):
            pass  # it speaks 20 times a second
        heard = [json.loads(reader.recv(SOON))["devices"] for _ in range(10)]
        assert not any({"points", "line", "rows"} & each.get("lab-1", {}).keys() for each in heard)


def test_the_page_opens_no_line_for_who_may_not_hear_it() -> None:
    with guarding() as guarded:
        with connect(f"{guarded.ws}/ws/fleet?ticket={guarded.ticket('reader', 'fleet')}") as reader:
            assert whole(reader)["lab-1"]["rows"] == 0
            for _ in range(10):
                reader.recv(SOON)
            told = guarded.ask("admin", "GET", "/devices").json["devices"]
        assert {each["name"]: each["open"] for each in told} == {"lab-1": False, "secret": False}


LOST = {"revoked": GuardedGateway.revoke, "expired": GuardedGateway.expire}


@pytest.mark.parametrize("how", LOST)
def test_whose_token_is_good_no_more_is_evicted(how: str) -> None:
    with guarding() as guarded, ExitStack() as parts:
        assert guarded.ask("operator", "GET", "/devices/lab-1/info").status == 200
        request = {"type": "device.session", "device": "lab-1"}
        paths = [
            f"/ws/repl/lab-1?ticket={guarded.ticket('operator', 'repl', **request)}",
            f"/ws/fleet?ticket={guarded.ticket('operator', 'fleet')}",
        ]
        unused = guarded.ticket("operator", "fleet")
        clients = [parts.enter_context(connect(guarded.ws + path)) for path in paths]
        for client in clients:
            client.recv(SOON)
        LOST[how](guarded, "operator")
        # A ticket is what its owner may do, and no longer than they may: a new client is ended, too, or refused.
        try:
            clients.append(parts.enter_context(connect(f"{guarded.ws}/ws/fleet?ticket={unused}")))
        except InvalidStatus as refusal:
            assert refusal.response.status_code == 401
        for client in clients:
            code, texts = ended(client)
            assert (code, texts[-1]["error"]["code"]) == (4401, "access.unauthenticated")
        while guarded.ask("operator", "GET", "/devices").status != 401:
            pass  # the decision about the token is cached for a second


def test_an_upload_of_one_whose_token_is_good_no_more_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("access.authenticator", "runtime.stream"):
        monkeypatch.setattr(f"fastflight.{name}.LOOK_SECONDS", 0.0)
    with guarding() as guarded, socket.create_connection(("127.0.0.1", guarded.gateway.port), SOON) as raw:
        token = guarded.tokens["operator"]
        head = f"PUT /devices/lab-1/files/x.bin HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n"
        raw.sendall(f"{head}content-length: 1000000\r\n\r\n".encode() + bytes(1000))
        until(lambda: guarded.ask("admin", "POST", "/actions/stats").json["results"][0]["open"])
        guarded.revoke("operator")
        while not select.select([raw], [], [], 0.02)[0]:
            raw.sendall(bytes(1000))
        assert raw.recv(65536).startswith(b"HTTP/1.1 401 ")
        assert guarded.ask("reader", "GET", "/devices/lab-1/files/x.bin").status == 404
