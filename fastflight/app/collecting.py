"""Collects the logs of a server's devices every so many minutes (`fastflight.client.collection`).

In a fleet file, where unknown keys are errors and paths are relative to the file::

    [devices.weather]
    url = "serial:///dev/ttyACM0"
    agent = true
    collect = { path = "/log.csv", to = "collected", minutes = 10 }
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from fastflight.app.access_settings import resolve_path
from fastflight.app.local_board import LocalBoard
from fastflight.client.collected_part import as_parquet
from fastflight.client.collection import Collection, folder_of
from fastflight.concurrency.periodic import PeriodicThread
from fastflight.device import Inventory
from fastflight.errors import FastFlightError, UnknownName
from fastflight.lazy import Logger
from fastflight.log.lock import FileLock

log = Logger(__name__)

MOST_MINUTES = 7 * 24 * 60


class FleetCollect(BaseModel):
    """The key `collect` of a device."""

    model_config = ConfigDict(extra="forbid")

    path: str
    to: str
    minutes: Annotated[float, Field(gt=0, le=MOST_MINUTES)]
    parquet: Annotated[bool, Field(strict=True)] = False


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """A log of a device, the folder in which the device gets a folder, and how often the log is collected."""

    path: str
    to: Path
    seconds: float
    parquet: bool = False


def collect_settings(table: FleetCollect, fleet_folder: Path, where: str) -> CollectSettings:
    """Return the settings of the key `collect`, which stands at `where`."""
    return CollectSettings(table.path, resolve_path(fleet_folder, table.to, where), 60 * table.minutes, table.parquet)


class Collectors:
    """One thread for each device that has a log to collect."""

    def __init__(self, inventory: Inventory, settings: Mapping[str, CollectSettings]) -> None:
        self._board = LocalBoard.of(inventory)
        self._closing = threading.Event()
        # The reason of the last failure of each device, which is logged once.
        self._failures: dict[str, str] = {}
        self._threads = [
            PeriodicThread(partial(self._collect, device, each), each.seconds, f"collect-{device}")
            for device, each in settings.items()
        ]

    def open(self) -> None:
        """Begin. The first collection is after the first period: a board may still be booting."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End. A collection that is at work stops at the next block, and the next run continues it."""
        self._closing.set()
        for thread in self._threads:
            thread.close()

    def _collect(self, device: str, settings: CollectSettings) -> None:
        try:
            folder = folder_of(settings.to, device, settings.path)
            lock = FileLock(folder / "collect.lock", "fastflight serve")
            try:
                convert = as_parquet if settings.parquet else None
                collection = Collection(
                    self._board, device, settings.path, folder, convert=convert, stopped=self._closing.is_set
                )
                collected = collection.run()
            finally:
                lock.close()
        except FastFlightError as error:
            if self._closing.is_set() or isinstance(error, UnknownName):  # the device was removed
                return
            if self._failures.get(device) != error.what:
                log.warning("a log was not collected", device=device, path=settings.path, reason=error.what)
            self._failures[device] = error.what
            return
        self._failures.pop(device, None)
        if collected.parts:
            log.info("a log was collected", device=device, path=settings.path, bytes=collected.bytes)
