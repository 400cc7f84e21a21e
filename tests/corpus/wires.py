"""Bytes of the wire protocols: telnet, RFC 2217, WebSocket frames."""

from __future__ import annotations

from fastflight.protocol.rfc2217 import (
    CLIENT,
    SERVER,
    Flow,
    ModemMask,
    ModemState,
    NotifyLine,
    Setting,
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
    Case("a speed of five bytes", (b"\x01\x00\x00\x00\x25\x80", CLIENT), outcome=Setting("baud", 37)),
    Case("nine bits", (b"\x02\x09", CLIENT), outcome=Setting("data_bits", None)),
    Case("four bits", (b"\x02\x04", CLIENT), outcome=Setting("data_bits", None)),
    Case("no bits at all", (b"\x02", CLIENT), outcome=None),
    Case("a parity that has no meaning", (b"\x03\x06", CLIENT), outcome=Setting("parity", None)),
    Case("four stop bits", (b"\x04\x04", CLIENT), outcome=Setting("stop_bits", None)),
    Case("a control that has no meaning", (b"\x05\x14", CLIENT), outcome=None),
    Case("a control of two bytes", (b"\x05\x01\x01", CLIENT), outcome=Setting("flow", Flow.NONE)),
    Case("a purge of nothing", (b"\x0c\x00", CLIENT), outcome=None),
    Case("a purge of more than both", (b"\x0c\x04", CLIENT), outcome=None),
    Case("a state of the line of no bytes", (b"\x6a", SERVER), outcome=NotifyLine(None)),
    Case("a mask of two bytes", (b"\x0b\x00\x00", CLIENT), outcome=ModemMask(ModemState(0))),
]  # fmt: skip


CASES = {"telnet": TELNET, "RFC 2217": RFC2217}
