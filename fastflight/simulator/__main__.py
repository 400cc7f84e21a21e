"""Start a simulated board: `python -m fastflight.simulator --pty --files DIR`.

With `--connect` the board connects to its transport, sends the token from the environment variable
`FASTFLIGHT_SIMULATOR_TOKEN` and a line feed, and from then on the socket is its UART. It ends when the socket does.

With `--listen` (port 0: any) and with `--pty` it prints where it can be reached as its first line of output: the
address, or the name of a serial port (not on Windows). Hosts may come and go, one at a time; it lives until it is
ended, or with its standard input if it has `--control`.
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
from fastflight.simulator.files import FileSystem
from fastflight.simulator.line import Line, leave
from fastflight.simulator.link import Connected, Link, Listening
from fastflight.simulator.pacer import BITS_PER_BYTE
from fastflight.simulator.runtime import HEAP_IN_USE, PLATFORM, Runtime
from fastflight.simulator.samples import write_samples
from fastflight.simulator.uart import OWN_FILES, Uart

TOKEN = "FASTFLIGHT_SIMULATOR_TOKEN"  # noqa: S105  # the name of a variable
# Large enough that nobody meets it by accident, small enough that statvfs means something.
CAPACITY = 512 * 1024 * 1024
# How long board code may hold the interpreter before a line thread gets it: a fraction of the shortest receive ring's
# time at 115200 baud.
SWITCH_SECONDS = 0.0005
# How the main thread is stopped in what it runs: not by SIGINT where that can be spared, which is for people.
POKE = getattr(signal, "SIGUSR1", signal.SIGINT)
# What the line does when the next host comes, and board code must not.
LINE_EVENTS = frozenset({"socket.__new__"})


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m fastflight.simulator", description="A simulated MicroPython board")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--connect", metavar="HOST:PORT", help="where the transport listens")
    place.add_argument("--listen", metavar="HOST:PORT", help="where to listen for hosts, one at a time")
    place.add_argument("--pty", action="store_true", help="be a serial port of this computer (not on Windows)")
    parser.add_argument("--files", required=True, metavar="DIR", help="the board's file tree; samples if empty")
    parser.add_argument("--baud", type=int, default=0, help="pace of the line; 0: flow-controlled, as native USB")
    parser.add_argument("--ring", type=int, default=512, help="bytes of the receive ring of a paced line")
    parser.add_argument("--slice", type=float, default=1, metavar="MS", help="of time that a paced line moves at once")
    parser.add_argument("--telemetry", type=float, default=10, metavar="HZ", help="lines of main.py; 0: none")
    parser.add_argument("--capacity", type=int, default=CAPACITY, metavar="BYTES", help="of the file system")
    parser.add_argument("--heap", type=int, default=HEAP_IN_USE + 120_000, metavar="BYTES", help="of the interpreter")
    parser.add_argument("--platform", default=PLATFORM, metavar="NAME", help="what the board says that it is")
    parser.add_argument("--without", default="", metavar="NAME[,NAME]", help="modules or module.attribute to leave out")
    parser.add_argument(
        "--no-raw-paste", type=int, nargs="?", const=1, default=0, help="answer raw paste with `not supported`"
    )
    parser.add_argument(
        "--no-interrupt", type=int, nargs="?", const=1, default=0, help="code that runs reads Ctrl-C as a byte"
    )
    parser.add_argument("--fault", action="append", default=[], metavar="SPEC", help="see fastflight.simulator.faults")
    parser.add_argument("--seed", type=int, default=DROP_SEED, metavar="N", help="of what is left to chance")
    parser.add_argument("--control", action="store_true", help="take faults from standard input, and end with it")
    chosen = parser.parse_args(arguments)
    try:
        chosen.fault = Faults.parse(chosen.fault, seed=chosen.seed)
    except ValueError as error:
        parser.error(str(error))
    if chosen.pty and not hasattr(os, "openpty"):
        parser.error("this system has no pseudo-terminals: use --listen")
    return chosen


def link_for(chosen: argparse.Namespace) -> Link:
    """The end of the line that the options ask for."""
    if chosen.connect:
        return Connected(chosen.connect, os.environ.pop(TOKEN, ""))
    if chosen.listen:
        return Listening(chosen.listen)
    # There are no terminals to import on Windows.
    from fastflight.simulator.terminal import Terminal

    return Terminal()


def say(text: str) -> None:
    """A line for who started the board; nobody need read it."""
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), text.encode() + b"\n")


def main() -> None:
    chosen = options()
    try:
        write_samples(chosen.files)
    except OSError as error:
        # Without its path: who started the board tells it to whoever wanted it.
        sys.exit(f"the folder of its files: {error.strerror}")
    link = link_for(chosen)
    line = Line(link)
    rate = chosen.baud / BITS_PER_BYTE
    uart = Uart(
        line.send,
        rate=rate,
        ring=chosen.ring,
        faults=chosen.fault,
        interrupts=not chosen.no_interrupt,
        poke=lambda: _thread.interrupt_main(POKE),
        peer_check=line.check_peer,
        slice_seconds=chosen.slice / 1000,
    )
    without = frozenset(name for name in chosen.without.split(",") if name)
    constants = {"TELEMETRY_HZ": chosen.telemetry}

    def new_runtime() -> Runtime:
        runtime = Runtime(uart, files, heap=chosen.heap, without=without, constants=constants, platform=chosen.platform)
        files.heap = runtime.mem_free
        return runtime

    files = FileSystem(chosen.files, capacity=chosen.capacity, heap=lambda: chosen.heap, faults=chosen.fault)
    sys.setswitchinterval(SWITCH_SECONDS)
    sending = (Line.send, type(link).send, Faults.on_send, Control.struck, say)
    OWN_FILES.update(function.__code__.co_filename for function in sending)
    signal.signal(signal.SIGINT, lambda *_: leave())
    # There is nothing to stop yet: what the host has asked for by then the board finds when it runs.
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
        chosen.fault.told = control.struck
        control.start()
    line.start(uart, rate, chosen.slice / 1000)
    sandbox.seal()
    Wall(chosen.files, own=LINE_EVENTS).install()
    gc.freeze()
    board = Board(uart, new_runtime, raw_paste=not chosen.no_raw_paste)
    signal.signal(POKE, uart.on_signal)
    board.run()


if __name__ == "__main__":
    main()
