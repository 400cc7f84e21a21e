"""Names, scopes and verbs: what a scope's text means, and what it grants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.access.identity import ANYBODY, MAX_SCOPES, NOBODY, Identity, scope, scopes
from fastflight.errors import FastFlightError, Forbidden, RequestError, UnknownName
from fastflight.service.requests import Verb


def named(*texts: str) -> Identity:
    return Identity("ada", scopes(texts))


def test_a_scope_is_verbs_on_a_glob_of_devices() -> None:
    ada = named("read,write:weather-*", "exec:bench")
    assert ada.may(Verb.READ, "weather-1") and ada.may(Verb.WRITE, "weather-1")
    assert not ada.may(Verb.EXEC, "weather-1")
    assert ada.may(Verb.EXEC, "bench") and not ada.may(Verb.READ, "bench")
    assert not ada.may(Verb.READ, "Weather-1")
    assert str(ada.scopes[0]) == "read,write:weather-*"


def test_who_may_something_else_is_told_what() -> None:
    with pytest.raises(Forbidden, match="bench: ada may not read here. Granted: exec. Ask whoever runs the server"):
        named("exec:bench").require(Verb.READ, "bench")


def test_a_device_without_a_scope_is_not_there() -> None:
    with pytest.raises(UnknownName, match="^bench: no such device$"):
        named("read:weather-*").require(Verb.READ, "bench")


def test_an_administrator_of_the_server_sees_no_device_by_that() -> None:
    root = named("admin:*")
    root.require_admin()
    assert not root.sees("bench")
    with pytest.raises(Forbidden, match="ada may not administer this server. It takes the scope admin:\\*"):
        named("admin:weather-*").require_admin()


def test_anybody_may_everything_and_nobody_nothing() -> None:
    assert all(ANYBODY.may(verb, "any.name-1") for verb in Verb) and ANYBODY.may_admin()
    assert not any(NOBODY.may(verb, "demo") for verb in Verb) and not NOBODY.sees("demo") and not NOBODY.may_admin()


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("read", "not VERBS:DEVICES"),
        ("read:", "not VERBS:DEVICES"),
        ("read:a b", "not VERBS:DEVICES"),
        (":demo", "no such verb"),
        ("read,:demo", "no such verb"),
        ("READ:demo", "no such verb.*Known: admin, exec, read, session, write"),
        ("reed:demo", "Did you mean 'read'?"),
        ("read:" + "a" * 256, "not VERBS:DEVICES"),
    ],
)
def test_a_scope_that_means_nothing_is_refused(text: str, refused: str) -> None:
    with pytest.raises(RequestError, match=refused):
        scope(text)


def test_there_is_a_limit_on_scopes() -> None:
    assert len(scopes(["read:a"] * MAX_SCOPES)) == MAX_SCOPES
    with pytest.raises(RequestError, match="65 scopes are too many: 64 are allowed. Use globs"):
        scopes(["read:a"] * (MAX_SCOPES + 1))


@given(st.text(max_size=40))
def test_any_text_is_a_scope_or_refused_with_a_typed_error(text: str) -> None:
    try:
        found = scope(text)
    except FastFlightError as error:
        assert isinstance(error, RequestError)
    else:
        assert scope(str(found)) == found
