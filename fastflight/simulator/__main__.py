"""Start a simulated board: `python -m fastflight.simulator --connect HOST:PORT --files DIR`.

The board connects to its transport, sends the token from the environment variable `FASTFLIGHT_SIMULATOR_TOKEN` and a
line feed, and from then on the socket is its UART. It ends when the socket does.
"""

from __future__ import annotations

import _thread
import argparse
import gc
import os
import signal
import sys

from fastflight.simulator.board import Board
from fastflight.simulator.confine import Wall
from fastflight.simulator.faults import Faults
from fastflight.simulator.files import FileSystem
from fastflight.simulator.line import Line, connect
from fastflight.simulator.pacer import BITS_PER_BYTE
from fastflight.simulator.runtime import HEAP_IN_USE, Runtime
from fastflight.simulator.samples import write_samples
from fastflight.simulator.uart import OWN_FILES, Uart

TOKEN = "FASTFLIGHT_SIMULATOR_TOKEN"
# Large enough that nobody meets it by accident, small enough that statvfs means something.
CAPACITY = 512 * 1024 * 1024
# How long board code may hold the interpreter before a line thread gets it: a fraction of the shortest receive ring's
# time at 115200 baud.
SWITCH_SECONDS = 0.0005


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m fastflight.simulator", description="A simulated MicroPython board")
    parser.add_argument("--connect", required=True, metavar="HOST:PORT", help="where the transport listens")
    parser.add_argument("--files", required=True, metavar="DIR", help="the board's file tree; samples if empty")
    parser.add_argument("--baud", type=int, default=0, help="pace of the line; 0: flow-controlled, as native USB")
    parser.add_argument("--ring", type=int, default=512, help="bytes of the receive ring of a paced line")
    parser.add_argument("--telemetry", type=float, default=10, metavar="HZ", help="lines of main.py; 0: none")
    parser.add_argument("--capacity", type=int, default=CAPACITY, metavar="BYTES", help="of the file system")
    parser.add_argument("--heap", type=int, default=HEAP_IN_USE + 120_000, metavar="BYTES", help="of the interpreter")
    parser.add_argument("--without", default="", metavar="NAME[,NAME]", help="modules or module.attribute to leave out")
    parser.add_argument("--no-raw-paste", action="store_true", help="answer raw paste with `not supported`")
    parser.add_argument("--fault", action="append", default=[], metavar="SPEC", help="see fastflight.simulator.faults")
    chosen = parser.parse_args(arguments)
    try:
        chosen.fault = Faults.parse(chosen.fault)
    except ValueError as error:
        parser.error(str(error))
    return chosen


def main() -> None:
    chosen = options()
    token = os.environ.pop(TOKEN, "")
    write_samples(chosen.files)
    link = connect(chosen.connect, token)
    line = Line(link)
    rate = chosen.baud / BITS_PER_BYTE
    uart = Uart(
        line.send,
        rate=rate,
        ring=chosen.ring,
        faults=chosen.fault,
        poke=_thread.interrupt_main,
        peer_check=line.check_peer,
    )
    without = frozenset(name for name in chosen.without.split(",") if name)
    constants = {"TELEMETRY_HZ": chosen.telemetry}

    def new_runtime() -> Runtime:
        runtime = Runtime(uart, files, heap=chosen.heap, without=without, constants=constants)
        files.heap = runtime.mem_free
        return runtime

    files = FileSystem(
        chosen.files,
        capacity=chosen.capacity,
        heap=lambda: chosen.heap,
        full_after=chosen.fault.full_after,
        flash_stall=chosen.fault.flash_stall / 1000,
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    OWN_FILES.add(Line.send.__code__.co_filename)
    signal.signal(signal.SIGINT, uart.on_signal)
    line.start(uart, rate)
    Wall(chosen.files).install()
    gc.freeze()
    Board(uart, new_runtime, raw_paste=not chosen.no_raw_paste).run()


if __name__ == "__main__":
    main()
