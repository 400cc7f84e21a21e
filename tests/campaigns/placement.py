"""Places many devices on many servers, and counts which of them move when a server joins or leaves.

`python -m tests.campaigns.placement` takes a million devices and a thousand servers. It is pure computation: no server
runs. The least possible number of moves is: at a join, the newcomer's fair share of the devices; at a death, the
devices of the dead server. Ends with exit code 1 if more than 1.05 times as many move over all joins or all deaths.
"""

from __future__ import annotations

import argparse
import sys

from fastflight_benchmark.suites.cluster.placement import simulate


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
