"""Which devices of a fleet a request is about, and what is asked of whom for it."""

from __future__ import annotations

import pytest

from fastflight.errors import Forbidden
from fastflight.service import Source
from fastflight.service.authority import Authority
from fastflight.service.identity import Identity, scopes
from fastflight.service.requests import DeviceFile, FleetFile
from fastflight.service.source import Estimate
from fastflight.sources.fleet_file import FleetFiles

NAMES = ["lab-1", "lab-2", "roof-1"]
# Reads all, and may stop what runs in the laboratory.
ADA = Identity("ada", scopes(["read:*", "exec:lab-*"]))


def parts(devices: str) -> list[str]:
    files = FleetFiles(Source(DeviceFile), lambda: NAMES, lambda name: pytest.fail("none is read"), lambda: [])
    asked = FleetFile(devices=devices, path="/x.csv", schema={"a": "int64"}, interrupt=True)
    narrowed = Authority().authorize(ADA, asked, "read")
    return [part.request.devices for part in files.parts(narrowed, Estimate(None)).parts]


def test_a_fleet_is_interrupted_where_each_that_fits_may_be() -> None:
    assert len(parts("lab-*")) == 2


def test_a_fleet_is_refused_where_one_that_fits_may_not_be_interrupted() -> None:
    with pytest.raises(Forbidden, match="roof-1: ada may not exec here"):
        parts("*")
