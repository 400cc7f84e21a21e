"""Bytes of the wire protocols: telnet, RFC 2217, WebSocket frames, the relay's frames."""

from __future__ import annotations

import struct

from fastflight.protocol.relay import (
    MAX_PAYLOAD_BYTES,
    MAX_REASON_BYTES,
    MAX_STREAMS,
    MAX_TARGET_BYTES,
    MAX_UNANSWERED,
    FrameType,
    RelayViolation,
)
from fastflight.protocol.rfc2217 import (
    CLIENT,
    SERVER,
    Flow,
    ModemMask,
    ModemState,
    NotifyLine,
    SetBaud,
    SetDataBits,
    SetFlow,
    SetParity,
    SetStopBits,
)
from fastflight.protocol.telnet import MAX_CHANGES, MAX_SUBNEGOTIATION_BYTES

from .case import Case

LIMIT = 1000

# What a peer sends before any option is on; the data in it, and what it is answered.
TELNET = [
    Case("nothing", b"", outcome=(b"", b"")),
    Case("half a command", b"a\xff", outcome=(b"a", b"")),
    Case("a command without its option", b"a\xff\xfd", outcome=(b"a", b"")),
    Case("a doubled 0xFF is one", b"\xff\xff", outcome=(b"\xff", b"")),
    Case("an odd number of them at the end", b"\xff\xff\xff", outcome=(b"\xff", b"")),
    Case("a command that has no meaning", b"a\xff\x01b", outcome=(b"ab", b"")),
    Case("an end of what never began", b"a\xff\xf0b", outcome=(b"ab", b"")),
    Case("every plain command", b"".join(b"\xff%c" % code for code in range(0xF1, 0xFA)), outcome=(b"", b"")),
    Case("an option that is not spoken", b"\xff\xfd\x63", outcome=(b"", b"\xff\xfc\x63")),
    Case("an option that is not spoken, on their side", b"\xff\xfb\x63", outcome=(b"", b"\xff\xfe\x63")),
    Case("the same unspoken option a thousand times", b"\xff\xfd\x63" * 1000, outcome=(b"", b"\xff\xfc\x63")),
    Case("every option there is", b"".join(b"\xff\xfd%c" % i for i in range(5, 44)), outcome=(b"", b"".join(b"\xff\xfc%c" % i for i in range(5, 44)))),
    Case("an option that is switched without end", b"\xff\xfd\x00\xff\xfe\x00" * 1000, outcome=(b"", b"\xff\xfb\x00\xff\xfc\x00" * (MAX_CHANGES // 2))),
    Case("a refusal of what was not asked", b"\xff\xfe\x00\xff\xfc\x00", outcome=(b"", b"")),
    Case("a subnegotiation of nothing", b"\xff\xfa\xff\xf0a", outcome=(b"a", b"")),
    Case("a subnegotiation that never ends", b"\xff\xfa\x2c" + b"a" * MAX_SUBNEGOTIATION_BYTES, outcome=(b"", b"")),
    Case("a subnegotiation that is too long, then data", b"\xff\xfa\x2c" + b"a" * 10_000 + b"\xff\xf0b", outcome=(b"b", b"")),
    Case("a subnegotiation that another begins in", b"\xff\xfa\x2ca\xff\xfa\x2c\xff\xf0b", outcome=(b"b", b"")),
    Case("a subnegotiation that a command ends", b"\xff\xfa\x2ca\xff\xfd\x63b", outcome=(b"b", b"\xff\xfc\x63")),
    Case("a subnegotiation of 0xFF alone", b"\xff\xfa" + b"\xff\xff" * 2000 + b"\xff\xf0b", outcome=(b"b", b"")),
    Case("a carriage return and NUL", b"a\r\0b", outcome=(b"a\rb", b"")),
    Case("a carriage return at the end", b"a\r", outcome=(b"a\r", b"")),
    Case("NUL alone is data", b"\0\0", outcome=(b"\0\0", b"")),
    Case("a megabyte of 0xFF", b"\xff" * (1 << 20), outcome=(b"\xff" * (1 << 19), b"")),
    Case("an HTTP request", b"GET / HTTP/1.1\r\n\r\n", outcome=(b"GET / HTTP/1.1\r\n\r\n", b"")),
    Case("the beginning of TLS", b"\x16\x03\x01\x02\x00\x01", outcome=(b"\x16\x03\x01\x02\x00\x01", b"")),
]  # fmt: skip

# A message about the port, and who it is from; what it is understood as. A value that cannot be is a question.
RFC2217 = [
    Case("nothing", (b"", CLIENT), outcome=None),
    Case("a code that has no meaning", (b"\x63", CLIENT), outcome=None),
    Case("a server's code from a client", (b"\x65\x00\x00\x25\x80", CLIENT), outcome=None),
    Case("a client's code from a server", (b"\x01\x00\x00\x25\x80", SERVER), outcome=None),
    Case("a speed of three bytes", (b"\x01\x00\x25\x80", CLIENT), outcome=None),
    Case("a speed of five bytes", (b"\x01\x00\x00\x00\x25\x80", CLIENT), outcome=SetBaud(37)),
    Case("nine bits", (b"\x02\x09", CLIENT), outcome=SetDataBits(None)),
    Case("four bits", (b"\x02\x04", CLIENT), outcome=SetDataBits(None)),
    Case("no bits at all", (b"\x02", CLIENT), outcome=None),
    Case("a parity that has no meaning", (b"\x03\x06", CLIENT), outcome=SetParity(None)),
    Case("four stop bits", (b"\x04\x04", CLIENT), outcome=SetStopBits(None)),
    Case("a control that has no meaning", (b"\x05\x14", CLIENT), outcome=None),
    Case("a control of two bytes", (b"\x05\x01\x01", CLIENT), outcome=SetFlow(Flow.NONE)),
    Case("a purge of nothing", (b"\x0c\x00", CLIENT), outcome=None),
    Case("a purge of more than both", (b"\x0c\x04", CLIENT), outcome=None),
    Case("a state of the line of no bytes", (b"\x6a", SERVER), outcome=NotifyLine(None)),
    Case("a mask of two bytes", (b"\x0b\x00\x00", CLIENT), outcome=ModemMask(ModemState(0))),
]  # fmt: skip


def relay(kind: int, stream: int, payload: bytes = b"", flags: int = 0, size: int | None = None) -> bytes:
    return struct.pack("!BBHI", kind, flags, stream, len(payload) if size is None else size) + payload


def opening(stream: int = 1, target: bytes = b"h:1", credit: int = 100) -> bytes:
    return relay(FrameType.OPEN, stream, struct.pack("!I", credit) + target)


ONE = struct.pack("!I", 1)

# What the gateway's side of a relay reads, whose streams are open once they are asked for; how many events it has.
RELAY = [
    Case("nothing", b"", outcome=0),
    Case("half a header", b"\x01\x00", outcome=0),
    Case("a type that has no meaning", relay(99, 1), RelayViolation, "99 is no type of a frame"),
    Case("type 0", relay(0, 1), RelayViolation, "0 is no type"),
    Case("a stream without number", opening(0), RelayViolation, "on stream 0"),
    Case("flags where there are none", relay(FrameType.DATA, 1, b"a", 1), RelayViolation, "with flags 1"),
    Case("a target without name", relay(FrameType.OPEN, 1, ONE), RelayViolation, "OPEN with 4 bytes"),
    Case("a target without end", opening(target=b"h" * (MAX_TARGET_BYTES + 1)), RelayViolation, "OPEN with"),
    Case("a target that is not UTF-8", opening(target=b"\xff"), RelayViolation, "a target that is not UTF-8"),
    Case("a stream that is open", opening() * 2, RelayViolation, "stream 1 is open already"),
    Case("all streams there are", b"".join(opening(i + 1) for i in range(MAX_STREAMS + MAX_UNANSWERED + 1)), RelayViolation, "most of them closed"),
    Case("credit beyond the limit", opening(credit=0xFFFFFFFF), RelayViolation, "credit for more than"),
    Case("credit until it overflows", opening(credit=1 << 30) + relay(FrameType.CREDIT, 1, struct.pack("!I", 1 << 30)), RelayViolation, "credit for more than"),
    Case("credit for nobody", relay(FrameType.CREDIT, 7, ONE), RelayViolation, "stream 7, which is not open"),
    Case("credit of three bytes", opening() + relay(FrameType.CREDIT, 1, b"abc"), RelayViolation, "CREDIT with 3 bytes"),
    Case("an answer to what was not asked", opening() + relay(FrameType.OPENED, 1, ONE), RelayViolation, "does not wait for it"),
    Case("data for nobody", relay(FrameType.DATA, 7, b"a"), RelayViolation, "stream 7, which is not open"),
    Case("data of nothing", opening() + relay(FrameType.DATA, 1), RelayViolation, "DATA with 0 bytes"),
    Case("data that says it is endless", relay(FrameType.DATA, 1, size=0xFFFFFFFF), RelayViolation, "DATA with"),
    Case("a byte more than a frame holds", relay(FrameType.DATA, 1, size=MAX_PAYLOAD_BYTES + 1), RelayViolation, "DATA with"),
    Case("more data than there is credit for", opening() + relay(FrameType.DATA, 1, b"a" * (LIMIT + 1)), RelayViolation, f"credit for {LIMIT}"),
    Case("data after the end", opening() + relay(FrameType.END, 1) + relay(FrameType.DATA, 1, b"a"), RelayViolation, "after its end"),
    Case("two ends", opening() + relay(FrameType.END, 1) * 2, RelayViolation, "not open"),
    Case("an end with content", opening() + relay(FrameType.END, 1, b"a"), RelayViolation, "END with 1 bytes"),
    Case("a stream that is closed twice", opening() + relay(FrameType.CLOSE, 1) * 2, RelayViolation, "not open"),
    Case("a close of nobody", relay(FrameType.CLOSE, 7), RelayViolation, "stream 7, which is not open"),
    Case("a reason without end", opening() + relay(FrameType.CLOSE, 1, b"x" * (MAX_REASON_BYTES + 1)), RelayViolation, "CLOSE with"),
    Case("a reason that is not UTF-8", opening() + relay(FrameType.CLOSE, 1, b"\xff"), outcome=2),
    Case("frames after the connection's end", relay(FrameType.CLOSE, 0) + relay(99, 1), outcome=1),
    Case("an HTTP request", b"GET / HTTP/1.1\r\n", RelayViolation, "71 is no type"),
]  # fmt: skip

CASES = {"telnet": TELNET, "RFC 2217": RFC2217, "relay frames": RELAY}
