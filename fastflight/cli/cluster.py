"""`fastflight cluster`: show the state of a cluster, and run one on this computer to try it."""

from __future__ import annotations

import signal
from typing import Annotated, Any

import typer

from fastflight.cli import screen
from fastflight.cli.exit_codes import report_errors
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_server_options
from fastflight.errors import quantity

app = typer.Typer(
    help="Show the servers of a cluster and the owners of devices, or run a cluster to try it.",
    no_args_is_help=True,
    add_completion=False,
)

# Each is a process of its own.
MAX_BOARDS = 200


@app.command()
@interruptible
@with_server_options
def status(json: AsJson = False, server: Server = DEFAULT_SERVER) -> None:
    """Show the servers of a cluster, the owner of each device, and the copies of what NATS stores.

    Rows wait at the owner of a recorded device until NATS has stored them.
    """
    with server.client() as client:
        known = client.cluster() | client.cluster_storage()
    if json:
        screen.as_json(known)
        return
    _show(known)


@app.command()
def demo(
    boards: Annotated[
        int, typer.Option("--boards", metavar="N", min=1, max=MAX_BOARDS, help="Number of simulated boards.")
    ] = 30,
) -> None:
    """Run three NATS servers, three fastflight servers and simulated boards on this computer, until Ctrl-C.

    Prints what to try. Needs the extra `demo`.
    """
    # Importing these takes longer than most commands take to run.
    from fastflight.app.local_cluster import demo_cluster
    from fastflight.app.process import stop_signal
    from fastflight.client import FastFlightClient

    with report_errors(), stop_signal() as wait_for_signal:
        screen.complain(f"starting three NATS servers, three servers and {quantity(boards, 'board')}")
        with demo_cluster(boards) as cluster:
            servers = list(cluster.servers.values())
            first, second = servers[:2]
            with FastFlightClient(first.location) as client:
                _show(client.cluster() | client.cluster_storage())
            screen.lines(
                "\nTry:\n"
                f"  fastflight cluster status --server {second.location}\n"
                f"  fastflight tail {cluster.boards[0]} --reconnect --server {second.location}\n"
                f"  fastflight ls {cluster.boards[-1]} --server {second.location}\n"
                f"  kill -9 {first.process.pid}        # {first.name}: its boards move within 6 seconds\n"
                + "".join(f"  {each.http}        # the live page of {each.name}\n" for each in servers)
                + f"Logs and the fleet file are in {cluster.folder}. Ctrl-C ends all of it.\n"
            )
            wait_for_signal()
            screen.complain("stopping")
            # A second Ctrl-C would leave processes behind. Ending them takes a bounded time.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)


def _show(known: dict[str, Any]) -> None:
    rows = [
        (each["name"], each["location"], str(each["devices"]), ", ".join(each["differs"]) or "-")
        for each in known["servers"]
    ]
    if rows:  # none before this server is a member
        screen.table(("server", "location", "devices", "fleet file differs"), rows, right=("devices",))
        screen.lines("\n")
    waiting = known["waiting"]
    ages = known.get("oldest_waiting", {})  # older servers do not have these two
    unanswered = known.get("unanswered", ())
    silent = {each["name"] for each in unanswered}
    devices = [
        (
            each["name"],
            each["owner"] or "-",
            "unknown" if each["owner"] in silent else str(waiting.get(each["name"], "-")),
            f"{ages[each['name']]['seconds']:,.1f} s" if each["name"] in ages else "-",
            # What is wrong with this server is said once, below.
            (each["why"] or "").removesuffix(f": {known['trouble']}"),
        )
        for each in known["devices"]
    ]
    screen.table(("device", "owner", "rows waiting", "oldest", ""), devices, right=("rows waiting", "oldest"))
    replicas = [
        (
            each["name"],
            f"{each['current']} of {each['replicas']}",
            each["leader"] or "-",
            ", ".join(each["behind"]) or "-",
        )
        for each in known["replicas"]
    ]
    if replicas:
        screen.lines("\n")
        screen.table(("in NATS", "current", "leader", "behind"), replicas)
        screen.lines(
            "NATS does not tell whether it writes to the disk before it acknowledges: check that the configuration of "
            "each node has sync_interval: always\n"
        )
    for each in known["replicas"]:
        if each["replicas"] < each.get("wanted", 1):  # older servers do not have it
            screen.complain(
                f"NATS keeps {each['replicas']} of {each['wanted']} copies of {each['name']}. The log of a "
                "server says why it makes no more"
            )
    if differing := [each["name"] for each in known["servers"] if each["differs"]]:
        screen.complain(
            f"The fleet file of {known['server']} is not that of {', '.join(differing)}. Devices whose settings differ "
            "stay where they are. Give all servers the same file, and send them SIGHUP"
        )
    for each in unanswered:
        screen.complain(
            f"{each['name']} gives no answer at {each['location']}: {each['why']}. "
            "Check its --cluster-location and its token_file"
        )
    if known["trouble"]:
        screen.complain(f"{known['server']} is not a member of its cluster: {known['trouble']}")
