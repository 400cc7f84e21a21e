"""The faults of the campaign `cluster`: each strikes, lasts, and is mended as an operator would, or by itself."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

from fastflight.errors import FastFlightError
from tests.campaigns.clustering.stage import NODES, SERVERS, ClusterStage
from tests.support.waiting import until

# Some faults outlast a lease, and most do not.
LEAST_SECONDS, MOST_SECONDS = 0.3, 5.0
CLOCK_STEPS = (-86_400, -5, 5, 86_400)
# Each byte of a slow link waits so long.
SLOW = ("delay:out@0=0.02", "delay:back@0=0.02", "throttle:out@0=100000")
READY_SECONDS = 60.0

Fault = Callable[[ClusterStage, random.Random, "Pause"], Iterator[str]]
# Waits while a fault is in force.
Pause = Callable[[float], object]


def kill_server(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    name = chance.choice(SERVERS)
    yield name
    stage.servers[name].program.kill()
    pause(chance.uniform(0, MOST_SECONDS))
    stage.servers[name].program.start()


def freeze_server(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    name = chance.choice(SERVERS)
    yield name
    stage.servers[name].program.freeze(True)
    try:
        pause(chance.uniform(LEAST_SECONDS, MOST_SECONDS))
    finally:
        stage.servers[name].program.freeze(False)


def restart_server(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    """As an update does it: it is told to end, and starts again."""
    name = chance.choice(SERVERS)
    yield name
    _restart(stage, name)


def roll_servers(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    """As an update of all servers does it: one after another."""
    names = chance.sample(SERVERS, len(SERVERS))
    yield ", ".join(names)
    for name in names:
        _restart(stage, name)


def _restart(stage: ClusterStage, name: str) -> None:
    if code := stage.servers[name].program.stop():
        raise AssertionError(f"{name} was told to end, and its exit code is {code}")
    stage.servers[name].program.start()


def roll_nodes(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    """As an update of NATS does it: one node after another, each when the one before it is ready."""
    names = chance.sample(NODES, len(NODES))
    yield ", ".join(names)
    for name in names:
        stage.nodes[name].stop()
        stage.nodes[name].start()
        until(stage.nodes[name].is_healthy, READY_SECONDS)


def kill_node(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    name = chance.choice(NODES)
    yield name
    stage.nodes[name].kill()
    pause(chance.uniform(0, MOST_SECONDS))
    stage.nodes[name].start()


def freeze_node(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    name = chance.choice(NODES)
    yield name
    process = stage.nodes[name].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        pause(chance.uniform(LEAST_SECONDS, MOST_SECONDS))
    finally:
        process.send_signal(signal.SIGCONT)


def restart_node(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    name = chance.choice(NODES)
    yield name
    stage.nodes[name].stop()
    stage.nodes[name].start()


def cut_link(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    """A partition between two."""
    name = chance.choice(sorted(stage.links))
    yield name
    for proxy in stage.links[name]:
        proxy.unplug()
    try:
        pause(chance.uniform(LEAST_SECONDS, MOST_SECONDS))
    finally:
        for proxy in stage.links[name]:
            proxy.plug()


def cut_off(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    """A partition between one and all others."""
    name = chance.choice((*SERVERS, *NODES))
    yield name
    links = [proxy for link, proxies in stage.links.items() if name in link.split("-") for proxy in proxies]
    for proxy in links:
        proxy.unplug()
    try:
        pause(chance.uniform(LEAST_SECONDS, MOST_SECONDS))
    finally:
        for proxy in links:
            proxy.plug()


def silence_link(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    """Bytes vanish, and neither side is told."""
    name = chance.choice(sorted(stage.links))
    yield name
    for proxy in stage.links[name]:
        proxy.strike("silence:out@0s=0", "silence:back@0s=0")
    try:
        pause(chance.uniform(LEAST_SECONDS, MOST_SECONDS))
    finally:
        for proxy in stage.links[name]:
            proxy.mend()


def slow_link(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    name = chance.choice(sorted(stage.links))
    yield name
    for proxy in stage.links[name]:
        proxy.strike(*SLOW)
    try:
        pause(chance.uniform(LEAST_SECONDS, MOST_SECONDS))
    finally:
        for proxy in stage.links[name]:
            proxy.mend()


def full_node_disk(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    """The disk of a NATS node is full for a while. Its operator makes room, and starts it again."""
    name = chance.choice(NODES)
    yield name
    with _filled(stage, name):
        pause(chance.uniform(LEAST_SECONDS, MOST_SECONDS))
    stage.nodes[name].stop()
    stage.nodes[name].start()


def full_server_disk(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    """The disk of a server's buffer is full for a while."""
    name = chance.choice(SERVERS)
    yield name
    with _filled(stage, name):
        pause(chance.uniform(LEAST_SECONDS, MOST_SECONDS))


@contextlib.contextmanager
def _filled(stage: ClusterStage, name: str) -> Iterator[None]:
    disk = stage.disks[name]
    try:
        disk.fill()
        yield
    finally:
        disk.empty()


def step_clock(stage: ClusterStage, chance: random.Random, pause: Pause) -> Iterator[str]:
    """The time of day of a server is set, and set right again."""
    name = chance.choice(SERVERS)
    seconds = chance.choice(CLOCK_STEPS)
    yield f"{name} {seconds:+}"
    stage.servers[name].clock.set(seconds)
    pause(chance.uniform(LEAST_SECONDS, MOST_SECONDS))
    stage.servers[name].clock.set(0)


FAULTS: dict[str, Fault] = {
    "server killed": kill_server,
    "server stopped for a while": freeze_server,
    "server restarted": restart_server,
    "all servers restarted in turn": roll_servers,
    "NATS node killed": kill_node,
    "NATS node stopped for a while": freeze_node,
    "NATS node restarted": restart_node,
    "all NATS nodes restarted in turn": roll_nodes,
    "link cut": cut_link,
    "one cut off from all": cut_off,
    "link silent": silence_link,
    "link slow": slow_link,
    "disk of a NATS node full": full_node_disk,
    "disk of a server full": full_server_disk,
    "clock of a server set": step_clock,
}


def stops_same(one: str, other: str) -> bool:
    """Whether both kinds of faults may stop and start the same program, so that they must come one after the other."""
    nodes, servers = (
        {kind for kind in FAULTS if program in kind and "clock" not in kind} for program in ("NATS node", "server")
    )
    return any(one in group and other in group for group in (nodes, servers))


class Striking(threading.Thread):
    """A fault while it is in force, in a thread of its own. `what` names it; `flaw` says what it must not have met."""

    def __init__(self, stage: ClusterStage, kind: str, chance: random.Random, pause: Pause) -> None:
        super().__init__(name=kind)
        self._course = FAULTS[kind](stage, chance, pause)
        self.kind, self.what, self.flaw = kind, f"{kind}: {next(self._course)}", ""
        self.seconds = 0.0
        self.start()

    def run(self) -> None:
        began = time.monotonic()
        try:
            with contextlib.suppress(StopIteration):
                next(self._course)
        except (AssertionError, FastFlightError, OSError) as error:
            self.flaw = f"{self.what}: {error}"
        self.seconds = time.monotonic() - began


def ready(stage: ClusterStage) -> None:
    """Wait until all NATS nodes are ready again."""
    until(lambda: all(node.is_healthy() for node in stage.nodes.values()), READY_SECONDS)
