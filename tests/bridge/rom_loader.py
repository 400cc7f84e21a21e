"""As much of an ESP32's ROM loader as esptool needs to find a chip: resets by DTR and RTS, and answers in SLIP.

The usual circuit on a board: asserting RTS alone holds the chip in reset, asserting DTR alone holds its boot pin low.
The chip answers only when it came out of reset with that pin low.
"""

from __future__ import annotations

import struct

from tests.bridge.memory_line import MemoryControl, MemoryLine

END, ESCAPE = b"\xc0", b"\xdb"
ESCAPED_END, ESCAPED_ESCAPE = b"\xdb\xdc", b"\xdb\xdd"
SYNC, READ_REGISTER = 0x08, 0x0A
# What every register holds: the bytes that SLIP escapes, and the one that telnet does.
REGISTER = 0xDBC0FF00
# A ROM answers a SYNC this often.
SYNC_ANSWERS = 8


class RomLoader(MemoryControl):
    """The serial control of the chip, and what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.line = MemoryLine(answer=self.answer, control=self)
        self.dtr = self.rts = True
        self.in_reset = self.loading = False
        self.packets: list[bytes] = []
        self._rest = b""

    async def aassign(
        self, timeout: float, *, dtr: bool | None = None, rts: bool | None = None, sending_break: bool | None = None
    ) -> None:
        await super().aassign(timeout, dtr=dtr, rts=rts, sending_break=sending_break)
        self.dtr = self.dtr if dtr is None else dtr
        self.rts = self.rts if rts is None else rts
        if self.rts and not self.dtr:
            self.in_reset, self.loading = True, False
        elif self.in_reset and not self.rts:
            # The boot pin is read when the reset is over; a capacitor holds it until RTS is low.
            self.in_reset, self.loading, self._rest = False, self.dtr, b""

    def answer(self, data: bytes) -> bytes:
        if not self.loading:
            return b""
        *frames, self._rest = (self._rest + data).split(END)
        return b"".join(self._reply(unslipped(frame)) for frame in frames if frame)

    def _reply(self, packet: bytes) -> bytes:
        self.packets.append(packet)
        operation = packet[1]
        if operation == SYNC:
            return slipped(response(SYNC, 0x20120707)) * SYNC_ANSWERS
        if operation == READ_REGISTER:
            return slipped(response(READ_REGISTER, REGISTER))
        return slipped(response(operation, 0))


def response(operation: int, value: int) -> bytes:
    return struct.pack("<BBHI", 1, operation, 4, value) + bytes(4)


def slipped(packet: bytes) -> bytes:
    return END + packet.replace(ESCAPE, ESCAPED_ESCAPE).replace(END, ESCAPED_END) + END


def unslipped(frame: bytes) -> bytes:
    return frame.replace(ESCAPED_END, END).replace(ESCAPED_ESCAPE, ESCAPE)
