"""The faults of the campaign `cluster`. Each is mended as an operator would do it, or ends by itself."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tests.campaigns.clustering.stage import LINKS, NODES, SERVERS, ClusterStage
from tests.campaigns.engine import Fault
from tests.support.chaos import ChaosProxy
from tests.support.waiting import until

# How long a fault lasts: some outlast a lease, and most do not. What is killed may be started again at once.
LASTING, DOWN = (0.3, 5.0), (0.0, 5.0)
CLOCK_STEPS = (-86_400, -5, 5, 86_400)
# Each byte of a slow link waits so long.
SLOW = ("delay:out@0=0.02", "delay:back@0=0.02", "throttle:out@0=100000")
SILENT = ("silence:out@0s=0", "silence:back@0s=0")
READY_SECONDS = 60.0


def restart_server(stage: ClusterStage, name: str) -> None:
    """Stop a server with a signal and start it again, as an update does."""
    if code := stage.servers[name].program.stop():
        raise AssertionError(f"{name} was stopped with a signal, and its exit code is {code}")
    stage.servers[name].program.start()


def restart_node(stage: ClusterStage, name: str) -> None:
    stage.nodes[name].stop()
    stage.nodes[name].start()


def roll_servers(stage: ClusterStage, first: str) -> None:
    """As an update of all servers does it: one after another."""
    for name in sorted(SERVERS, key=lambda name: name != first):
        restart_server(stage, name)


def roll_nodes(stage: ClusterStage, first: str) -> None:
    """As an update of NATS does it: one node after another, each when the one before it is ready."""
    for name in sorted(NODES, key=lambda name: name != first):
        restart_node(stage, name)
        until(stage.nodes[name].is_healthy, READY_SECONDS)


def signal_node(stage: ClusterStage, name: str, number: signal.Signals) -> None:
    process = stage.nodes[name].process
    assert process is not None
    process.send_signal(number)


def links(stage: ClusterStage, name: str) -> list[ChaosProxy]:
    """Return the proxies of a link, or of all links of a server or a node."""
    return [
        proxy for link, proxies in stage.links.items() if name == link or name in link.split("-") for proxy in proxies
    ]


def strike_links(stage: ClusterStage, name: str, *specs: str) -> None:
    for proxy in links(stage, name):
        proxy.strike(*specs)


def mend_links(stage: ClusterStage, name: str) -> None:
    for proxy in links(stage, name):
        proxy.mend()


def unplug(stage: ClusterStage, name: str) -> None:
    for proxy in links(stage, name):
        proxy.unplug()


def plug(stage: ClusterStage, name: str) -> None:
    for proxy in links(stage, name):
        proxy.plug()


def empty_node_disk(stage: ClusterStage, name: str) -> None:
    """Its operator makes room, and starts the node again."""
    stage.disks[name].empty()
    restart_node(stage, name)


def set_clock(stage: ClusterStage, target: str) -> None:
    name, seconds = target.split()
    stage.servers[name].clock.set(float(seconds))


class Kind(NamedTuple):
    """A kind of fault at one of `targets`: how it begins and ends, and between how many seconds it lasts."""

    targets: Sequence[str]
    begin: Callable[[ClusterStage, str], object]
    mend: Callable[[ClusterStage, str], object] = lambda stage, target: None
    seconds: tuple[float, float] = (0.0, 0.0)


KINDS: dict[str, Kind] = {
    "server killed": Kind(
        SERVERS, lambda s, name: s.servers[name].program.kill(), lambda s, name: s.servers[name].program.start(), DOWN
    ),
    "server stopped for a while": Kind(
        SERVERS,
        lambda s, name: s.servers[name].program.freeze(True),
        lambda s, name: s.servers[name].program.freeze(False),
        LASTING,
    ),
    "server restarted": Kind(SERVERS, restart_server),
    "all servers restarted in turn": Kind(SERVERS, roll_servers),
    "NATS node killed": Kind(NODES, lambda s, name: s.nodes[name].kill(), lambda s, name: s.nodes[name].start(), DOWN),
    "NATS node stopped for a while": Kind(
        NODES,
        lambda s, name: signal_node(s, name, signal.SIGSTOP),
        lambda s, name: signal_node(s, name, signal.SIGCONT),
        LASTING,
    ),
    "NATS node restarted": Kind(NODES, restart_node),
    "all NATS nodes restarted in turn": Kind(NODES, roll_nodes),
    "link cut": Kind(LINKS, unplug, plug, LASTING),
    "one cut off from all": Kind((*SERVERS, *NODES), unplug, plug, LASTING),
    # Bytes vanish, and neither side notices.
    "link silent": Kind(LINKS, lambda s, name: strike_links(s, name, *SILENT), mend_links, LASTING),
    "link slow": Kind(LINKS, lambda s, name: strike_links(s, name, *SLOW), mend_links, LASTING),
    "disk of a NATS node full": Kind(NODES, lambda s, name: s.disks[name].fill(), empty_node_disk, LASTING),
    "disk of a server full": Kind(
        SERVERS, lambda s, name: s.disks[name].fill(), lambda s, name: s.disks[name].empty(), LASTING
    ),
    "clock of a server set": Kind(
        [f"{name} {seconds:+}" for name in SERVERS for seconds in CLOCK_STEPS],
        set_clock,
        lambda s, target: s.servers[target.split()[0]].clock.set(0),
        LASTING,
    ),
}


def draw(stage: ClusterStage, kind: str, chance: random.Random) -> Fault:
    """Choose the target of a fault of this kind, and how long it lasts."""
    targets, begin, mend, seconds = KINDS[kind]
    target = chance.choice(targets)
    return Fault(kind, target, partial(begin, stage, target), partial(mend, stage, target), chance.uniform(*seconds))


def stops_same(*kinds: str) -> bool:
    """Whether faults may stop and start the same program, so that they must come one after the other."""
    groups = [
        {program for program in ("NATS node", "server") if program in kind and "clock" not in kind} for kind in kinds
    ]
    return len(groups) > 1 and bool(set.intersection(*groups))


def ready(stage: ClusterStage) -> None:
    """Wait until all NATS nodes are ready again."""
    until(lambda: all(node.is_healthy() for node in stage.nodes.values()), READY_SECONDS)
