"""A real server with a simulated board, in this process, and the command line in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fastflight.cli.main import app
from fastflight.client import FastFlightClient
from fastflight_benchmark import mock
from tests.support.servers import ready_server

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def location() -> Iterator[str]:
    yield from demo_server()


def demo_server() -> Iterator[str]:
    """The address of a server with a board of its own, for as long as the generator lives."""
    with ready_server(sources=(mock.SOURCE,)) as location:
        yield location


@pytest.fixture(scope="module")
def opened(location: str) -> str:
    """The same address, and the board's line open: a module before may have left it closed."""
    with FastFlightClient(location) as client:
        client.info("demo")
    return location


@pytest.fixture
def run(opened: str) -> Run:
    """Run a command against the server: `run("get", "demo:/readings.csv")`."""

    def invoke(*arguments: str, input: str | None = None) -> Result:
        result = CliRunner().invoke(app, arguments, env={"FASTFLIGHT_SERVER": opened, "COLUMNS": "120"}, input=input)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        may_raise = arguments[0] in ("exec", "run", "eval", "mount", "deploy")
        assert may_raise or "Traceback (most recent call last)" not in result.output
        return result

    return invoke
