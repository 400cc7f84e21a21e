"""Who asks, while the book changes under a running server."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from fastflight.access.authenticator import LOOK_SECONDS, Authenticator
from fastflight.access.identity import ANYBODY, scopes
from fastflight.access.tokens import Book, Certificate, bearer, issued
from fastflight.errors import RequestError, Unauthenticated

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ADA, TOKEN = issued("ada", scopes(["read:demo"]), NOW, NOW + timedelta(days=1))
BOOK = Book((ADA,), (Certificate("lab", scopes(["exec:*"])),))


@dataclass
class TokenFile:
    """A file of tokens, and the time."""

    content: bytes | None = field(
        default_factory=lambda: Book((ADA,), (Certificate("lab", scopes(["exec:*"])),)).encode()
    )
    trouble: str = ""
    now: float = NOW.timestamp()
    ticks: float = 0.0
    looks: int = 0

    def read(self) -> bytes | None:
        self.looks += 1
        if self.trouble:
            raise RequestError(self.trouble)
        content, self.content = self.content, None
        return content

    def change(self, content: bytes) -> None:
        self.content = content
        self.ticks += LOOK_SECONDS


@pytest.fixture
def desk() -> TokenFile:
    return TokenFile()


@pytest.fixture
def authenticator(desk: TokenFile) -> Authenticator:
    return Authenticator(desk.read, clock=lambda: desk.now, ticks=lambda: desk.ticks)


def test_a_token_a_pair_and_a_certificate_prove_a_name(authenticator: Authenticator) -> None:
    ada = authenticator.authenticate(bearer(TOKEN))
    assert (ada.name, ada.scopes, ada.credential) == ("ada", ADA.scopes, ADA.id)
    for name in (b"ada", b""):
        pair = base64.b64encode(name + b":" + TOKEN.encode()).decode()
        assert authenticator.authenticate(f"Basic {pair}") == ada
    assert authenticator.certified("lab").name == "lab"
    assert TOKEN[-43:] not in repr(ada) and ADA.digest not in repr(ada)


def test_what_proves_nothing_is_refused_in_one_and_the_same_text(authenticator: Authenticator) -> None:
    told = set()
    other = base64.b64encode(b"bob:" + TOKEN.encode()).decode()
    for header in ("", "Bearer", f"Basic {other}", TOKEN, bearer(TOKEN[:-1] + "!"), bearer("x")):
        with pytest.raises(Unauthenticated) as refused:
            authenticator.authenticate(header)
        told.add(str(refused.value))
    with pytest.raises(Unauthenticated) as refused:
        authenticator.certified("ada")
    assert told == {str(refused.value)}


def test_a_token_expires_at_its_second(desk: TokenFile, authenticator: Authenticator) -> None:
    ada = authenticator.authenticate(bearer(TOKEN))
    desk.now += 86_399
    assert authenticator.authenticate(bearer(TOKEN)) == ada and authenticator.still(ada)
    desk.now += 1
    assert not authenticator.still(ada)
    with pytest.raises(Unauthenticated):
        authenticator.authenticate(bearer(TOKEN))


def test_what_is_revoked_is_good_until_the_next_look(desk: TokenFile, authenticator: Authenticator) -> None:
    ada, lab = authenticator.authenticate(bearer(TOKEN)), authenticator.certified("lab")
    desk.content = Book().encode()
    assert authenticator.still(ada) and authenticator.still(lab)
    assert desk.looks == 1
    desk.ticks += LOOK_SECONDS
    assert not authenticator.still(ada) and not authenticator.still(lab)
    with pytest.raises(Unauthenticated):
        authenticator.authenticate(bearer(TOKEN))
    with pytest.raises(Unauthenticated):
        authenticator.certified("lab")
    assert desk.looks == 2
    assert authenticator.still(ANYBODY)


def test_what_grants_something_else_now_is_to_be_shown_again(desk: TokenFile, authenticator: Authenticator) -> None:
    ada, lab = authenticator.authenticate(bearer(TOKEN)), authenticator.certified("lab")
    changed = Book.decode(Book((ADA,)).encode().replace(b"read:demo", b"read:bench"))
    desk.change(changed.adding(Certificate("lab", scopes(["read:*"]))).encode())
    assert not authenticator.still(ada) and not authenticator.still(lab)
    assert authenticator.authenticate(bearer(TOKEN)).scopes == scopes(["read:bench"])


@pytest.mark.parametrize("content", [b"", b"{", b'{"tokens": [{}]}', b"\xff"])
def test_a_broken_book_leaves_the_last_good_one(desk: TokenFile, authenticator: Authenticator, content: bytes) -> None:
    desk.change(content)
    assert authenticator.authenticate(bearer(TOKEN)).name == "ada"
    desk.change(Book().encode())
    with pytest.raises(Unauthenticated):
        authenticator.authenticate(bearer(TOKEN))


def test_a_book_that_is_gone_is_logged_once(
    desk: TokenFile, authenticator: Authenticator, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.trouble = "No such file"
    for _ in range(3):
        desk.ticks += LOOK_SECONDS
        assert authenticator.authenticate(bearer(TOKEN)).name == "ada"
    assert capsys.readouterr().out.count("the last good ones stay in use") == 1


def test_without_a_good_book_no_server_begins() -> None:
    for content in (b"", b"nonsense", None):
        with pytest.raises(RequestError):
            Authenticator(lambda content=content: content)
