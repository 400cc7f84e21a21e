"""Raw paste: how the raw REPL takes code with flow control.

After `\\x05A\\x01` the board answers `R\\x01` and its window, two bytes little endian: that many bytes may be sent, and
again as many with each `\\x01` it sends. `\\x04` from the board means that it will take no more (it could not compile,
or ran out of memory): the host answers `\\x04` and reads the outcome. `R\\x00` and the prompt
mean understood but not supported. A board that does not know the request prints its raw REPL banner again.
Source: MicroPython's `docs/reference/repl.rst`, "Raw-paste mode"; in the firmware since 1.15.
"""

from __future__ import annotations

from fastflight.errors import ProtocolError
from fastflight.protocol.conversation import Conversation, Send
from fastflight.protocol.inbox import Inbox

REQUEST = b"\x05A\x01"
SUPPORTED = b"R\x01"
UNSUPPORTED = b"R\x00"
PROMPT = b">"
UNKNOWN = b"ra"  # the first bytes of the raw REPL's banner
BANNER_REST = b"w REPL; CTRL-B to exit\r\n>"
MORE = 0x01
STOP = 0x04

# A board that announced raw paste gives its window at once, and takes more as soon as it has read what it has.
PROBE_SECONDS = 1.0
# A board may collect garbage or compile for a while between two windows.
WINDOW_SECONDS = 10.0


def submit(inbox: Inbox, code: bytes, *, probing: bool = False) -> Conversation[bool]:
    """Send `code`. True if the board took it; False if it has no raw paste, and is at its raw prompt again.

    A board that ends the paste early has taken the code as well: the traceback that follows has the reason.
    """
    patience = PROBE_SECONDS if probing else WINDOW_SECONDS
    yield Send(REQUEST)
    answer = yield from inbox.exactly(2, patience)
    if answer == UNSUPPORTED:
        yield from inbox.until(PROMPT, patience)
        return False
    if answer == UNKNOWN:
        yield from inbox.until(BANNER_REST, patience)
        return False
    if answer != SUPPORTED:
        raise ProtocolError(f"the board answered {answer!r} to a request for raw paste")
    window = int.from_bytes((yield from inbox.exactly(2, patience)), "little")
    if window == 0:
        raise ProtocolError("the board announced a raw paste window of no bytes")
    room = window
    sent = 0
    while sent < len(code):
        while room == 0 or len(inbox):
            signal = (yield from inbox.exactly(1, patience))[0]
            if signal == STOP:
                yield Send(b"\x04")
                return True
            if signal != MORE:
                raise ProtocolError(f"the board sent {bytes([signal])!r} during raw paste")
            room += window
        piece = code[sent : sent + room]
        yield Send(piece)
        sent += len(piece)
        room -= len(piece)
    yield Send(b"\x04")
    # Windows that were granted meanwhile stand before the acknowledgement.
    while (signal := (yield from inbox.exactly(1, patience))[0]) == MORE:
        pass
    if signal != STOP:
        raise ProtocolError(f"the board ended raw paste with {bytes([signal])!r}")
    return True
