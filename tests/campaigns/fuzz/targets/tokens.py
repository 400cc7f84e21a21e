"""The book of tokens and what shows one: nobody gets in who is not in it, and everybody hears the same."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

from fastflight.access.authenticator import Authenticator
from fastflight.access.identity import scope
from fastflight.access.tokens import Book, Certificate, Token, bearer, digest_of, parse_authorization
from fastflight.errors import RequestError, Unauthenticated
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target

SECRET = "s" * 43
GOOD = Token("0" * 16, "ann", digest_of(SECRET), (scope("read:*"),), datetime(2025, 1, 1, tzinfo=UTC))
TEXT = f"ff_{GOOD.id}_{SECRET}"
BOOK = Book((GOOD,), (Certificate("ann@example.org", GOOD.scopes),)).encode()
KNOWN = Authenticator(lambda: BOOK)


def run(data: bytes) -> None:
    material = Material(data)
    kind = material.byte()
    if kind & 1:
        try:
            book = Book.decode(material.stretched())
        except RequestError as error:
            assert str(error)
            return
        assert Book.decode(book.encode()) == book
        assert all(token.good_at(0.0) in (True, False) for token in book.tokens)
        return
    changed = bytearray(TEXT.encode())
    if kind & 4:
        at = material.byte() % len(changed)
        fresh = material.piece()
        changed[at : at + len(fresh)] = fresh
    text = (bytes(changed) if kind & 2 else material.stretched()).decode("latin-1")
    header = bearer(text)
    if kind & 8:
        header = "basic " + base64.b64encode(b"ann:" + text.encode("latin-1")).decode()
    elif kind & 16:
        header = text
    name, token = parse_authorization(header)
    try:
        identity = KNOWN.authenticate(header)
    except Unauthenticated as error:
        assert TEXT not in (token, token.strip()) or name not in ("", "ann")
        assert SECRET not in str(error)
    else:
        assert token == TEXT and identity == GOOD.identity


TARGET = Target(
    run,
    modules=(
        "fastflight.access.tokens",
        "fastflight.access.authenticator",
    ),
    seeds=(
        b"\x02",
        b"\x0a",
        b"\x06\x05\x01x",
        b"\x0e\x14\x02ab",
        b"\x10\x00Bearer " + TEXT.encode(),
        b"\x10\x00BASIC YW5uOmZm",
        b"\x00\xffff_",
        b"\x01\x00" + BOOK,
        b'\x01\x00{"tokens":[{"id":"0123456789abcdef","name":"a","sha256":"","scopes":["read:*"],"created":"2025-01-01"}]}',
        b'\x01\x00{"certificates":[{"name":"x","scopes":["exec:a*"]},{"name":"x","scopes":[]}]}',
        b"\x01\xff[",
    ),
    max_bytes=700,
)
