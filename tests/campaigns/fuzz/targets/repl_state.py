"""Reading the REPL's state off the line: any traffic at all, and a split changes nothing."""

from __future__ import annotations

from fastflight.protocol.repl_state import ReplState
from tests.campaigns.fuzz.material import Material, cut
from tests.campaigns.fuzz.target import Target

BANNER = b"raw REPL; CTRL-B to exit\r\n>"
# Long marks are seldom found by chance.
WORDS = (b">>> ", BANNER, b"=== ", b"OK", b"\x04\x04>", b"R\x01\x80\x00", b"R\x00", b"\x05A\x01", b"soft reboot\r\n")


def facts(state: ReplState) -> tuple[object, ...]:
    return state.mode, state.raw, state.running, *(state.exit_is_reset(code) for code in (0, 1, -9))


def run(data: bytes) -> None:
    material = Material(data)
    choice, pattern = material.byte(), material.byte()
    whole, parts = ReplState(raw=bool(choice & 1)), ReplState(raw=bool(choice & 1))
    while material:
        head = material.byte()
        said = WORDS[head >> 1 & 7] if head & 0x80 else material.take(head >> 1)
        if head & 1:
            whole.sent(said)
            for piece in cut(said, pattern):
                parts.sent(piece)
        else:
            whole.received(said)
            for piece in cut(said, pattern):
                parts.received(piece)
        assert facts(parts) == facts(whole)


def line(*traffic: tuple[str, bytes]) -> bytes:
    """Traffic as this target reads it; `>` is from the host."""
    return b"\x00\x00" + b"".join(bytes([len(said) << 1 | (way == ">")]) + said for way, said in traffic)


TARGET = Target(
    run,
    modules=("fastflight.protocol.repl_state",),
    seeds=(
        line(("<", b"MicroPython v1.27\r\n>>> "), (">", b"1+1\r"), ("<", b"1+1\r\n2\r\n>>> "), (">", b"\x04")),
        line(("<", b">>> "), (">", b"\x01"), ("<", BANNER), (">", b"print(1)\x04"), ("<", b"OK1\r\n\x04\x04>")),
        line(("<", b">>> "), (">", b"\x01"), ("<", BANNER), (">", b"\x05A\x01"), ("<", b"R\x01\x80\x00\x01")),
        line(("<", b">>> "), (">", b"\x05"), ("<", b"=== "), (">", b"x=1\x04"), ("<", b"\r\n>>> ")),
        line(
            ("<", b">>> "), (">", b"\x01"), ("<", BANNER), (">", b"\x04"), ("<", b"OK\r\nMPY: soft reboot\r\n" + BANNER)
        ),
    ),
)
