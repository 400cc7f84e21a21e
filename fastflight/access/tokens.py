"""Proofs of who asks: tokens and certificates' names, and the book that says what they are worth.

A token is `ff_<id>_<secret>`. The book keeps of it the id, the SHA-256 of the secret, a name, scopes and times: whoever
reads the book gets in with nothing of it. 256 random bits need no slow hash. A client's certificate, which TLS has
proven, is worth what the book says of its name. No I/O here: `Authenticator` is given what reads the book.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hmac import compare_digest
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from fastflight.access.identity import ANYBODY, NOBODY, Identity, Scope, scopes
from fastflight.errors import RequestError, UnknownName

# Enough for a token of each of a laboratory's people and programs; all of the book is read again at each change.
MAX_ENTRIES = 1000
MAX_BOOK_BYTES = 1024 * 1024
# Base64 of the longest name and a token is a third of this; what is longer is no proof.
MAX_AUTHORIZATION_CHARACTERS = 1024
# No colon, which ends the name in Basic, and nothing that a log would have to quote.
NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
# What a certificate may be known by: an e-mail address, a host's name, a URI, or a common name with blanks.
CERTIFICATE_NAME = re.compile(r"[ -~]{1,255}")
TOKEN = re.compile(r"ff_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
# What gRPC calls every certificate whose first alternative name is of a kind that it does not tell.
OTHER_KINDS = "other types of SAN"
# That, and what callers without a proof are called, in logs and in answers.
RESERVED = frozenset({ANYBODY.name, NOBODY.name, OTHER_KINDS})
ID_BYTES = 8
SECRET_BYTES = 32
# What an id that is not in the book is compared with, for the same time.
NO_DIGEST = hashlib.sha256(secrets.token_bytes(SECRET_BYTES)).hexdigest()


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token; the `digest` is that of its secret."""

    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created: datetime
    expires: datetime | None = None

    @property
    def identity(self) -> Identity:
        """Who shows it."""
        return Identity(self.name, self.scopes, self.id)

    def good_at(self, seconds: float) -> bool:
        """Whether it has not expired at a time of the epoch."""
        return self.expires is None or seconds < self.expires.timestamp()


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a client is worth whose certificate names it so: by its first alternative name, or its common name."""

    name: str
    scopes: tuple[Scope, ...]

    @property
    def identity(self) -> Identity:
        """Who shows it."""
        return Identity(self.name, self.scopes, f"certificate {self.name}")


@dataclass(frozen=True, slots=True)
class Book:
    """The tokens and certificates of a server. A name may have several tokens: the old and the new one."""

    tokens: tuple[Token, ...] = ()
    certificates: tuple[Certificate, ...] = ()

    def encode(self) -> bytes:
        """For the file: JSON, an entry after another, that a person can read and change."""
        return json.dumps(
            {
                "tokens": [
                    {
                        "id": token.id,
                        "name": token.name,
                        "sha256": token.digest,
                        "scopes": [str(each) for each in token.scopes],
                        "created": token.created.isoformat(),
                        "expires": None if token.expires is None else token.expires.isoformat(),
                    }
                    for token in self.tokens
                ],
                "certificates": [
                    {"name": certificate.name, "scopes": [str(each) for each in certificate.scopes]}
                    for certificate in self.certificates
                ],
            },
            indent=2,
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Book:
        """What `encode` made, or a person. `RequestError` says where it is wrong, and repeats nothing of it."""
        if len(data) > MAX_BOOK_BYTES:
            raise RequestError(f"longer than {MAX_BOOK_BYTES} bytes: not a file of tokens")
        try:
            given = _Book.model_validate_json(data, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise RequestError(first["msg"].removeprefix("Value error, "), where=where) from None
        tokens = tuple(
            Token(each.id, each.name, each.sha256, scopes(each.scopes), each.created, each.expires)
            for each in given.tokens
        )
        certificates = tuple(Certificate(each.name, scopes(each.scopes)) for each in given.certificates)
        for name in (*(each.name for each in tokens), *(each.name for each in certificates)):
            unreserved(name)
        for kind, keys in (("id", [each.id for each in tokens]), ("name", [each.name for each in certificates])):
            if len(set(keys)) < len(keys):
                raise RequestError(f"two entries have the same {kind}")
        return cls(tokens, certificates)

    def adding(self, *entries: Token | Certificate) -> Book:
        """With these as well; a certificate's entry replaces that of the same name. `RequestError` if it is full."""
        names = {each.name for each in entries if isinstance(each, Certificate)}
        tokens = (*self.tokens, *(each for each in entries if isinstance(each, Token)))
        others = (each for each in self.certificates if each.name not in names)
        certificates = (*others, *(each for each in entries if isinstance(each, Certificate)))
        if len(tokens) > MAX_ENTRIES or len(certificates) > MAX_ENTRIES:
            raise RequestError(f"more than {MAX_ENTRIES} entries", hint="Revoke those that are not used any more")
        return Book(tokens, certificates)

    def without(self, name: str) -> Book:
        """Without the token of this id, or all tokens and the certificate of this name. `UnknownName` if none is."""
        left = Book(
            tuple(each for each in self.tokens if name not in (each.id, each.name)),
            tuple(each for each in self.certificates if each.name != name),
        )
        if left == self:
            raise UnknownName("no token has this name or id", where=name[:80])
        return left


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    scopes: Annotated[list[str], Field(min_length=1)]


class _Token(_Entry):
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    name: Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    created: AwareDatetime
    expires: AwareDatetime | None = None


class _Certificate(_Entry):
    name: Annotated[str, Field(pattern=f"^{CERTIFICATE_NAME.pattern}$")]


class _Book(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    tokens: Annotated[list[_Token], Field(max_length=MAX_ENTRIES)] = []
    certificates: Annotated[list[_Certificate], Field(max_length=MAX_ENTRIES)] = []


def issued(
    name: str, granted: Iterable[Scope], created: datetime, expires: datetime | None = None
) -> tuple[Token, str]:
    """A new token: what is kept of it, and itself, which is not to be had again. `RequestError` for a bad name."""
    if not NAME.fullmatch(name):
        raise RequestError("not a name for a token", where=name[:80], hint="Use letters, digits, _ . @ -, at most 64")
    unreserved(name)
    id_, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    return Token(id_, name, digest_of(secret), tuple(granted), created, expires), f"ff_{id_}_{secret}"


def unreserved(name: str) -> None:
    """`RequestError` for the name of a token or a certificate that is nobody's in particular."""
    if name in RESERVED:
        raise RequestError("this name is for callers without a proof of it", where=name, hint="Choose another")


def digest_of(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def shown(authorization: str) -> tuple[str, str]:
    """The name, if one is said, and the token in a header's value, whichever way it is given. Empty for none."""
    if len(authorization) > MAX_AUTHORIZATION_CHARACTERS:
        return "", ""
    scheme, _, value = authorization.partition(" ")
    match scheme.lower():
        case "bearer":
            return "", value.strip()
        case "basic":
            try:
                name, _, token = base64.b64decode(value.strip(), validate=True).decode().partition(":")
            except (binascii.Error, ValueError):
                return "", ""
            return name, token
    return "", ""


def matching(tokens: dict[str, Token], text: str) -> Token | None:
    """The token that `text` is. One whose id is not known takes the same work."""
    parts = TOKEN.fullmatch(text)
    id_, secret = parts.groups() if parts is not None else ("", "")
    known = tokens.get(id_)
    same = compare_digest(digest_of(secret), NO_DIGEST if known is None else known.digest)
    return known if same else None


def bearer(token: str) -> str:
    """The header's value that shows a token."""
    return f"Bearer {token}"
