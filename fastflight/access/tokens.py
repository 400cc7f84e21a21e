"""Tokens and certificate names, which prove identities, and the book: the file that lists them with their scopes.

A token is `ff_<id>_<secret>`. The book has its id, the SHA-256 of the secret, a name, scopes and times, so nobody can
use the content of the book as a token. The secret has 256 random bits and needs no slow hash. A client's certificate is
verified by TLS; the book has the scopes for its name. No I/O here: `Authenticator` gets a function that reads the book.
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

# Enough for the people and programs of a laboratory. The whole book is read again at each change.
MAX_ENTRIES = 1000
MAX_BOOK_BYTES = 1024 * 1024
# Base64 of the longest name and a token takes a third of this; a longer value is refused.
MAX_AUTHORIZATION_CHARACTERS = 1024
# No colon, which ends the name in Basic, and nothing that a log would have to quote.
NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
# The name in a certificate: an e-mail address, a host's name, a URI, or a common name with blanks.
CERTIFICATE_NAME = re.compile(r"[ -~]{1,255}")
TOKEN = re.compile(r"ff_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
# The name that gRPC reports for every certificate whose first alternative name is of a kind that it does not support.
OTHER_KINDS = "other types of SAN"
# Names that identify nobody in particular: this one, and those of callers without a proof in logs and answers.
RESERVED = frozenset({ANYBODY.name, NOBODY.name, OTHER_KINDS})
ID_BYTES = 8
SECRET_BYTES = 32
# Secrets of ids that are not in the book are compared with this, so that the comparison takes the same time.
NO_DIGEST = hashlib.sha256(secrets.token_bytes(SECRET_BYTES)).hexdigest()


@dataclass(frozen=True, slots=True)
class Token:
    """The entry of one token in the book. `digest` is the SHA-256 of its secret."""

    id: str
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created: datetime
    expires: datetime | None = None

    @property
    def identity(self) -> Identity:
        """The identity of a caller with this token."""
        return Identity(self.name, self.scopes, self.id)

    def good_at(self, seconds: float) -> bool:
        """Whether the token has not expired at a time, in seconds since 1970."""
        return self.expires is None or seconds < self.expires.timestamp()


@dataclass(frozen=True, slots=True)
class Certificate:
    """The entry of one certificate in the book.

    `name` is the certificate's first alternative name, or its common name if it has none.
    """

    name: str
    scopes: tuple[Scope, ...]

    @property
    def identity(self) -> Identity:
        """The identity of a caller with this certificate."""
        return Identity(self.name, self.scopes, f"certificate {self.name}")


@dataclass(frozen=True, slots=True)
class Book:
    """The tokens and certificates of a server. A name may have several tokens, such as an old and a new one."""

    tokens: tuple[Token, ...] = ()
    certificates: tuple[Certificate, ...] = ()

    def encode(self) -> bytes:
        """Return the content of the file: JSON that a person can read and edit."""
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
        """Return the book in a file's content, which `encode` or a person has written.

        Raise `RequestError`, which says where the content is wrong but repeats nothing of it.
        """
        if len(data) > MAX_BOOK_BYTES:
            raise RequestError(f"longer than {MAX_BOOK_BYTES} bytes: not a file of tokens")
        try:
            entries = _Book.model_validate_json(data, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise RequestError(first["msg"].removeprefix("Value error, "), where=where) from None
        tokens = tuple(
            Token(each.id, each.name, each.sha256, scopes(each.scopes), each.created, each.expires)
            for each in entries.tokens
        )
        certificates = tuple(Certificate(each.name, scopes(each.scopes)) for each in entries.certificates)
        for name in (*(each.name for each in tokens), *(each.name for each in certificates)):
            unreserved(name)
        for kind, keys in (("id", [each.id for each in tokens]), ("name", [each.name for each in certificates])):
            if len(set(keys)) < len(keys):
                raise RequestError(f"two entries have the same {kind}")
        return cls(tokens, certificates)

    def adding(self, *entries: Token | Certificate) -> Book:
        """Return the book with more entries. A certificate's entry replaces the one with the same name.

        Raise `RequestError` if there are too many entries.
        """
        names = {each.name for each in entries if isinstance(each, Certificate)}
        tokens = (*self.tokens, *(each for each in entries if isinstance(each, Token)))
        others = (each for each in self.certificates if each.name not in names)
        certificates = (*others, *(each for each in entries if isinstance(each, Certificate)))
        if len(tokens) > MAX_ENTRIES or len(certificates) > MAX_ENTRIES:
            raise RequestError(f"more than {MAX_ENTRIES} entries", hint="Revoke those that are not used any more")
        return Book(tokens, certificates)

    def without(self, name: str) -> Book:
        """Return the book without the token of this id, or without all tokens and the certificate of this name.

        Raise `UnknownName` if there is none.
        """
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
    """Make a new token for `name`. Return its entry for the book, and the token itself.

    The token itself is not stored anywhere: the caller must show it to the user now. Raise `RequestError` for a name
    that is malformed or reserved.
    """
    if not NAME.fullmatch(name):
        raise RequestError("not a name for a token", where=name[:80], hint="Use letters, digits, _ . @ -, at most 64")
    unreserved(name)
    id_, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    return Token(id_, name, digest_of(secret), tuple(granted), created, expires), f"ff_{id_}_{secret}"


def unreserved(name: str) -> None:
    """Raise `RequestError` if a token or certificate may not have this name."""
    if name in RESERVED:
        raise RequestError("this name is for callers without a proof of it", where=name, hint="Choose another")


def digest_of(secret: str) -> str:
    """Return the digest of a secret, for the book."""
    return hashlib.sha256(secret.encode()).hexdigest()


def parse_authorization(authorization: str) -> tuple[str, str]:
    """Return the name and the token in the value of an Authorization header (Bearer or Basic).

    Both are "" if the value is malformed; the name is "" for Bearer.
    """
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
    """Return the entry of the token `text`, or None. An unknown id takes as much time as a wrong secret."""
    parts = TOKEN.fullmatch(text)
    id_, secret = parts.groups() if parts is not None else ("", "")
    known = tokens.get(id_)
    same = compare_digest(digest_of(secret), NO_DIGEST if known is None else known.digest)
    return known if same else None


def bearer(token: str) -> str:
    """Return the value of the Authorization header for a token."""
    return f"Bearer {token}"
