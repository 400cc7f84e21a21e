"""Raw paste: the mode in which the raw REPL receives code with flow control.

The host requests it with `\\x05A\\x01`. The board answers in one of three ways:

- `R\\x01` and its window, two bytes little endian. The host may send that many bytes, and the same number again for
  each `\\x01` from the board. A `\\x04` from the board means that it accepts no more code, because it could not compile
  it or ran out of memory: the host answers `\\x04` and reads the outcome.
- `R\\x00` and the prompt: the board knows raw paste and does not support it.
- its raw REPL banner: the board does not know the request.

Source: MicroPython's `docs/reference/repl.rst`, "Raw-paste mode"; in the firmware since 1.15.
"""

from __future__ import annotations

from collections.abc import Callable

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

# The timeout while it is not known whether raw paste works. A board that announces it sends its window at once, and
# grants more as soon as it has read the code sent so far.
PROBE_SECONDS = 1.0
# The timeout once it is known to work: between two windows a board may collect garbage or compile.
WINDOW_SECONDS = 10.0


def submit(
    inbox: Inbox, code: bytes, *, probing: bool = False, before_end: Callable[[], None] | None = None
) -> Conversation[bool]:
    """Send `code`. Return True if the board took it, False if it has no raw paste and is at its raw prompt again.

    The result is also True if the board ends the paste early; the traceback that follows tells the reason. With
    `probing` the timeouts are shorter. `before_end` is called before the Ctrl-D that has the board run the code. Raises
    `ProtocolError` for an answer that does not follow the protocol.
    """
    timeout = PROBE_SECONDS if probing else WINDOW_SECONDS
    yield Send(REQUEST)
    answer = yield from inbox.exactly(2, timeout)
    if answer == UNSUPPORTED:
        yield from inbox.until(PROMPT, timeout)
        return False
    if answer == UNKNOWN:
        yield from inbox.until(BANNER_REST, timeout)
        return False
    if answer != SUPPORTED:
        raise ProtocolError(f"the board answered {answer!r} to a request for raw paste")
    window = int.from_bytes((yield from inbox.exactly(2, timeout)), "little")
    if window == 0:
        raise ProtocolError("the board announced a raw paste window of no bytes")
    room = window
    sent = 0
    while sent < len(code):
        while room == 0 or len(inbox):
            signal = (yield from inbox.exactly(1, timeout))[0]
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
    if before_end is not None:
        before_end()
    yield Send(b"\x04")
    # Window grants that the board sent meanwhile come before the acknowledgement.
    while (signal := (yield from inbox.exactly(1, timeout))[0]) == MORE:
        pass
    if signal != STOP:
        raise ProtocolError(f"the board ended raw paste with {bytes([signal])!r}")
    return True
