"""The faults that can happen during a piece of work, and where. One is chosen at random from those the stage allows.

A fault is armed when the work begins, and strikes at a place in the traffic or, one time in four, after a moment.
"""

from __future__ import annotations

import contextlib
import random
import resource
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tests.campaigns.engine import Fault
from tests.campaigns.faulting.guard import HELLO_BYTES, OPEN
from tests.campaigns.faulting.stage import (
    BRIDGE_BOARD,
    BROWSER_GATEWAY,
    CLIENT_SERVER,
    FILES,
    RELAY_TARGET,
    RFC2217,
    SERIAL,
    SERVER_BOARD,
    TALKER,
    TOOL_BRIDGE,
    Stage,
)
from tests.campaigns.faulting.works import Rows, Work
from tests.support.chaos import ChaosProxy, Kind, Way, drawn
from tests.support.chaos import Fault as TrafficFault
from tests.support.small_disk import BLOCK_BYTES

# Of a strike by the clock: no work is done much later than this.
MOMENT_SECONDS = 1.0
# What goes the other way than the content: requests, acknowledgements, code for the board.
ANSWER_BYTES = 400
# However large it is, a slow connection moves all of a work within so long.
THROTTLED_SECONDS = 10.0
# How long something is frozen, unplugged or full.
SHORT_SECONDS, LONG_SECONDS = 0.5, 3.0
# What a clock is set to, from the right time: as by a slip, by a summer time that is none, by a battery that is empty.
CLOCK_SECONDS = (3_600, -3_600, 86_400, -86_400, 10 * 365 * 86_400, -10 * 365 * 86_400)
# Of a disk that is full: what is left, in blocks.
ROOM_BLOCKS = 3
# What is to be struck from outside is held meanwhile, and whether it has come so far is looked at so often.
HOLD_SECONDS, WATCH_SECONDS = 0.3, 0.005
FULL, FULL_DISK, UNHEARD = UNRECORDED = ("full", "full disk", "recording stopped")
KILLED, STOPPED = "kill -9", "SIGTERM"
# The hops that end at a port of the server.
PORTS = (CLIENT_SERVER, BROWSER_GATEWAY)
BOARD, SERVER, DISK = "board", "server", "server - disk"
# Room for the log, and for a few more rows, on a disk that is full to programs that may write no further than this.
LOG_BYTES, ROOM_BYTES = 4_096, 2_000
# As the words of the tables.
WORDS = {
    Kind.DELAY: "delay",
    Kind.PAUSE: "pause",
    Kind.THROTTLE: "throttle",
    Kind.SLICE: "slice",
    Kind.FLIP: "flipped bit",
    Kind.END: "end (FIN)",
    Kind.CUT: "cut (RST)",
    Kind.SILENCE: "half-open",
}
# By the simulator's names: `fastflight.simulator.faults`.
BOARD_FAULTS = {
    "reset-after-rx": "reset",
    "reset-after-tx": "reset",
    "stall-after-rx": "stall",
    "stall-after-tx": "stall",
    "full-after": "full",
    "flash-stall": "slow flash",
}
CABLE_FAULTS = {
    "flip-rx": "flipped bit",
    "flip-tx": "flipped bit",
    "lose-rx": "lost byte",
    "overflow-rx": "overflow",
    "lose-tx": "lost byte",
    "unplug-after-rx": "unplugged",
    "exit-after-tx": "unplugged",
}


class _Placed:
    """Something that is done when so much has passed a proxy, which holds the traffic meanwhile; and undone after.

    What says 0 of how many it has struck, has struck none.
    """

    def __init__(
        self,
        proxy: ChaosProxy,
        fault: TrafficFault,
        do: Callable[[], object],
        undo: Callable[[], object] = lambda: None,
        lasting: float = 0.0,
    ) -> None:
        self._proxy = proxy
        self._fault = fault
        self._do = do
        self._undo = undo
        self._lasting = lasting
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="strike")
        self._struck = False

    def apply(self) -> None:
        self._proxy.strike(self._fault)
        self._thread.start()

    def end(self) -> bool:
        self._over.set()
        self._thread.join()
        self._proxy.mend()
        return self._struck

    def _watch(self) -> None:
        while not self._proxy.has_struck:
            if self._over.wait(WATCH_SECONDS):
                return
        self._struck = self._do() != 0
        if self._lasting:
            # What is done is undone by itself, whether the work waits for that or has ended.
            threading.Event().wait(self._lasting)
        self._undo()


