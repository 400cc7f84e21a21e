"""Collects the logs of a server's devices every so many minutes (`fastflight.client.collection`)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial

from fastflight.app.config import CollectTable, DeviceTable
from fastflight.app.local_board import LocalBoard
from fastflight.client.collection import collect_log
from fastflight.concurrency.threads import PeriodicThread
from fastflight.device import Inventory
from fastflight.errors import FastFlightError, UnknownName
from fastflight.lazy import Logger

log = Logger(__name__)

MINUTE_SECONDS = 60


class Collectors:
    """One thread for each device that has a log to collect."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._closing = threading.Event()
        # The reason of the last failure of each device, which is logged once.
        self._failures: dict[str, str] = {}
        self._threads: dict[str, tuple[CollectTable, PeriodicThread]] = {}

    def apply(self, devices: Mapping[str, DeviceTable]) -> None:
        """Collect the logs of these devices from now on. The first collection is after the first period: a board may
        still be booting.
        """
        wanted = {name: device.collect for name, device in devices.items() if device.collect is not None}
        for name, (table, thread) in list(self._threads.items()):
            if wanted.get(name) != table:
                thread.close()
                del self._threads[name]
        for name, table in wanted.items():
            if name not in self._threads:
                collect = partial(self._collect, name, table)
                thread = PeriodicThread(collect, table.minutes * MINUTE_SECONDS, f"collect-{name}")
                self._threads[name] = table, thread
                thread.start()

    def close(self) -> None:
        """End. A collection that is at work stops at the next block, and the next run continues it."""
        self._closing.set()
        for _, thread in self._threads.values():
            thread.close()

    def _collect(self, device: str, settings: CollectTable) -> None:
        try:
            board = LocalBoard(self._inventory.device(device))
            stopped = self._closing.is_set
            collected = collect_log(
                board, settings.path, settings.to, "fastflight serve", parquet=settings.parquet, stopped=stopped
            )
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
