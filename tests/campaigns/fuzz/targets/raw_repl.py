"""The raw REPL with any board: each conversation ends, with what it asked for or with a documented error."""

from __future__ import annotations

from collections.abc import Callable

from fastflight.errors import BusyError, DeviceError, ProtocolError, TransportError
from fastflight.protocol.conversation import Conversation, on_silence, ticking
from fastflight.protocol.raw_repl import BANNER, RawRepl, split_output
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.random_peer import board, converse
from tests.campaigns.fuzz.target import Target

CODE = b"for i in range(10):\n print(i, 'and some text that is longer than the smallest ring holds')\n"


def followed(repl: RawRepl, code: bytes) -> Conversation[bytes]:
    """Run a user's code, and deliver its output."""
    yield from repl.submit_in_program(code)
    return (yield from repl.deliver(5.0))


CONVERSATIONS: tuple[Callable[[RawRepl], Conversation[object]], ...] = (
    lambda repl: repl.enter(),
    lambda repl: repl.recover(),
    lambda repl: repl.enter(attempts=3),
    lambda repl: repl.execute(b"1", 5.0),
    lambda repl: repl.execute(CODE, 5.0),
    lambda repl: followed(repl, CODE),
    lambda repl: ticking(followed(repl, b"1"), 0.1),
    lambda repl: repl.soft_reset(),
    lambda repl: repl.leave(),
    lambda repl: on_silence(repl.execute(CODE, 5.0), 0.5, repl.leave),
)


def run(data: bytes) -> None:
    material = Material(data)
    repl = RawRepl(material.pick((None, True, False)))
    while material:
        try:
            converse(material.pick(CONVERSATIONS)(repl), material, board)
        except (TransportError, ProtocolError, DeviceError, BusyError) as error:
            assert str(error)
    output, traceback, held = split_output(data)
    if traceback is not None:
        assert output + b"\x04" + traceback + b"\x04>" + held == data
    else:
        assert output + held == data


TARGET = Target(
    run,
    modules=(
        "fastflight.protocol.raw_repl",
        "fastflight.protocol.raw_paste",
    ),
    seeds=(
        # Entered; raw paste is probed and taken; some code runs.
        b"\x00\x00\x00\x04\x00\x05\xc0\x01\x00\x00\x00\x03one\x00\x00",
        b"\x01\x01\x00\x00\x04\x00\x05\xc0\x00\xc0\x07\xc0\x01",
        b"\x02\x00\x00\x04\x00\x00\x00\x05hello\x00\x00\x03\x00\x00\x00\x01x\x00\x00\x00",
        b"\x01\x05\x00\x07\xc0\x07\x63abcd\x04\xc0\x01",
        b"\x02\x02\xf0\xf0" + bytes([0x5F + len(BANNER)]) + BANNER + b">\x07\xc0\x0f\xc0\x10",
        b"out\x04Traceback\x04>rest",
    ),
)
