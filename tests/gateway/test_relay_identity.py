"""The relay of a server that wants to know who asks: tickets and tokens, and whose line a target is."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode
from websockets.sync.client import ClientConnection, connect

from fastflight.gateway import AllowedTargets
from fastflight.gateway.relay.relay import MAX_CLIENTS_OF_ONE
from fastflight.protocol.relay import Closed, Opened, Reason, RelayConnection

from .guarded_gateway import SOON, GuardedGateway, guarding


class Targets:
    """Two that are devices' lines, and one that is nobody's."""

    def __init__(self, parts: ExitStack) -> None:
        listeners = [parts.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        self.lab, self.secret, self.other = (f"127.0.0.1:{each.getsockname()[1]}" for each in listeners)


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


@contextmanager
def relay(guarded: GuardedGateway, who: str) -> Iterator[ClientConnection]:
    with connect(f"{guarded.ws}/relay?ticket={guarded.ticket(who, 'relay')}") as ws:
        yield ws


def opened(ws: ClientConnection, target: str) -> bool:
    side = RelayConnection(accepts=False)
    ws.send(side.open(1, target))
    message = ws.recv(SOON)
    assert isinstance(message, bytes)
    (event,) = side.feed(message)
    ws.send(side.close(1))
    if isinstance(event, Closed):
        assert event.reason == Reason.REFUSED and "the relay may not connect there" in event.text
    return event == Opened(1)


def status(guarded: GuardedGateway, query: str = "", **headers: str) -> int:
    with pytest.raises(InvalidStatus) as caught:
        with connect(f"{guarded.ws}/relay{query}", additional_headers=headers):
            pass
    answer = caught.value.response
    assert (answer.status_code == 401) is ("www-authenticate" in answer.headers)
    return answer.status_code


def plain_status(guarded: GuardedGateway, headers: dict[str, str]) -> int:
    """What is said to a handshake that no library would send."""
    sent = {"Upgrade": "websocket", "Connection": "Upgrade", **headers}
    with closing(http.client.HTTPConnection("127.0.0.1", guarded.gateway.port, timeout=SOON)) as connection:
        connection.request("GET", "/relay", headers=sent)
        return connection.getresponse().status


def test_who_shows_nothing_or_nothing_good_is_not_let_in(guarded: GuardedGateway) -> None:
    assert status(guarded) == 401
    assert status(guarded, Authorization="Bearer ff_0000000000000000_" + "x" * 43) == 401
    assert status(guarded, "?ticket=made.up") == 403
    assert status(guarded, f"?ticket={guarded.ticket('admin', 'fleet')}") == 403


def test_a_bad_handshake_is_told_so_only_to_who_may_come_in(guarded: GuardedGateway) -> None:
    shown = {"Authorization": f"Bearer {guarded.tokens['other']}"}
    for shows, answer in (({}, 401), (shown, 426)):
        assert plain_status(guarded, {"Sec-WebSocket-Version": "8", **shows}) == answer


def test_one_name_cannot_take_all_connections(guarded: GuardedGateway) -> None:
    shown = {"Authorization": f"Bearer {guarded.tokens['other']}"}
    with ExitStack() as open_:
        for _ in range(MAX_CLIENTS_OF_ONE):
            open_.enter_context(connect(f"{guarded.ws}/relay", additional_headers=shown))
        assert status(guarded, **shown) == 503
        with relay(guarded, "operator"):
            pass


def test_names_together_cannot_take_all_connections(monkeypatch: pytest.MonkeyPatch, targets: Targets) -> None:
    monkeypatch.setattr("fastflight.gateway.relay.relay.MAX_CLIENTS", 4)
    with guarding({}, AllowedTargets(["127.0.0.1:*"])) as guarded, ExitStack() as open_:
        held = [open_.enter_context(relay(guarded, who)) for who in ("other", "operator", "admin", "other")]
        with relay(guarded, "listener"):
            with pytest.raises(ConnectionClosed) as caught:
                while True:
                    message = held[3].recv(SOON)
            assert caught.value.rcvd is not None and caught.value.rcvd.code == CloseCode.TRY_AGAIN_LATER
            assert isinstance(message, bytes)
            (event,) = RelayConnection(accepts=False).feed(message)
            assert isinstance(event, Closed) and (event.stream, event.reason) == (0, Reason.LIMIT)
            shown = {"Authorization": f"Bearer {guarded.tokens['listener']}"}
            assert status(guarded, **shown) == 503  # now each has one
            assert opened(held[2], targets.other)


def test_a_ticket_is_good_once(guarded: GuardedGateway) -> None:
    ticket = guarded.ticket("admin", "relay")
    with connect(f"{guarded.ws}/relay?ticket={ticket}"):
        assert status(guarded, f"?ticket={ticket}") == 403


def test_a_program_may_show_its_token_itself(guarded: GuardedGateway, targets: Targets) -> None:
    shown = {"Authorization": f"Bearer {guarded.tokens['admin']}"}
    with connect(f"{guarded.ws}/relay", additional_headers=shown) as ws:
        assert opened(ws, targets.other)


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
        with relay(guarded, who) as ws:
            if opened(ws, getattr(targets, name)):
                reached.add(name)
    assert reached == may


@pytest.mark.parametrize("ending", ["revoke", "expire"])
def test_whose_proof_holds_no_more_is_put_out(ending: str, targets: Targets) -> None:
    devices = {targets.lab: "lab-1"}
    with guarding({}, AllowedTargets(["127.0.0.1:*"], devices=devices)) as guarded, ExitStack() as open_:
        several = [open_.enter_context(relay(guarded, "operator")) for _ in range(2)]
        other = open_.enter_context(relay(guarded, "admin"))
        assert opened(several[0], targets.lab)
        getattr(guarded, ending)("operator")
        for ws in several:
            with pytest.raises(ConnectionClosed) as caught:
                while True:
                    message = ws.recv(SOON)
            assert caught.value.rcvd is not None and caught.value.rcvd.code == 1008
            assert isinstance(message, bytes)
            (event,) = RelayConnection(accepts=False).feed(message)
            assert isinstance(event, Closed) and (event.stream, event.reason) == (0, Reason.REFUSED)
        assert opened(other, targets.other)
