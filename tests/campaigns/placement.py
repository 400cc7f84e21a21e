"""Places many devices on many servers, and counts which of them move when a server joins or leaves.

`python -m tests.campaigns.placement` takes a million devices and a thousand servers. It is pure computation: no server
runs. The least possible number of moves is: at a join, the newcomer's fair share of the devices; at a death, the
devices of the dead server. Ends with exit code 1 if more than 1.05 times as many move over all joins or all deaths.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np

from fastflight.cluster.placement import Hashes, hashes, scores

# The target: moves, by the least possible number.
LIMIT = 1.05


@dataclass(frozen=True, slots=True)
class Moves:
    """How many devices moved, and the least possible, over all joins and over all deaths."""

    joined: int
    least_joined: float
    died: int
    least_died: int
    # The devices of the fullest server, in shares of the mean.
    fullest: float

    @property
    def holds(self) -> bool:
        return self.joined <= LIMIT * self.least_joined and self.died <= LIMIT * self.least_died


def simulate(devices: int, servers: int, changes: int) -> Moves:
    """Place devices on servers. Let `changes` new servers join, each alone, and then as many of the old ones die."""
    of_devices = hashes([f"device-{n}" for n in range(devices)])
    names = hashes([f"server-{n}" for n in range(servers)])
    best, owner = _place(of_devices, names)
    load = np.bincount(owner, minlength=servers)
    new = hashes([f"new-{n}" for n in range(changes)])
    joined = sum(int(np.count_nonzero(scores(of_devices, each) > best)) for each in new)
    _, left = _place(of_devices, names[changes:])
    return Moves(
        joined,
        changes * devices / (servers + 1),
        int(np.count_nonzero(left + changes != owner)),
        int(load[:changes].sum()),
        float(load.max() / load.mean()),
    )


def _place(devices: Hashes, servers: Hashes) -> tuple[Hashes, Hashes]:
    """Return for each device the highest score, and the index of the server that has it."""
    best, owner = np.zeros(len(devices), np.uint64), np.zeros(len(devices), np.int64)
    for index, server in enumerate(servers):
        score = scores(devices, server)
        wins = score > best
        best[wins], owner[wins] = score[wins], index
    return best, owner


def main() -> None:
    """Run the simulation, and print what moved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=1_000_000)
    parser.add_argument("--servers", type=int, default=1_000)
    parser.add_argument(
        "--changes", type=int, default=20, help="how many servers join, and how many die: fewer than --servers"
    )
    options = parser.parse_args()
    if not 0 < options.changes < options.servers or options.devices < 1:
        parser.error("needs at least one device, and 0 < --changes < --servers")
    moves = simulate(options.devices, options.servers, options.changes)
    print(
        f"{options.devices:,} devices on {options.servers:,} servers; the fullest has {moves.fullest:.3f} of the mean"
    )
    for event, moved, least in (
        ("joins", moves.joined, moves.least_joined),
        ("deaths", moves.died, float(moves.least_died)),
    ):
        print(f"{options.changes} {event}: {moved:,} devices moved, {moved / least:.4f} of the least possible")
    sys.exit(0 if moves.holds else 1)


if __name__ == "__main__":
    main()
