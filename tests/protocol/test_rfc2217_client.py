"""The client's side of RFC 2217, in conversation with servers that stand in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from fastflight.errors import ProtocolError, TransportError, TransportTimeout
from fastflight.protocol.conversation import Conversation, Receive, Send
from fastflight.protocol.rfc2217 import (
    LINE_NAMES,
    SERVER,
    ModemState,
    NotifyModem,
    Purge,
    Setting,
    Signature,
    Suspend,
    encode,
)
from fastflight.protocol.rfc2217_client import MAX_UNREAD_BYTES, Request, Rfc2217Client
from fastflight.protocol.rfc2217_server import Event, Rfc2217Server
from fastflight.protocol.telnet import Option, TelnetCode, TelnetData

T = TypeVar("T")

AT_FIRST: dict[str, Any] = {"baud": 9600, "data_bits": 8, "parity": "N", "stop_bits": 1.0}
QUESTIONS: list[Request] = [Setting(name, None) for name in LINE_NAMES]
DONT_COM_PORT = bytes([0xFF, TelnetCode.DONT, Option.COM_PORT])


def obliging(server: Rfc2217Server, event: Event) -> None:
    """Does all that it is asked, from 9600 8N1 on."""
    match event:
        case Setting(name, value):
            server.answer(Setting(name, AT_FIRST.get(name) if value is None else value))
        case Purge():
            server.answer(event)
        case NotifyModem():
            server.notify_modem(cts=True, dsr=False, ri=False, cd=False, force=True)


class Exchange:
    """Carries conversations of `client` out with a server in memory. `log` is the steps, `asked` what it heard."""

    def __init__(self, react: Callable[[Rfc2217Server, Event], None] = obliging) -> None:
        self.client = Rfc2217Client("here")
        self.server = Rfc2217Server()
        self.log: list[str] = []
        self.asked: list[Event] = []
        self._react = react

    def run(self, conversation: Conversation[T]) -> T:
        try:
            step = next(conversation)
            while True:
                match step:
                    case Send(data):
                        self.log.append("send")
                        self._hear(data)
                        step = conversation.send(b"")
                    case Receive(within):
                        self.log.append("receive")
                        if coming := self.server.take():
                            self.client.feed(coming)
                            self._hear(self.client.take())
                            step = conversation.send(b"")
                        else:
                            step = conversation.throw(TransportTimeout(f"nothing for {within} s"))
        except StopIteration as end:
            result: T = end.value
            return result

    def _hear(self, data: bytes) -> None:
        for event in self.server.feed(data):
            self.asked.append(event)
            self._react(self.server, event)


def opened(react: Callable[[Rfc2217Server, Event], None] = obliging) -> Exchange:
    exchange = Exchange(react)
    exchange.run(exchange.client.open(QUESTIONS, 3.0))
    exchange.log.clear()
    exchange.asked.clear()
    return exchange


def mute(*kinds: str | type) -> Callable[[Rfc2217Server, Event], None]:
    """Does not answer settings of these names, or messages of these types."""
    return lambda server, event: None if getattr(event, "name", type(event)) in kinds else obliging(server, event)


def always_9600(server: Rfc2217Server, event: Event) -> None:
    is_speed = isinstance(event, Setting) and event.name == "baud"
    obliging(server, Setting("baud", 9600) if is_speed else event)


def test_opening_takes_one_round_trip_and_changes_nothing() -> None:
    exchange = Exchange()
    exchange.run(exchange.client.open(QUESTIONS, 3.0))
    assert exchange.log == ["send", "receive"]
    client = exchange.client
    assert client.settings == AT_FIRST
    assert [event for event in exchange.asked if isinstance(event, Setting | Purge)] == QUESTIONS
    assert exchange.server.encode(b"\r") == exchange.client.encode(b"\r") == b"\r"


def test_opening_with_orders() -> None:
    exchange = Exchange()
    exchange.run(exchange.client.open([Setting("baud", 300), Setting("dtr", False)], 3.0))
    assert exchange.log == ["send", "receive"]
    assert exchange.client.settings["baud"] == 300
    assert Setting("dtr", False) in exchange.asked


def test_a_server_that_refuses() -> None:
    client = Rfc2217Client("here")
    conversation = client.open(QUESTIONS, 3.0)
    next(conversation)
    conversation.send(b"")
    client.feed(DONT_COM_PORT)
    with pytest.raises(TransportError, match="here: the server refuses RFC 2217.*socket://") as caught:
        conversation.send(b"")
    assert not isinstance(caught.value, TransportTimeout)


def test_a_server_that_says_nothing() -> None:
    client = Rfc2217Client("here")
    conversation = client.open(QUESTIONS, 3.0)
    next(conversation)
    waits = []
    with pytest.raises(TransportTimeout, match="did not answer whether it speaks RFC 2217"):
        step = conversation.send(b"")
        while True:
            assert isinstance(step, Receive)
            waits.append(step.within)
            step = conversation.throw(TransportTimeout("nothing"))
    assert waits == [0.5, 3.0]


def test_what_a_server_overheard_before_it_agreed_is_said_again() -> None:
    heard: list[Event] = []

    def hard_of_hearing(server: Rfc2217Server, event: Event) -> None:
        heard.append(event)
        if heard.count(event) > 1:
            obliging(server, event)

    exchange = Exchange(hard_of_hearing)
    exchange.run(exchange.client.open([Setting("baud", 300)], 3.0))
    assert exchange.log == ["send", "receive", "receive", "send", "receive"]
    assert exchange.client.settings["baud"] == 300


def test_a_question_may_stay_open() -> None:
    exchange = Exchange(mute("stop_bits"))
    exchange.run(exchange.client.open(QUESTIONS, 3.0))
    assert exchange.client.settings == {"baud": 9600, "data_bits": 8, "parity": "N"}


def test_an_order_may_not() -> None:
    exchange = Exchange(mute("rts", "stop_bits"))
    with pytest.raises(TransportTimeout, match=r"the server did not answer rts=True$"):
        exchange.run(exchange.client.open([*QUESTIONS, Setting("rts", True)], 3.0))


def test_opening_at_a_speed_that_the_server_does_not_take() -> None:
    exchange = Exchange(always_9600)
    with pytest.raises(TransportError, match=r"did not do as it was asked, and answered baud=9600"):
        exchange.run(exchange.client.open([Setting("baud", 12_000_000)], 3.0))


def test_insisting() -> None:
    exchange = opened()
    exchange.run(exchange.client.insist([Setting("baud", 300), Setting("parity", "E")], 3.0))
    assert exchange.log == ["send", "receive"]
    assert [exchange.client.settings[name] for name in ("baud", "parity")] == [300, "E"]


def test_insisting_in_vain_tells_what_is_in_force() -> None:
    exchange = opened(always_9600)
    with pytest.raises(TransportError, match=r"answered baud=9600"):
        exchange.run(exchange.client.insist([Setting("baud", 300), Setting("parity", "E")], 3.0))
    assert [exchange.client.settings[name] for name in ("baud", "parity")] == [9600, "E"]


def test_what_lacks_an_answer_is_named() -> None:
    exchange = opened(mute("dtr"))
    with pytest.raises(TransportTimeout, match=r"did not answer dtr=True$"):
        exchange.run(exchange.client.insist([Setting("dtr", True), Setting("rts", True)], 3.0))


def test_an_answer_that_comes_too_late_is_none_to_the_next_request() -> None:
    exchange = opened()
    client, server = exchange.client, exchange.server

    def answered(*answers: Setting) -> None:
        for answer in answers:
            server.answer(answer)
        client.feed(server.take())

    exchange._react = lambda server, event: None
    with pytest.raises(TransportTimeout, match="did not answer baud"):
        exchange.run(client.insist([Setting("baud", 300)], 3.0))
    insisting = client.insist([Setting("baud", 600)], 3.0)
    assert isinstance(next(insisting), Send)
    assert isinstance(insisting.send(b""), Receive)
    answered(Setting("baud", 300))
    assert client.settings["baud"] == 300
    assert isinstance(insisting.send(b""), Receive)
    answered(Setting("baud", 600))
    with pytest.raises(StopIteration):
        insisting.send(b"")
    assert client.settings["baud"] == 600


def test_what_is_asked_for_again_is_answered_once() -> None:
    """A server that says nothing to the first request may say something to the second."""
    exchange = opened(mute("baud"))
    with pytest.raises(TransportTimeout, match="did not answer baud"):
        exchange.run(exchange.client.insist([Setting("baud", 300)], 3.0))
    exchange._react = obliging
    exchange.run(exchange.client.insist([Setting("baud", 300)], 3.0))
    assert exchange.client.settings["baud"] == 300


def test_what_cannot_be_said_is_a_transport_error() -> None:
    exchange = opened()
    with pytest.raises(TransportError, match=r"cannot say data_bits=9"):
        exchange.run(exchange.client.insist([Setting("data_bits", 9)], 3.0))
    assert not exchange.client.unsent


def test_data_between_answers_keeps_its_place() -> None:
    def talking(server: Rfc2217Server, event: Event) -> None:
        obliging(server, event)
        if isinstance(event, Setting) and event.name == "baud":
            exchange.client.feed(server.take() + server.encode(b"\xff board "))

    exchange = opened()
    exchange._react = talking
    exchange.client.feed(exchange.server.encode(b"the"))
    exchange.run(exchange.client.insist([Setting("baud", 300)], 3.0))
    exchange.client.feed(exchange.server.encode(b"talks"))
    assert exchange.client.unread
    assert exchange.client.read() == b"the\xff board talks"
    assert not exchange.client.unread


def test_purging_drops_what_came_before_the_answer() -> None:
    exchange = opened()
    exchange.client.feed(b"old")
    exchange.run(exchange.client.purge(Purge(True, False), 3.0))
    exchange.client.feed(b"new")
    assert exchange.client.read() == b"new"


def test_purging_what_is_unsent_drops_nothing_received() -> None:
    exchange = opened()
    exchange.client.feed(b"kept")
    exchange.run(exchange.client.purge(Purge(False, True), 3.0))
    assert exchange.client.read() == b"kept"


def test_the_modem_lines() -> None:
    exchange = opened()
    assert exchange.run(exchange.client.modem(3.0)) & ModemState.CTS
    assert exchange.log == ["send", "receive"]


def test_modem_lines_that_are_told_only_when_they_change() -> None:
    exchange = opened(mute(NotifyModem))
    with pytest.raises(TransportTimeout, match="does not tell the modem lines"):
        exchange.run(exchange.client.modem(3.0))
    exchange.server.notify_modem(cts=False, dsr=True, ri=False, cd=False)
    exchange.client.feed(exchange.server.take())
    assert exchange.run(exchange.client.modem(3.0)) & ModemState.DSR


def test_a_server_that_floods_instead_of_answering() -> None:
    client = Rfc2217Client("here")
    conversation = client.exchange([Setting("baud", 300)], 3.0)
    next(conversation)
    step = conversation.send(b"")
    with pytest.raises(ProtocolError, match="and no answer"):
        for _ in range(MAX_UNREAD_BYTES // (1 << 20) + 2):
            assert isinstance(step, Receive)
            client.feed(b"x" * (1 << 20))
            step = conversation.send(b"")


def test_flow_control_by_messages() -> None:
    exchange = opened()
    exchange.server.suspend()
    exchange.client.feed(exchange.server.take())
    assert exchange.client.suspended
    exchange.server.resume()
    exchange.client.feed(exchange.server.take())
    assert not exchange.client.suspended


def test_it_says_who_it_is() -> None:
    exchange = opened()
    exchange.client.feed(b"\xff\xfa\x2c" + encode(Signature(), SERVER) + b"\xff\xf0")
    assert exchange.server.feed(exchange.client.take()) == [Signature(b"fastflight")]


def test_a_clients_words_from_a_server_mean_nothing() -> None:
    exchange = opened()
    exchange.client.feed(b"\xff\xfa\x2c\x08\xff\xf0")
    assert not exchange.client.suspended
    assert exchange.server.feed(b"\xff\xfa\x2c\x08\xff\xf0x") == [Suspend(), TelnetData(b"x")]
