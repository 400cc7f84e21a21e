"""`as_` is the key `as` of a request."""

from __future__ import annotations

from fastflight.client.call import build
from fastflight.service.requests import Recording


def test_as_is_a_key_that_python_has_for_itself() -> None:
    assert build(Recording, name="demo", as_="rows").as_ == "rows"