def draw(stage: Stage, work: Work, chance: random.Random) -> Fault:
    """Choose a fault for this work."""

    def held(
        kind: str, where: str, do: Callable[[], object], undo: Callable[[], object] | None = None, spec: str = ""
    ) -> Fault:
        return _held(stage, work, chance, spec or kind, kind, where, do, undo)

    def clocked() -> Fault:
        seconds = chance.choice(CLOCK_SECONDS)
        back = partial(stage.set_clock, 0)
        return held("clock", SERVER, lambda: stage.set_clock(seconds), back, f"clock {seconds:+} s")

    choices: list[tuple[float, Callable[[], Fault]]] = [(6, lambda: _proxied(stage, work, chance, work.way))]
    for hop in line_hops(stage):
        if work.board:
            choices.append((6, lambda hop=hop: _proxied(stage, work, chance, f"{hop} {work.board}")))  # type: ignore[misc]
    if not work.board:
        choices.append((6, lambda: _proxied(stage, work, chance, RELAY_TARGET)))
    else:
        choices.append((3, lambda: _on_board(stage, work, chance, BOARD_FAULTS, BOARD)))
        choices.append((0.7, lambda: held(KILLED, BOARD, lambda: stage.kill_board(work.board))))
    if stage.line == SERIAL and work.board:
        cable = CABLE_FAULTS if work.is_verified else {k: v for k, v in CABLE_FAULTS.items() if v == "unplugged"}
        choices.append((6, lambda: _on_board(stage, work, chance, cable, f"{SERVER_BOARD} (serial)")))
    if stage.line == RFC2217 and work.board:
        choices.append((0.7, lambda: held(KILLED, "bridge", lambda: stage.kill_bridge(work.board))))
    choices.append((0.7, lambda: held(KILLED, SERVER, stage.server.kill)))
    twice = partial(stage.kill_server_twice, chance.uniform(0, MOMENT_SECONDS))
    choices.append((0.3, lambda: held(KILLED, SERVER, twice, spec="kill -9, and again")))
    choices.append((0.7, lambda: held(STOPPED, SERVER, stage.stop_server)))
    thawed = partial(stage.server.freeze, False)
    choices.append((0.7, lambda: held("frozen", SERVER, lambda: stage.server.freeze(True), thawed)))
    choices.append((1 if isinstance(work, Rows) else 0.5, clocked))
    if isinstance(work, Rows) and (disk := stage.disk) is not None:
        room = chance.randrange(ROOM_BLOCKS) * BLOCK_BYTES
        choices.append((2, lambda: held(FULL_DISK, DISK, partial(disk.fill, room), disk.empty)))
    if isinstance(work, Rows):
        choices.append((1, lambda: held(FULL, DISK, lambda: _fill(stage, chance), lambda: _empty(stage))))
        stopped, started = partial(stage.record, False), partial(stage.record, True)
        choices.append((1, lambda: held(UNHEARD, SERVER, stopped, started)))
    weights = [weight for weight, _ in choices]
    return chance.choices([make for _, make in choices], weights)[0]()


def may_break(fault: Fault, way: str) -> bool:
    """Return whether a browser's connection, by `way`, may end without a word: if it, or its gateway, was struck."""
    ended = fault.where == SERVER and fault.kind in (KILLED, STOPPED)
    return way == BROWSER_GATEWAY and (fault.where == BROWSER_GATEWAY or ended)


def line_hops(stage: Stage) -> tuple[str, ...]:
    """Return the hops between the server and a board that have a proxy."""
    if stage.line == SERIAL:
        return ()
    return (TOOL_BRIDGE, BRIDGE_BOARD) if stage.line == RFC2217 else (SERVER_BOARD,)


