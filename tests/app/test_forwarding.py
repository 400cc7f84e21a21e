"""What happens to a request that is passed on when the owner fails in the middle of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pyarrow as pa

from fastflight.app.forwarding import Forwarded, Forwarding
from fastflight.errors import TransportClosed
from fastflight.service import SourceFunctions
from fastflight.service.requests import DeviceFile
from tests.support.refusals import refused


class FailingOwner:
    """A connection to a server that goes away as soon as something is written to it."""

    def upload(self, *_: object) -> FailingOwner:
        return self

    def run(self) -> None:
        raise TransportClosed("the server went away")

    def give_up(self) -> None:
        """Has nothing to give up."""


class Elsewhere:
    """Has all devices at the failing owner."""

    async def aroute(self, device: str) -> FailingOwner:
        return FailingOwner()


def test_a_client_that_waits_for_an_acknowledgement_hears_of_the_failure() -> None:
    async def batches() -> AsyncIterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        await asyncio.Event().wait()  # the client sends nothing more until the first batch is acknowledged

    async def scenario() -> None:
        forwarded = Forwarded(cast(Forwarding, Elsewhere()), cast(SourceFunctions[Any], None))
        request = DeviceFile(device="board", path="/a.csv")
        with refused(TransportClosed):
            await forwarded.awrite(request, pa.schema([]), batches(), lambda _: None)

    asyncio.run(scenario())
