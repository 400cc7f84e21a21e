"""Which devices of a fleet a request is about, and what is asked of whom for it."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pyarrow as pa
import pytest

from fastflight.access.authority import Authority
from fastflight.access.identity import Identity, scopes
from fastflight.concurrency import Shard
from fastflight.concurrency.blocking import NonBlocking, finish
from fastflight.errors import Forbidden
from fastflight.service.requests import DeviceFile, FleetFile
from fastflight.service.source import Batches, Estimate, Reading, Summary
from fastflight.sources.fleet_file import FleetFiles
from fastflight.sources.modes import begin, in_thread
from tests.support.function_source import FunctionSource
from tests.support.refusals import refused
from tests.support.source_items import items

NAMES = ["lab-1", "lab-2", "roof-1"]
# Reads all, and may stop what runs in the laboratory.
ADA = Identity("ada", scopes(["read:*", "exec:lab-*"]))


def parts(devices: str) -> list[str]:
    files = FleetFiles(FunctionSource(DeviceFile), lambda: NAMES, lambda name: pytest.fail("none is read"), lambda: [])
    asked = FleetFile(devices=devices, path="/x.csv", schema={"a": "int64"}, interrupt=True)
    narrowed = Authority().authorize(ADA, asked, "read")
    return [part.request.devices for part in files.parts(narrowed, Estimate(None)).parts]


def test_a_fleet_is_interrupted_where_each_that_fits_may_be() -> None:
    assert len(parts("lab-*")) == 2


def test_a_fleet_is_refused_where_one_that_fits_may_not_be_interrupted() -> None:
    with refused(Forbidden, where="roof-1"):
        parts("*")


def test_a_device_whose_columns_will_not_do_is_given_back_at_once() -> None:
    """Not with the last row of the others."""
    closed: list[str] = []

    def rows(name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            yield pa.record_batch([pa.array([1], pa.int64())], schema=schema)
        finally:
            closed.append(name)

    def read(request: DeviceFile) -> Reading:
        schema = pa.schema([("device" if request.device == "lab-1" else "n", pa.int64())])
        batches = NonBlocking(one_by_one(rows(request.device, schema)))
        return in_thread(finish(begin(KnownSchema(schema), batches)))

    with Shard() as shard:
        files = FleetFiles(FunctionSource(DeviceFile, read=read), lambda: NAMES[:2], lambda name: shard, lambda: [])
        reading = files.read(FleetFile(path="/x.arrow"))
        assert closed[:1] == ["lab-1"]
        assert sum(getattr(item, "num_rows", 0) for item in items(reading)) == 1
        assert [each["device"] for each in reading.summary()["failed"]] == ["lab-1"]
        reading.close()


class KnownSchema:
    """Rows whose schema is known."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema: pa.Schema | None = schema

    def summary(self) -> Summary:
        return {}


def one_by_one(rows: Iterator[pa.RecordBatch]) -> Generator[Batches, None, None]:
    for batch in rows:
        yield [batch]
