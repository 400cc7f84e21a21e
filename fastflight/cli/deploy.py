"""`fastflight deploy`: bring a new version of a program to many boards, and back where it is not healthy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastflight.cli import screen
from fastflight.cli.arguments import device_name
from fastflight.cli.copies import globs_to_ignore
from fastflight.cli.deployment import Deployment, Health, check_program
from fastflight.cli.exit_codes import REFUSED, usage_errors
from fastflight.cli.interruption import interruptible
from fastflight.cli.options import AsJson
from fastflight.cli.server_options import DEFAULT_SERVER, Server, with_device_options
from fastflight.errors import FastFlightError, UnknownName, nearest

if TYPE_CHECKING:
    from fastflight.client.board import Board

# Boards that get the version, or try it, at the same time.
AT_ONCE = 16
# What came of it on a board.
ACCEPTED, BACK, FAILED, UNTOUCHED = "accepted", "back to the old version", "failed", "not tried"


@dataclass(slots=True)
class Report:
    """What one board did. `files` were moved to it. `why` says why it has no new version.

    `traceback` is what the board printed, if the new version raised.
    """

    device: str
    result: str = UNTOUCHED
    files: int = 0
    why: str = ""
    traceback: str = ""


@interruptible
@with_device_options
def deploy(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A local folder with main.py.")],
    healthy: Annotated[
        str | None, typer.Option("--healthy", metavar="TEXT", help="What a healthy program prints after its start.")
    ] = None,
    by_agent: Annotated[
        bool, typer.Option("--by-agent", help="It is healthy if its agent answers, and says that this version runs.")
    ] = False,
    devices: Annotated[
        str | None,
        typer.Option("--devices", metavar="GLOB", help="The devices: 'lab-*'. Not needed for only one."),
    ] = None,
    within: Annotated[
        float, typer.Option("--within", min=0.1, max=3600.0, metavar="SECONDS", help="How soon it must be healthy.")
    ] = 30.0,
    canary: Annotated[
        str | None, typer.Option("--canary", metavar="DEVICE", help="The device to try first; else the first one.")
    ] = None,
    json: AsJson = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Bring a new version of a program to boards. Where it is not healthy, the old version stays.

    FOLDER is stored and verified on all boards, beside the version that runs. Then the first board tries it: it
    restarts with the new version, and if that is healthy in time, it is accepted. If not, the board goes back, and no
    other board tries it. Then the other boards try it, at most 16 at the same time.
    The sign of health is --healthy, --by-agent, or both.
    Programs that run on the boards are stopped for this, and started again.
    A board that loses its power at any moment starts the old version or the new one, as a whole.
    """
    with usage_errors():
        if not folder.is_dir():
            raise typer.BadParameter(f"{str(folder)!r} is not a folder")
        if healthy is None and not by_agent:
            raise typer.BadParameter("say what a healthy version does: --healthy TEXT, --by-agent, or both")
        check_program(folder)
        ignore = globs_to_ignore(folder)
    with server.boards(changes=True) as found:
        known = [device.name for device in found.devices()]
        glob = devices or device_name(found, None)
    chosen = [name for name in known if fnmatchcase(name, glob)]
    if not chosen or canary not in (None, *chosen):
        raise UnknownName("no such device", where=canary or glob, hint=nearest(canary or glob, known))
    names = sorted(chosen, key=lambda name: name != canary)
    boards = [_Board(server, Deployment(folder, ignore), Report(name)) for name in names]
    _at_once(_Board.stage, boards)
    health = Health(healthy, by_agent, within)
    first, *others = boards
    if first.is_staged:
        first.switch(health)
    if first.report.result == ACCEPTED:
        _at_once(lambda board: board.switch(health), others)
    else:
        _at_once(_Board.restart, others)
    reports = [board.report for board in boards]
    _show(reports, json)
    if any(report.result != ACCEPTED for report in reports):
        raise typer.Exit(REFUSED)


@dataclass(slots=True)
class _Board:
    """One board. Each step has a connection of its own, so that boards can take it at the same time. Reports errors."""

    server: Server
    deployment: Deployment
    report: Report
    is_staged: bool = False

    def stage(self) -> None:
        """Store the version on the board."""

        def step(board: Board, gentle: Board) -> None:
            self.report.files = self.deployment.stage(board)
            self.is_staged = True

        self._take(step)

    def switch(self, health: Health) -> None:
        """Have the board try the version, and accept it or go back."""

        def step(board: Board, gentle: Board) -> None:
            screen.complain(f"{self.report.device}: restarting with the new version")
            if trouble := self.deployment.attempt(board, gentle, health):
                self.deployment.give_up(board)
                self.report.result, self.report.why, self.report.traceback = BACK, trouble.why, trouble.traceback
            else:
                self.deployment.accept(board)
                self.report.result = ACCEPTED

        if self.is_staged:
            self._take(step)

    def restart(self) -> None:
        """Start the old version again: storing the new one has stopped it."""
        if self.is_staged:
            self._take(lambda board, gentle: self.deployment.give_up(board))

    def _take(self, step: Callable[[Board, Board], None]) -> None:
        """Call `step` with the board, whose program may be stopped, and the board whose program may not."""
        name = self.report.device
        try:
            with self.server.boards() as boards:
                step(boards.board(name, interrupt=True), boards.board(name))
        except FastFlightError as error:
            self.report.result, self.report.why = FAILED, str(error)
            with suppress(FastFlightError), self.server.boards() as boards:
                self.deployment.restore(boards.board(name, interrupt=True))


def _at_once(step: Callable[[_Board], None], boards: Sequence[_Board]) -> None:
    """Take a step on several boards at the same time. An interrupt waits for none of them: each may stop anywhere."""
    if len(boards) == 1:
        step(boards[0])
        return
    threads = ThreadPoolExecutor(AT_ONCE, "deploy")
    try:
        for _ in threads.map(step, boards):
            pass
    except BaseException:
        threads.shutdown(wait=False, cancel_futures=True)
        raise
    threads.shutdown()


def _show(reports: list[Report], json: bool) -> None:
    if json:
        screen.as_json([asdict(report) for report in reports])
        return
    rows = [(report.device, f"{report.files:,}", report.result, report.why or "-") for report in reports]
    screen.table(("device", "files moved", "result", "why"), rows, right=("files moved",))
    for report in reports:
        if report.traceback:
            screen.complain(f"{report.device}: {report.traceback}")