def _proxied(stage: Stage, work: Work, chance: random.Random, hop: str) -> Fault:
    proxy = stage.proxies[hop]
    kinds = list(Kind)
    encrypted = hop in PORTS and stage.guard is not OPEN
    # A digest stands over files on their way from and to a board; over all else only TLS does.
    if not encrypted and (not work.is_verified or hop in PORTS):
        kinds.remove(Kind.FLIP)
    if hop == RELAY_TARGET:
        kinds.remove(Kind.END)  # a target that ends in order has ended
    way = chance.choice(list(Way))
    reach = _reach(work, way is Way.OUT) + (HELLO_BYTES if encrypted else 0)
    fault = drawn(chance, chance.choice(kinds), reach, MOMENT_SECONDS, (way,))
    if fault.kind is Kind.THROTTLE:
        fault = replace(fault, amount=max(fault.amount, work.reach / THROTTLED_SECONDS))
    name = hop.removesuffix(f" {FILES}").removesuffix(f" {TALKER}")
    shown = f"{name} ({stage.line})" if name == SERVER_BOARD else name
    strike = partial(proxy.strike, fault)
    return Fault(WORDS[fault.kind], shown, strike, lambda: bool(proxy.mend()), detail=f"{hop} {fault}")


def _on_board(stage: Stage, work: Work, chance: random.Random, faults: dict[str, str], hop: str) -> Fault:
    board = stage.boards[work.board]
    words = sorted({word for name, word in faults.items() if work.writes or name not in ("full-after", "flash-stall")})
    # Stalls are waited for, by the time limits of a transfer: fewer of them.
    word = chance.choices(words, [0.3 if word == "stall" else 1 for word in words])[0]
    name = chance.choice([name for name, value in faults.items() if value == word])
    amount = chance.randrange(1, _reach(work, not name.endswith("-tx")))
    if name == "flash-stall":
        amount = chance.randrange(5, 40)
    spec = f"{name}={amount}"
    if word == "stall" and isinstance(work, Rows):
        return _stalled(stage, work, hop, spec, round(chance.uniform(SHORT_SECONDS, LONG_SECONDS), 2))
    # A slow flash does not say so.
    end = partial(_struck, stage, work.board, assumed=name == "flash-stall")
    return Fault(word, hop, partial(board.inject, [spec]), end, detail=spec)


def _stalled(stage: Stage, work: Work, hop: str, spec: str, seconds: float) -> Fault:
    """Switch a hanging board off and on, because a client that only listens would wait for ever."""
    board = stage.boards[work.board]
    struck: list[str] = []
    switching: list[threading.Timer] = []

    def apply() -> None:
        board.inject([spec])
        switching.append(threading.Timer(seconds, lambda: struck.extend(board.mend())))
        switching[0].start()

    def end() -> bool:
        switching[0].cancel()
        switching[0].join()
        return bool(struck) or _struck(stage, work.board)

    return Fault("stall", hop, apply, end, detail=f"{spec} for {seconds} s")


def _reach(work: Work, outward: bool) -> int:
    """Return within how many bytes of one direction a fault has its place."""
    return work.reach if outward == work.writes else ANSWER_BYTES


def _struck(stage: Stage, name: str, *, assumed: bool = False) -> bool:
    struck = bool(stage.boards[name].mend())
    return assumed or struck or not stage.boards[name].is_alive


def _held(
    stage: Stage,
    work: Work,
    chance: random.Random,
    spec: str,
    kind: str,
    where: str,
    do: Callable[[], object],
    undo: Callable[[], object] | None,
) -> Fault:
    """Return a fault at something that is not a connection, at a place of the work."""
    way = chance.choice(list(Way))
    fault = TrafficFault(Kind.PAUSE, way, chance.randrange(_reach(work, way is Way.OUT)), HOLD_SECONDS)
    lasting = round(chance.uniform(SHORT_SECONDS, LONG_SECONDS), 2) if undo else 0.0
    placed = _Placed(stage.proxies[work.way], fault, do, undo or (lambda: None), lasting)
    shown = f"{spec} at {fault.way}@{fault.at}" + (f" for {lasting} s" if lasting else "")
    return Fault(kind, where, placed.apply, placed.end, detail=shown)


def _fill(stage: Stage, chance: random.Random) -> None:
    """The server's files may grow a little, and no further: a limit of the system on a process that runs."""
    log = (stage.folder / "server.log").stat().st_size + LOG_BYTES
    sizes = [file.stat().st_size for file in (stage.folder / "recordings").iterdir() if file.is_file()]
    _limit(stage, max(log, *sizes) + chance.randrange(ROOM_BYTES))


def _empty(stage: Stage) -> None:
    _limit(stage, resource.RLIM_INFINITY)


def _limit(stage: Stage, size: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(stage.server.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
