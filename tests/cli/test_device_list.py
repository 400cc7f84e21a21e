"""`fastflight devices`, `devices add` and `devices remove`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.waiting import until

from .conftest import Run, demo_server


@pytest.fixture(scope="module")
def location() -> Iterator[str]:
    """A server of its own, because other tests count the devices of the shared one."""
    yield from demo_server()


def test_a_device_is_added_listed_and_removed(run: Run) -> None:
    # The log of the server in this process is on standard output, too.
    added = run("devices", "add", "new=sim:").stdout
    assert added.endswith("new: added until the server ends. Try: fastflight ls new\n")
    assert [each["name"] for each in json.loads(run("devices", "--json").stdout)] == ["demo", "new"]
    until(lambda: "closed" not in run("devices").stdout)  # the new board starts meanwhile
    assert run("devices").stdout == run("devices", "list").stdout
    assert "/readings.csv" in run("ls", "new").stdout
    assert run("devices", "remove", "new").stdout.endswith("new: removed\n")
    assert run("ls", "new").exit_code == 1
    assert [each["name"] for each in json.loads(run("devices", "list", "--json").stdout)] == ["demo"]
