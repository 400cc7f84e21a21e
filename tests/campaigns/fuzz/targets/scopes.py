"""Scopes of an identity: what was understood is said in the same way again."""

from __future__ import annotations

from fastflight.access.identity import Identity, scope, scopes
from fastflight.errors import AccessError, RequestError, UnknownName
from fastflight.service.requests import Verb
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target


def run(data: bytes) -> None:
    material = Material(data)
    device = material.piece().decode("utf-8", "replace")
    text = material.rest().decode("utf-8", "surrogateescape")
    try:
        found = scope(text)
        assert scope(str(found)) == found
        identity = Identity("somebody", scopes(text.split(" ")))
    except RequestError as error:
        assert str(error)
        return
    for verb in Verb:
        if identity.may(verb, device):
            identity.require(verb, device)
            continue
        try:
            identity.require(verb, device)
        except UnknownName:
            assert not identity.sees(device)
        except AccessError:
            assert identity.sees(device)
        else:
            raise AssertionError("it was let in")


TARGET = Target(
    run,
    seeds=(
        b"\x09weather-1read,write:weather-*",
        b"\x04demoadmin:*",
        b"\x05benchexec,session:[a-c]?nch",
        b"\x01xread:[!x]* write:[]-a]",
        b"\x00read:[[][!",
    ),
)
