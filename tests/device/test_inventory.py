"""Devices that are added while others are in use."""

from __future__ import annotations

import pytest

from fastflight.device import Device, Inventory
from fastflight.errors import RequestError


def test_a_device_is_prepared_before_anybody_finds_it() -> None:
    with Inventory({}) as inventory:

        def number(device: Device) -> None:
            assert inventory.find("demo") is None
            device.tap.begin_at(40)

        inventory.add("demo", "sim:", prepare=number)
        assert inventory.device("demo").tap.next_seq == 40


def test_a_device_that_cannot_be_prepared_is_not_there() -> None:
    def fail(device: Device) -> None:
        raise RequestError("no")

    with Inventory({}) as inventory:
        with pytest.raises(RequestError, match="no"):
            inventory.add("demo", "sim:", prepare=fail)
        assert inventory.find("demo") is None
        inventory.add("demo", "sim:")
        with pytest.raises(RequestError, match="there is a device of this name"):
            inventory.add("demo", "sim:")
