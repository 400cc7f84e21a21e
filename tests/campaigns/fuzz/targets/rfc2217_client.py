"""The client's side of RFC 2217 with any server: it comes to an end, and says what was wrong."""

from __future__ import annotations

from collections.abc import Callable

from fastflight.errors import ProtocolError, TransportError
from fastflight.protocol.conversation import Conversation
from fastflight.protocol.rfc2217 import (
    SERVER,
    Message,
    Purge,
    Setting,
    decode,
    encode,
)
from fastflight.protocol.rfc2217_client import Rfc2217Client
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.random_peer import converse
from tests.campaigns.fuzz.target import Target

ORDERS = (Setting("baud", 115_200), Setting("data_bits", 8), Setting("parity", "N"), Setting("stop_bits", 1.0))
QUESTIONS = (Setting("baud", None), Setting("data_bits", None), Setting("parity", None), Setting("stop_bits", None))
CONVERSATIONS: tuple[Callable[[Rfc2217Client], Conversation[object]], ...] = (
    lambda client: client.open(QUESTIONS, 3.0),
    lambda client: client.open(ORDERS, 3.0),
    lambda client: client.exchange([Setting("dtr", True), Setting("rts", False)], 3.0),
    lambda client: client.insist([Setting("baud", 9600)], 3.0),
    lambda client: client.purge(Purge(True, True), 3.0),
    lambda client: client.modem(3.0),
)
AGREES = b"\xff\xfd\x2c\xff\xfd\x00\xff\xfb\x00\xff\xfd\x03\xff\xfb\x03"
MESSAGES: tuple[Message, ...] = (
    *ORDERS,
    Setting("baud", 9600),
    Setting("dtr", True),
    Setting("rts", False),
    Purge(True, True),
)


def run(data: bytes) -> None:
    material = Material(data)
    client = Rfc2217Client("here")

    def server(sent: bytes, material: Material) -> bytes:
        choice = material.byte()
        if choice & 1:
            return AGREES
        if choice & 2:
            return b"\xff\xfa\x2c" + encode(material.pick(MESSAGES), SERVER) + b"\xff\xf0"
        return b"\xff\xfa\x2c" + bytes([100 + choice % 16]) + material.take(4) + b"\xff\xf0"

    def fed(conversation: Conversation[object]) -> Conversation[object]:
        """Whoever carries it out feeds the client with what comes."""
        try:
            step = next(conversation)
            while True:
                try:
                    answer = yield step
                except Exception as error:
                    step = conversation.throw(error)
                else:
                    client.feed(answer)
                    client.read()
                    step = conversation.send(answer)
        except StopIteration as end:
            return end.value

    while material:
        try:
            converse(fed(material.pick(CONVERSATIONS)(client)), material, server)
        except (TransportError, ProtocolError) as error:
            assert str(error)
    if (message := decode(data, SERVER)) is not None:
        assert decode(encode(message, SERVER), SERVER) == message


TARGET = Target(
    run,
    seeds=(
        b"\x00\x01\x01\x01\x02\x00\x01\x02\x01\x01\x02\x02\x01\x02\x03",
        b"\x01\x01\x01\x01\x02\x00\x01\x02\x01\x01\x02\x02\x01\x02\x03\x02\x01\x02\x05\x01\x02\x06",
        b"\x04\x01\x02\x07\x05\x01\x08\x07\xf0\x80some text",
        b"\x03\x7f\xff\xfe\x2c\xff\xfa\x2c\x65\x00\x00\x25\x80\xff\xf0\xff\xfa\x2c\x6c\xff\xf0\xff\xfa\x2c\x64\xff\xf0",
    ),
)
