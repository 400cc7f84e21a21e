"""What `fastflight.client` and `fastflight` promise to hold: names, and the verbs of the clients with their options."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import is_typeddict

import pytest

import fastflight
from fastflight import AsyncFastFlightClient, FastFlightClient, client
from fastflight.client import options
from fastflight.client.options import NOT_SENT, OPTIONS
from fastflight.service.requests import DeviceFile, DeviceSession, DeviceTree, FleetFile, Recording

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text()
NOWHERE = "grpc://127.0.0.1:1"


def parameters(name: str, verb: object) -> tuple[list[str], list[str]]:
    """The arguments of a verb after `self`, and its options."""
    _, *given = inspect.signature(verb).parameters.values()  # type: ignore[arg-type]
    arguments = [each.name for each in given if each.kind is each.POSITIONAL_OR_KEYWORD]
    keywords = [each.name for each in given if each.kind is each.KEYWORD_ONLY]
    if any(each.kind is each.VAR_KEYWORD for each in given):
        assert given[-1].annotation == f"Unpack[{OPTIONS[name].__name__}]"
        keywords += OPTIONS[name].__annotations__
    return arguments, sorted(keywords)


# Each verb with its arguments, in order, and its options. `tests/stability` pins them.
VERBS = {
    name: parameters(name, verb)
    for name, verb in inspect.getmembers(FastFlightClient, inspect.isfunction)
    if not name.startswith("_") and name != "close"
}
REQUESTS = {
    "read_fleet": FleetFile,
    "put_tree": DeviceTree,
    "get_tree": DeviceTree,
    "session": DeviceSession,
    "recording": Recording,
}


def test_the_clients_are_at_the_top() -> None:
    assert fastflight.FastFlightClient is client.FastFlightClient
    assert fastflight.AsyncFastFlightClient is client.AsyncFastFlightClient


@pytest.mark.parametrize("verb", OPTIONS)
def test_help_says_where_the_options_stand(verb: str) -> None:
    assert f"`fastflight.client.options.{OPTIONS[verb].__name__}`" in (getattr(FastFlightClient, verb).__doc__ or "")
    assert f"See `FastFlightClient.{verb}`." in (getattr(AsyncFastFlightClient, verb).__doc__ or "")


@pytest.mark.parametrize("cls", list(filter(is_typeddict, vars(options).values())), ids=lambda cls: cls.__name__)
def test_each_option_is_described_once(cls: type) -> None:
    """By its own class; the first line names the classes that describe the others."""
    doc = inspect.getdoc(cls) or ""
    elsewhere = {key for name in re.findall(r"`(\w+Options)`", doc) for key in vars(options)[name].__annotations__}
    described = [name for names in re.findall(r"(?m)^- (.+?):", doc) for name in re.findall(r"`(\w+)`", names)]
    assert sorted(described) == sorted(cls.__annotations__.keys() - elsewhere)


@pytest.mark.parametrize("verb", OPTIONS)
def test_an_option_is_a_key_of_the_request_unless_the_client_keeps_it(verb: str) -> None:
    fields = REQUESTS.get(verb, DeviceFile).model_fields
    keys = {field.alias or name for name, field in fields.items()}
    assert {name.removesuffix("_") for name in OPTIONS[verb].__annotations__.keys() - set(NOT_SENT)} <= keys


@pytest.mark.parametrize("verb", OPTIONS)
def test_an_option_that_a_verb_does_not_have_is_refused(verb: str) -> None:
    arguments, keywords = VERBS[verb]
    says = re.escape(f"{verb}() has no option 'zzz'. Known: {', '.join(keywords)}")

    async def main() -> None:
        async with AsyncFastFlightClient(NOWHERE) as client:
            await getattr(client, verb)(*arguments, zzz=None)

    with FastFlightClient(NOWHERE) as client, pytest.raises(TypeError, match=f"^{says}$"):
        getattr(client, verb)(*arguments, zzz=None)
    with pytest.raises(TypeError, match=f"^{says}$"):
        asyncio.run(main())


def test_the_refusal_suggests_the_nearest_option() -> None:
    with FastFlightClient(NOWHERE) as client, pytest.raises(TypeError, match="Did you mean 'format'"):
        client.read("demo", "/readings.csv", formt="csv")  # type: ignore[call-arg]


def test_the_page_has_each_verb_and_its_options() -> None:
    rows = re.findall(r"^\| `(\w+)\(([^)]*)\)` \|[^|]*\|([^|]*)\|$", PAGE, re.MULTILINE)
    assert VERBS == {
        verb: (re.findall(r"(\w+)(?:=[^,]*)?", arguments), sorted(re.findall(r"`(\w+)`", keywords)))
        for verb, arguments, keywords in rows
    }
