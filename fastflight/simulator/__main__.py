"""Start a simulated board: `python -m fastflight.simulator --listen 127.0.0.1:0 --files DIR`.

With `--connect`, the board connects to its transport and sends the token from the environment variable
`FASTFLIGHT_SIMULATOR_TOKEN` and a line feed. After that, the socket is its UART. The process ends when the socket is
closed.

With `--listen` (port 0: any), its first line of output is the address at which it can be reached. Hosts may come and
go, one at a time. The process runs until it is stopped; with `--control`, it also ends when its standard input ends.
"""

from __future__ import annotations

import _thread
import argparse
import contextlib
import gc
import os
import signal
import sys

from fastflight.simulator import sandbox
from fastflight.simulator.board import Board
from fastflight.simulator.confine import Wall
from fastflight.simulator.control import Control
from fastflight.simulator.faults import DROP_SEED, Faults
from fastflight.simulator.line import Line, leave
from fastflight.simulator.link import Connected, Link, Listening
from fastflight.simulator.mounts import MountingFiles
from fastflight.simulator.pacer import BITS_PER_BYTE
from fastflight.simulator.runtime import HEAP_IN_USE, PLATFORM, Runtime
from fastflight.simulator.samples import write_samples
from fastflight.simulator.uart import OWN_FILES, Uart

TOKEN = "FASTFLIGHT_SIMULATOR_TOKEN"  # noqa: S105  # the name of a variable
# Too large to be filled by accident, small enough for `statvfs` to give a realistic figure.
CAPACITY = 512 * 1024 * 1024
# How long board code may hold the interpreter lock before a line thread gets it: a fraction of the time in which the
# smallest receive ring fills at 115200 baud.
SWITCH_SECONDS = 0.0005
# The signal that interrupts board code in the main thread. Not SIGINT if possible, which users send to the process.
POKE = getattr(signal, "SIGUSR1", signal.SIGINT)
# Audit events of accepting the next host: allowed for the line's threads, refused for board code.
LINE_EVENTS = frozenset({"socket.__new__"})


def options(*, has_link: bool) -> argparse.Namespace:
    """Parse the command line. With `has_link`, the link to the host is no option."""
    parser = argparse.ArgumentParser(prog="python -m fastflight.simulator", description="A simulated MicroPython board")
    place = parser.add_mutually_exclusive_group(required=not has_link)
    place.add_argument("--connect", metavar="HOST:PORT", help="where the transport listens")
    place.add_argument("--listen", metavar="HOST:PORT", help="where to listen for hosts, one at a time")
    parser.add_argument("--files", required=True, metavar="DIR", help="the board's file tree; samples if empty")
    parser.add_argument(
        "--baud", type=int, default=0, help="baud rate of the line; 0: unpaced with flow control, like native USB"
    )
    parser.add_argument(
        "--ring", type=int, default=512, help="size of the receive ring of a paced line, or of one that holds, in bytes"
    )
    parser.add_argument(
        "--hold",
        type=int,
        nargs="?",
        const=1,
        default=0,
        help="a full receive ring holds the host back before Ctrl-C is looked at, as firmware does over USB",
    )
    parser.add_argument(
        "--telemetry", type=float, default=10, metavar="HZ", help="lines per second that main.py prints; 0: none"
    )
    parser.add_argument("--capacity", type=int, default=CAPACITY, metavar="BYTES", help="size of the file system")
    parser.add_argument(
        "--heap", type=int, default=HEAP_IN_USE + 120_000, metavar="BYTES", help="heap of the interpreter"
    )
    parser.add_argument("--platform", default=PLATFORM, metavar="NAME", help="value of sys.platform on the board")
    parser.add_argument("--without", default="", metavar="NAME[,NAME]", help="modules or module.attribute to leave out")
    parser.add_argument(
        "--soft-timers", type=int, nargs="?", const=1, default=0, help="timers also run before each read of input"
    )
    parser.add_argument(
        "--no-raw-paste", type=int, nargs="?", const=1, default=0, help="answer raw paste with `not supported`"
    )
    parser.add_argument(
        "--no-interrupt", type=int, nargs="?", const=1, default=0, help="running code reads Ctrl-C as a byte"
    )
    parser.add_argument("--fault", action="append", default=[], metavar="SPEC", help="see fastflight.simulator.faults")
    parser.add_argument("--seed", type=int, default=DROP_SEED, metavar="N", help="seed of random faults")
    parser.add_argument("--control", action="store_true", help="read faults from standard input, and end when it ends")
    chosen = parser.parse_args()
    try:
        chosen.fault = Faults.parse(chosen.fault, seed=chosen.seed)
    except ValueError as error:
        parser.error(str(error))
    return chosen


def link_for(chosen: argparse.Namespace) -> Link:
    """Return the link to the host that the options select."""
    if chosen.connect:
        return Connected(chosen.connect, os.environ.pop(TOKEN, ""))
    return Listening(chosen.listen)


def say(text: str) -> None:
    """Print a line for the program that started the board. Errors are ignored if nobody reads it."""
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), text.encode() + b"\n")


def main(own_link: Link | None = None) -> None:
    """Run a board. Its host is at `own_link`, or where the options say."""
    chosen = options(has_link=own_link is not None)
    try:
        write_samples(chosen.files)
    except OSError as error:
        # Without the path: this text reaches clients of a server, which must not see paths of its computer.
        sys.exit(f"the folder of its files: {error.strerror}")
    link = own_link or link_for(chosen)
    line = Line(link)
    rate = chosen.baud / BITS_PER_BYTE
    uart = Uart(
        line.send,
        rate=rate,
        ring=chosen.ring,
        faults=chosen.fault,
        interrupts=not chosen.no_interrupt,
        holds=bool(chosen.hold),
        poke=lambda: _thread.interrupt_main(POKE),
        peer_check=line.check_peer,
    )
    without = frozenset(name for name in chosen.without.split(",") if name)
    constants = {"TELEMETRY_HZ": chosen.telemetry}

    def new_runtime() -> Runtime:
        runtime = Runtime(
            uart,
            files,
            heap=chosen.heap,
            without=without,
            constants=constants,
            platform=chosen.platform,
            soft_timers=bool(chosen.soft_timers),
        )
        files.heap = runtime.mem_free
        return runtime

    files = MountingFiles(chosen.files, capacity=chosen.capacity, heap=lambda: chosen.heap, faults=chosen.fault)
    sys.setswitchinterval(SWITCH_SECONDS)
    sending = (Line.send, type(link).send, Faults.on_send, Control.report_strike, say)
    OWN_FILES.update(function.__code__.co_filename for function in sending)
    signal.signal(signal.SIGINT, lambda *_: leave())
    # No board code runs yet: the UART keeps a request that comes before, and the board finds it when it starts.
    signal.signal(POKE, signal.SIG_IGN)
    if link.address:
        say(link.address)
    try:
        streams = frozenset({0, 1} if chosen.control else ())
        sandbox.enter(chosen.files, file_size=chosen.capacity, memory=chosen.heap, keep=streams)
    except OSError as error:
        sys.exit(f"the walls around its process: {error.strerror}")
    if chosen.control:
        control = Control(uart, sys.stdin, say, leave)
        chosen.fault.on_strike = control.report_strike
        control.start()
    line.start(uart, rate)
    sandbox.seal()
    Wall(chosen.files, own=LINE_EVENTS).install()
    gc.freeze()
    board = Board(uart, new_runtime, raw_paste=not chosen.no_raw_paste)
    signal.signal(POKE, uart.on_signal)
    board.run()


if __name__ == "__main__":
    main()
