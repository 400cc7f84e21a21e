"""Arguments of a wrong type: the error names the argument, and nothing is sent."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fastflight.client import AsyncFastFlightClient, FastFlightClient
from fastflight.client.argument_types import CHECKS, checks_arguments, checks_of
from fastflight.errors import RequestError
from fastflight.service.requests import DeviceListing

# Where nothing listens: a call that was sent would be a `TransportError`.
NOWHERE = "grpc://127.0.0.1:1"
# A value that fits for each annotation, and values that do not.
FITTING: dict[str, Any] = {
    "None": None,
    "str": "x",
    "bytes": b"x",
    "bool": True,
    "int": 1,
    "float": 1.5,
    "Path": Path("x"),
    "Sequence[str]": ["x"],
    "Mapping[str, str]": {"x": "int64"},
    "Mapping[str, Any]": {"x": 1},
    "Report": print,
}
NOT_FITTING: dict[str, list[Any]] = {
    "str": [Path("x"), b"x", 1, None],
    "bytes": ["x", 1],
    "bool": [1, "yes"],
    "int": [1.0, True, "1"],
    "float": [True, "1"],
    "Path": [b"x", 1],
    "Sequence[str]": ["x", b"x", [1], {"x": 1}],
    "Mapping[str, str]": [["x"], "x"],
    "Report": ["x", 1],
    "datetime": ["2026-01-01"],
    "Request": [{"type": "device.file"}],
}


def methods(client: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, method in inspect.getmembers(client, inspect.isfunction):
        if not name.startswith("_"):
            yield name, method


@pytest.mark.parametrize("client", [FastFlightClient, AsyncFastFlightClient])
def test_each_argument_of_each_verb(client: type) -> None:
    checked = [(name, argument) for name, method in methods(client) for argument in checks_of(method)]
    assert len(checked) > 100
    for name, argument in checked:
        check_refusal(client, name, argument)


def check_refusal(client: type, name: str, argument: str) -> None:
    signature = inspect.signature(getattr(client, name))
    required = [
        each.name for each in list(signature.parameters.values())[1:] if each.default is each.empty and each.kind != 4
    ]
    fitting = dict.fromkeys(required, FITTING["str"])
    if "request" in required:
        fitting["request"] = DeviceListing(device="demo")
    values = fitting | {argument: object()}

    async def call() -> None:
        result = getattr(client(NOWHERE), name)(**values)
        if inspect.isawaitable(result):
            await result

    with pytest.raises(RequestError, match="must be") as raised:
        asyncio.run(call())
    assert raised.value.where == argument, name
    assert name in raised.value.hint


def test_the_order_of_the_arguments_is_in_the_error() -> None:
    with pytest.raises(RequestError) as raised:
        FastFlightClient(NOWHERE).put_file(Path("main.py"), "demo", "/main.py")  # type: ignore[arg-type]
    expected = "device: must be a str, not PosixPath. The arguments are put_file(device, path, local)"
    assert str(raised.value).replace("WindowsPath", "PosixPath") == expected


@pytest.mark.parametrize("annotation", CHECKS)
def test_what_fits_an_annotation(annotation: str) -> None:
    class Example:
        def verb(self, value: Any) -> None: ...

    Example.verb.__annotations__["value"] = annotation
    checks_arguments(Example)
    if annotation in FITTING:
        Example().verb(FITTING[annotation])
    for value in NOT_FITTING.get(annotation, [object()]):
        with pytest.raises(RequestError, match="value: must be"):
            Example().verb(value)


def test_missing_and_unknown_arguments_are_type_errors() -> None:
    client = FastFlightClient(NOWHERE)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'path'"):
        client.stat("demo")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="has no option 'fromat'"):
        client.read("demo", "/a.csv", fromat="csv")  # type: ignore[call-arg]


def test_the_client_itself() -> None:
    for keys in ({"location": 5}, {"timeout": "5"}, {"credentials": "token"}):
        with pytest.raises(RequestError, match=f"{next(iter(keys))}: must be"):
            FastFlightClient(**keys)  # type: ignore[arg-type]
