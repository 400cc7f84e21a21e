"""Actions in the front that the workers carry out, and what the front says of itself and of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fastflight.cli.workers.pool import Pool, Worker
from fastflight.concurrency import Shards
from fastflight.device import Inventory
from fastflight.errors import FastFlightError
from fastflight.service.action import Action, Body
from fastflight.service.actions import Nothing, own_figures, state_actions
from fastflight.service.figures import Sample
from fastflight.service.ledger import Ledger
from fastflight.sources import device_actions
from fastflight.transport.url import shown

Result = Mapping[str, Any]


def forwarded_actions(pool: Pool) -> list[Action]:
    """Those on a device go to the worker that has it; `devices` tells of all of them."""
    return [
        replace(
            action, run=partial(_devices, pool) if action.name == "devices" else partial(_forward, pool, action.name)
        )
        for action in device_actions(Inventory({}))
    ]


# Those that say more where there are workers.
STATE = ("health", "stats")


def front_actions(ledger: Ledger, shards: Shards, pool: Pool) -> list[Action]:
    """`health` and `stats` as every server has them, with `workers`."""
    figures = own_figures(ledger, shards)
    figures.add(lambda: [Sample("fastflight_worker_restarts_total", sum(worker.restarts for worker in pool.workers))])
    return [
        replace(action, run=partial(_with_workers, action.run, pool, action.name)) if action.name in STATE else action
        for action in state_actions(ledger, shards, figures)
    ]


def _forward(pool: Pool, name: str, body: Any) -> list[Result]:
    worker = pool.owner(body.device)
    with worker.connected(body.device) as connection:
        return connection.results(name, body.model_dump_json(exclude_unset=True).encode())


def _devices(pool: Pool, _: Body) -> Iterator[Result]:
    """In the order of the settings. Of a worker that has ended: that the lines of its devices are not open."""
    told: dict[str, Result] = {}
    for worker in pool.workers:
        for result in _asked(worker, "devices") or _not_there(worker):
            told[result["name"]] = result
    return (told[name] for name in pool.names())


def _not_there(worker: Worker) -> list[Result]:
    return [
        {"name": name, "url": shown(url), "open": False, "holder": None, "recording": None}
        for name, url in worker.settings.devices.items()
    ]


def _with_workers(run: Callable[[Any], Iterable[Result]], pool: Pool, name: str, body: Nothing) -> Iterator[Result]:
    for result in run(body):
        workers = pool.stats()
        if name == "stats":
            for told, worker in zip(workers, pool.workers, strict=True):
                told["stats"] = next(iter(_asked(worker, "stats")), None)
        yield {**result, "workers": workers}


def _asked(worker: Worker, name: str) -> list[Result]:
    """What a worker says; nothing while it has ended."""
    try:
        with worker.connected("") as connection:
            return connection.results(name, b"{}")
    except FastFlightError:
        return []
