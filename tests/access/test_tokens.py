"""Tokens: how they are made, kept, shown and compared."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.access import tokens
from fastflight.access.identity import scopes
from fastflight.access.tokens import TOKEN, Book, Certificate, Token, issued, matching, parse_authorization
from fastflight.errors import FastFlightError, RequestError, UnknownName

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def issue(name: str = "ada", *granted: str) -> tuple[Token, str]:
    return issued(name, scopes(granted or ("read:demo",)), NOW, NOW + timedelta(days=90))


def test_a_token_has_256_random_bits_and_the_book_has_none_of_them() -> None:
    entry, token = issue()
    assert TOKEN.fullmatch(token)
    secret = token.rpartition(f"{entry.id}_")[2]
    assert len(base64.urlsafe_b64decode(secret + "=")) == 32
    assert secret not in repr(entry) and secret.encode() not in Book((entry,)).encode()
    assert len({issue()[1] for _ in range(100)}) == 100


def test_a_book_comes_back_as_it_was_written() -> None:
    (first, _), (second, _) = issue(), issue("bob", "read,write:weather-*", "admin:*")
    book = Book((first, second), (Certificate("lab pc", scopes(["exec:bench"])),))
    assert Book.decode(book.encode()) == book
    assert Book.decode(b"{}") == Book()


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"id": "short"}, r"tokens\.0\.id: String should match pattern"),
        ({"name": "a:b"}, r"tokens\.0\.name: String should match pattern"),
        ({"sha256": "0" * 63}, r"tokens\.0\.sha256"),
        ({"scopes": []}, r"tokens\.0\.scopes: List should have at least 1 item"),
        ({"scopes": ["fly:demo"]}, "no such verb"),
        ({"expires": "2030-01-01"}, r"tokens\.0\.expires"),
        ({"expires": "2030-01-01T00:00:00"}, r"tokens\.0\.expires.*timezone"),
        ({"secret": "x"}, r"tokens\.0\.secret: Extra inputs are not permitted"),
    ],
)
def test_a_book_that_says_something_else_is_refused_without_repeating_it(change: dict[str, Any], refused: str) -> None:
    entry, _ = issue()
    content = json.loads(Book((entry,)).encode())
    content["tokens"][0] |= change
    with pytest.raises(RequestError, match=refused) as told:
        Book.decode(json.dumps(content).encode())
    assert entry.digest not in str(told.value)


def test_two_tokens_of_one_id_are_refused_and_so_is_a_book_without_end() -> None:
    entry, _ = issue()
    with pytest.raises(RequestError, match="two entries have the same id"):
        Book.decode(Book((entry, entry)).encode())
    with pytest.raises(RequestError, match="not a file of tokens"):
        Book.decode(b" " * (tokens.MAX_BOOK_BYTES + 1))
    full = Book(tuple(issue()[0] for _ in range(tokens.MAX_ENTRIES)))
    with pytest.raises(RequestError, match="more than 1000 entries. Revoke those"):
        full.adding(entry)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_book_or_refused_with_a_typed_error(data: bytes) -> None:
    try:
        Book.decode(data)
    except FastFlightError as error:
        assert isinstance(error, RequestError)


def test_a_name_may_have_an_old_and_a_new_token_and_one_of_them_is_taken_back() -> None:
    (old, _), (new, _) = issue(), issue()
    book = Book().adding(old).adding(new, Certificate("ada", scopes(["read:*"])))
    assert book.without(old.id).tokens == (new,)
    assert book.without("ada") == Book()
    with pytest.raises(UnknownName, match="bob: no token has this name or id"):
        book.without("bob")
    assert book.adding(Certificate("ada", scopes(["exec:*"]))).certificates == (Certificate("ada", scopes(["exec:*"])),)


def test_a_name_is_one_that_basic_and_a_log_can_have() -> None:
    for bad in ("", "a:b", "a b", "a\nb", "x" * 65):
        with pytest.raises(RequestError, match="not a name for a token"):
            issue(bad)
    assert issue("ada@example.org")[0].name == "ada@example.org"


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("Bearer abc", ("", "abc")),
        ("bearer  abc ", ("", "abc")),
        ("Basic " + base64.b64encode(b"ada:abc").decode(), ("ada", "abc")),
        ("Basic " + base64.b64encode(b":abc").decode(), ("", "abc")),
        ("Basic " + base64.b64encode(b"ada:a:b").decode(), ("ada", "a:b")),
        ("Basic " + base64.b64encode(b"\xff:abc").decode(), ("", "")),
        ("Basic ???", ("", "")),
        ("Digest abc", ("", "")),
        ("", ("", "")),
        ("Bearer " + "x" * 2000, ("", "")),
    ],
)
def test_what_a_header_shows(header: str, what: tuple[str, str]) -> None:
    assert parse_authorization(header) == what


@given(st.text(max_size=100))
def test_any_header_shows_something_or_nothing(text: str) -> None:
    for header in (text, f"Basic {text}", f"Bearer {text}"):
        assert all(isinstance(each, str) for each in parse_authorization(header))
        assert matching({}, parse_authorization(header)[1]) is None


def test_the_right_secret_matches_and_each_other_one_takes_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    entry, token = issue()
    compared: list[tuple[int, int]] = []
    compare = tokens.compare_digest

    def counting(given: str, kept: str) -> bool:
        compared.append((len(given), len(kept)))
        return compare(given, kept)

    monkeypatch.setattr(tokens, "compare_digest", counting)
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    unknown = issue()[1]
    attempts = [token, wrong, unknown, "", "nonsense", token + "x", token.upper()]
    assert [matching({entry.id: entry}, text) for text in attempts] == [entry, *[None] * 6]
    assert compared == [(64, 64)] * 7


@pytest.mark.parametrize("name", ["anybody", "nobody"])
def test_what_callers_without_a_proof_are_called_is_no_name_for_a_proof(name: str) -> None:
    with pytest.raises(RequestError, match="callers without a proof"):
        issue(name)
    for book in (Book((replace(issue()[0], name=name),)), Book((), (Certificate(name, scopes(["read:demo"])),))):
        with pytest.raises(RequestError, match="callers without a proof"):
            Book.decode(book.encode())


def test_what_grpc_calls_certificates_of_all_kinds_is_no_name_for_one() -> None:
    with pytest.raises(RequestError, match="other types of SAN: this name is for callers without a proof of it"):
        Book.decode(Book((), (Certificate("other types of SAN", scopes(["read:demo"])),)).encode())
