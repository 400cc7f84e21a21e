"""A worker process: a server of its own, for as long as its front lives.

It reads its settings from stdin, one line of JSON, and writes one line to stdout: where it listens and the ports of its
bridges, or the error that kept it from starting. `stop` on stdin has it end, running streams first, in bounded time.
The end of stdin is the front's end, however that came: the worker ends by itself then. A second signal to the front
ends that at once, and so the workers that are stopping already.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import asdict

from fastflight.cli.arenas import hold_little
from fastflight.cli.compose import open_server
from fastflight.cli.ending import END_SECONDS, leave
from fastflight.cli.log import log_to_stderr
from fastflight.cli.workers import share
from fastflight.errors import FastFlightError
from fastflight.service.failure import described

STOP = b"stop\n"
# A worker's first line to its front: an error, shortened to this.
MAX_ERROR_BYTES = 16_384


def main() -> int:
    """The exit code: 0 when told to end, 1 when it could not start."""
    # Ctrl-C in a terminal and a service manager's SIGTERM come to the whole group: the front says when to stop. Not
    # ignored, which the programs that are started for devices would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    settings = share.decode(sys.stdin.buffer.readline())
    log_to_stderr(as_json=settings.log_json, debug=settings.log_debug)
    hold_little()
    try:
        running = open_server(settings)
    except FastFlightError as error:
        _say({"error": json.loads(described(error, MAX_ERROR_BYTES))})
        return 1
    bridges = {name: asdict(ports) for name, ports in running.bridges.items()}
    _say({"location": running.location, "bridges": bridges})
    told = sys.stdin.buffer.readline()
    late = settings.drain_seconds + END_SECONDS
    threading.Thread(target=_end_at_last, args=(told, late), name="end", daemon=True).start()
    running.close()
    leave()
    return 0


def _say(word: object) -> None:
    sys.stdout.write(json.dumps(word) + "\n")
    sys.stdout.flush()


def _end_at_last(told: bytes, seconds: float) -> None:
    """While the server closes: end this process when the front has ended meanwhile, or when it takes too long."""
    if told == STOP:
        late = threading.Timer(seconds, os._exit, (1,))
        late.daemon = True
        late.start()
        os.read(sys.stdin.fileno(), 1)
    else:
        threading.Event().wait(seconds)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
