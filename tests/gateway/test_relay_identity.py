"""The relay of a server that wants to know who asks: tickets and tokens, and whose line a target is."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from fastflight.gateway import AllowedTargets

from .guarded_gateway import SOON, GuardedGateway, guarding


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := self.request.recv(1 << 16):
                self.request.sendall(data)


class Targets:
    """Two that are devices' lines, and one that is nobody's. They give back what comes."""

    def __init__(self, parts: ExitStack) -> None:
        self.lab, self.secret, self.other = (self._served(parts) for _ in range(3))

    def _served(self, parts: ExitStack) -> str:
        server = parts.enter_context(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        parts.callback(thread.join)
        parts.callback(server.shutdown)
        return f"127.0.0.1:{server.server_address[1]}"


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    with ExitStack() as parts:
        yield Targets(parts)


@pytest.fixture(scope="module")
def guarded(targets: Targets) -> Iterator[GuardedGateway]:
    devices = {targets.lab: "lab-1", targets.secret: "secret"}
    with guarding(relay=AllowedTargets(["127.0.0.1:*"], devices=devices)) as guarded:
        for device, who in (("lab-1", "operator"), ("secret", "other")):  # opens the lines
            assert guarded.ask(who, "GET", f"/devices/{device}/info").status == 200
        yield guarded


def at(target: str) -> str:
    host, _, port = target.rpartition(":")
    return f"/ws/tcp?host={host}&port={port}"


@contextmanager
def relay(guarded: GuardedGateway, who: str, target: str) -> Iterator[ClientConnection]:
    with connect(f"{guarded.ws}{at(target)}&ticket={guarded.ticket(who, 'tcp')}") as ws:
        yield ws


def answers(ws: ClientConnection) -> None:
    ws.send(b"x")
    assert ws.recv(SOON) == b"x"


def end(ws: ClientConnection) -> tuple[int, str]:
    """The close code of a WebSocket, and what its error says."""
    message: str | bytes = b""
    with pytest.raises(ConnectionClosed) as caught:
        while True:
            message = ws.recv(SOON)
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code, json.loads(message)["error"]["what"]


def test_names_together_cannot_take_all_streams(monkeypatch: pytest.MonkeyPatch, targets: Targets) -> None:
    monkeypatch.setattr("fastflight.gateway.relay.relay.MAX_STREAMS", 3)
    devices = {targets.lab: "lab-1", targets.secret: "secret"}
    with guarding({}, AllowedTargets(["127.0.0.1:*"], devices=devices)) as guarded, ExitStack() as open_:
        places = (("other", targets.secret), ("operator", targets.lab), ("other", targets.secret))
        held = [open_.enter_context(relay(guarded, who, target)) for who, target in places]
        for ws in held:
            answers(ws)
        answers(open_.enter_context(relay(guarded, "admin", targets.other)))
        assert end(held[2]) == (4503, "another client has fewer streams, and gets this place")
        with relay(guarded, "operator", targets.lab) as ws:  # now each has one
            assert end(ws) == (4503, "there are 3 relayed streams, as many as there may be")


@pytest.mark.parametrize(
    ("who", "may"),
    [
        ("reader", set()),
        ("listener", set()),
        ("operator", {"lab"}),
        ("other", {"secret"}),
        ("admin", {"lab", "secret", "other"}),
    ],
)
def test_exec_on_a_device_opens_its_line_and_admin_opens_all(
    guarded: GuardedGateway, targets: Targets, who: str, may: set[str]
) -> None:
    reached = set()
    for name in ("lab", "secret", "other"):
        with relay(guarded, who, getattr(targets, name)) as ws:
            if name in may:
                answers(ws)
                reached.add(name)
            else:
                assert end(ws) == (4403, "the relay may not connect there")
    assert reached == may


@pytest.mark.parametrize("ending", ["revoke", "expire"])
def test_streams_end_when_access_ends(ending: str, targets: Targets) -> None:
    devices = {targets.lab: "lab-1"}
    with guarding({}, AllowedTargets(["127.0.0.1:*"], devices=devices)) as guarded, ExitStack() as open_:
        several = [open_.enter_context(relay(guarded, "operator", targets.lab)) for _ in range(2)]
        other = open_.enter_context(relay(guarded, "admin", targets.other))
        for ws in (*several, other):
            answers(ws)
        getattr(guarded, ending)("operator")
        for ws in several:
            assert end(ws)[0] == 4401
        answers(other)
