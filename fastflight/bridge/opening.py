"""Recognises browsers by the first bytes of a connection.

A web page can make its browser connect to any port of the computer it runs on, and send text that the page chooses
(`fetch` with `mode: "no-cors"`). A board would take the lines of a POST for keystrokes. Browsers begin with the name of
an HTTP method and a space, with a TLS ClientHello, or, for WebRTC, with the header of a STUN message.
"""

from __future__ import annotations

METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"CONNECT", b"TRACE", b"PRI")
ANY = bytes(range(256))
# RFC 8489, section 5: the magic cookie, which each STUN message has at the same position.
COOKIE = (b"\x21", b"\x12", b"\xa4", b"\x42")
BINDING_OR_ALLOCATE = (b"\x00", b"\x01\x03")


def _exactly(text: bytes) -> tuple[bytes, ...]:
    return tuple(bytes([byte]) for byte in text)


# The possible openings of each protocol: for each position, the bytes that may be there.
OPENINGS: dict[str, list[tuple[bytes, ...]]] = {
    "HTTP": [_exactly(method + b" ") for method in METHODS],
    # A record of type handshake, of any version and length, with a ClientHello in it.
    "TLS": [(b"\x16", b"\x03", b"\x00\x01\x02\x03\x04", ANY, ANY, b"\x01")],
    # A STUN message alone (TURN over TCP), or after two bytes with its length (ICE over TCP).
    "STUN": [(*BINDING_OR_ALLOCATE, ANY, ANY, *COOKIE), (b"\x00", ANY, *BINDING_OR_ALLOCATE, ANY, ANY, *COOKIE)],
}


def browser_protocol(first: bytes) -> str | None:
    """Return the browser's protocol that `first`, the first bytes of a connection, begin with.

    Return "" if it is none of these, and None if more bytes are needed to decide.
    """
    undecided = False
    for name, openings in OPENINGS.items():
        for opening in openings:
            if all(byte in allowed for byte, allowed in zip(first, opening, strict=False)):
                if len(first) >= len(opening):
                    return name
                undecided = True
    return None if undecided else ""
