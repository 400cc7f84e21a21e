"""`fastflight deploy`: bring a new version of a program to many boards, and back where it is not healthy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import device_name
from fastflight.cli.copies import globs_to_ignore
from fastflight.cli.deployment import Deployment, check_program
from fastflight.cli.exit_codes import REFUSED, usage_errors
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import FastFlightError, UnknownName, nearest

if TYPE_CHECKING:
    pass

# What came of it on a board.
ACCEPTED, BACK, FAILED, UNTOUCHED = "accepted", "back to the old version", "failed", "not tried"


@dataclass(slots=True)
class Report:
    """What one board did. `files` were moved to it. `why` says why it has no new version."""

    device: str
    result: str = UNTOUCHED
    files: int = 0
    why: str = ""


@interruptible
@with_device_options
def deploy(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A local folder with main.py.")],
    healthy: Annotated[
        str, typer.Option("--healthy", metavar="TEXT", help="What a healthy program prints soon after its start.")
    ],
    devices: Annotated[
        str | None,
        typer.Option("--devices", metavar="GLOB", help="The devices: 'lab-*'. Not needed for only one."),
    ] = None,
    within: Annotated[
        float, typer.Option("--within", min=0.1, max=3600.0, metavar="SECONDS", help="How soon it must print it.")
    ] = 30.0,
    canary: Annotated[
        str | None, typer.Option("--canary", metavar="DEVICE", help="The device to try first; else the first one.")
    ] = None,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Bring a new version of a program to boards. Where it is not healthy, the old version stays.

    FOLDER is stored and verified on all boards, beside the version that runs. Then the first board tries it: it
    restarts with the new version, and if that prints TEXT in time, it is accepted. If not, the board goes back, and no
    other board tries it. Then the other boards try it, one after the other.
    Programs that run on the boards are stopped for this, and started again.
    A board that loses its power at any moment starts the old version or the new one, as a whole.
    """
    with usage_errors():
        if not folder.is_dir():
            raise typer.BadParameter(f"{str(folder)!r} is not a folder")
        check_program(folder)
        ignore = globs_to_ignore(folder)
    with server.client() as client:
        known = [device.name for device in client.devices()]
        glob = devices or device_name(client, None)
        chosen = [name for name in known if fnmatchcase(name, glob)]
        if not chosen or canary not in (None, *chosen):
            raise UnknownName("no such device", where=canary or glob, hint=nearest(canary or glob, known))
        names = sorted(chosen, key=lambda name: name != canary)
        reports = {name: Report(name) for name in names}
        staged: dict[str, Deployment] = {}
        for name in names:
            deployment = Deployment(client, name, folder, ignore)
            if _stage(deployment, reports[name]):
                staged[name] = deployment
        if names[0] in staged:
            _switch_all(staged, reports, healthy, within)
        else:
            _restart(staged, reports)
    _show(list(reports.values()), json)
    if any(report.result != ACCEPTED for report in reports.values()):
        raise typer.Exit(REFUSED)


def _stage(deployment: Deployment, report: Report) -> bool:
    try:
        report.files = deployment.stage()
        return True
    except FastFlightError as error:
        report.result, report.why = FAILED, str(error)
        return False


def _switch_all(staged: dict[str, Deployment], reports: dict[str, Report], healthy: str, within: float) -> None:
    """Try the new version: on the first board, and if it is healthy there, on the others."""
    for number, (name, deployment) in enumerate(staged.items()):
        report = reports[name]
        try:
            screen.complain(f"{name}: restarting with the new version")
            trial = deployment.attempt(healthy, within)
            if trial.healthy:
                deployment.accept()
                report.result = ACCEPTED
            else:
                deployment.give_up()
                last = " ".join(trial.said.split())[-100:]
                report.result, report.why = BACK, f"it did not print {healthy!r} within {within:g} s, but: {last}"
        except FastFlightError as error:
            report.result, report.why = FAILED, str(error)
        if number == 0 and report.result != ACCEPTED:
            _restart({other: staged[other] for other in list(staged)[1:]}, reports)
            return


def _restart(staged: dict[str, Deployment], reports: dict[str, Report]) -> None:
    """Start the old versions again: storing the new one has stopped them."""
    for name, deployment in staged.items():
        try:
            deployment.give_up()
        except FastFlightError as error:
            reports[name].result, reports[name].why = FAILED, str(error)


def _show(reports: list[Report], json: bool) -> None:
    if json:
        screen.as_json([asdict(report) for report in reports])
        return
    rows = [(report.device, f"{report.files:,}", report.result, report.why or "-") for report in reports]
    screen.table(("device", "files moved", "result", "why"), rows, right=("files moved",))
