"""Flips one bit between a client and a server, with TLS and without, and checks what is noticed.

    python -m tests.campaigns.flips --flips 200 --seed 1

Each flip hits a read of rows, a copy of a file from a board, or one to a board, by a client of its own. With TLS, exit
code 1 means: a result was wrong, an error had no code, a failed copy left half a file, or no flip took effect. Without
TLS the outcomes are only counted: beyond TCP's own checksum nothing is promised there.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from fastflight.app.compose import open_server
from fastflight.app.overlay import read_config
from fastflight.client import FastFlightClient
from fastflight.client.credentials import NONE, Credentials
from fastflight.errors import FastFlightError
from fastflight_benchmark import ending
from tests.campaigns.faulting.guard import certified
from tests.support.chaos import ChaosProxy, Fault, Kind, Way

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

HOST = "127.0.0.1"
ROWS = 500
CONTENT = bytes(range(256)) * 40
# Of how many bytes a flip's place is drawn: what either way carries of the work, and the hello before it.
REACH_BYTES = 12_000
# What does not end within so long has hung; the client's own limit for a call comes first.
CALL_SECONDS, HUNG_SECONDS = 10.0, 40.0
RIGHT, WRONG, TYPED, UNTYPED, HUNG = "right", "wrong", "typed", "untyped", "hung"


class FlippedLine:
    """A server with one board, and a proxy in front of it."""

    def __init__(self, folder: Path, *, tls: bool) -> None:
        self.board = folder / "board"
        self.board.mkdir(parents=True)
        self._local = folder / "local.bin"
        certificate = key = None
        self._credentials = NONE
        if tls:
            files = certified(folder, HOST)
            self._credentials = Credentials(ca=files.ca.read_bytes())
            certificate, key = files.certificate, files.key
        self._scheme = "grpc+tls" if tls else "grpc"
        device = f"demo=sim:?files={self.board}&telemetry=0"
        location = f"{self._scheme}://{HOST}:0"
        self.server = open_server(read_config(location, [device], None, tls_cert=certificate, tls_key=key))
        self.proxy = ChaosProxy(HOST, int(self.server.location.rpartition(":")[2]))
        text = "".join(f"{number},{number * number}\n" for number in range(ROWS))
        self._table = pa.table({"n": range(ROWS), "square": [number * number for number in range(ROWS)]})
        self._files = {"rows.csv": f"n,square\n{text}".encode(), "from.bin": CONTENT}

    def __enter__(self) -> FlippedLine:
        for name, content in self._files.items():
            (self.board / name).write_bytes(content)
        self.proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.close()
        self.server.close()

    def struck(self, fault: Fault, work: Callable[[FlippedLine, FastFlightClient], bool]) -> tuple[str, str, bool]:
        """Flip one bit. Return how the work ended, its code, and whether it was struck at all."""
        ended: list[tuple[str, str]] = []
        location = f"{self._scheme}://{HOST}:{self.proxy.port}"

        def run() -> None:
            try:
                with FastFlightClient(location, timeout=CALL_SECONDS, credentials=self._credentials) as client:
                    ended.append((RIGHT if work(self, client) else WRONG, ""))
            except FastFlightError as error:
                ended.append((self._told(error), error.code))
            except Exception as error:  # what a campaign looks for
                ended.append((UNTYPED, type(error).__name__))

        self.proxy.strike(fault)
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(HUNG_SECONDS)
        struck = bool(self.proxy.mend())
        result, code = ended[0] if ended else (HUNG, "")
        return result, code, struck

    def _told(self, error: FastFlightError) -> str:
        if error.code == FastFlightError.code:
            return UNTYPED
        whole = all(not path.exists() or path.read_bytes() == CONTENT for path in (self._local, self.board / "to.bin"))
        return TYPED if whole else WRONG

    def rows(self, client: FastFlightClient) -> bool:
        return bool(client.read("demo", "/rows.csv").to_arrow().equals(self._table))

    def get(self, client: FastFlightClient) -> bool:
        self._local.unlink(missing_ok=True)
        client.get_file("demo", "/from.bin", self._local, resume=False)
        return self._local.read_bytes() == CONTENT

    def put(self, client: FastFlightClient) -> bool:
        file = self.board / "to.bin"
        file.unlink(missing_ok=True)
        self._local.write_bytes(CONTENT)
        client.put_file("demo", "/to.bin", self._local, resume=False)
        return file.exists() and file.read_bytes() == CONTENT


WORKS = {"rows": FlippedLine.rows, "get": FlippedLine.get, "put": FlippedLine.put}


def campaign(folder: Path, flips: int, seed: int, *, tls: bool) -> Counter[tuple[str, str, str]]:
    """Return work, end and code of each flip that struck, and of others whose result is wrong."""
    chance = random.Random(seed)
    found: Counter[tuple[str, str, str]] = Counter()
    with FlippedLine(folder, tls=tls) as line:
        for number in range(flips):
            name, work = list(WORKS.items())[number % len(WORKS)]
            fault = Fault(Kind.FLIP, chance.choice(list(Way)), chance.randrange(REACH_BYTES), chance.randrange(8))
            result, code, struck = line.struck(fault, work)
            if struck or result != RIGHT:
                found[name, result, code] += 1
    return found


@app.command()
def main(
    flips: Annotated[int, typer.Option(min=1, metavar="N", help="How many, with TLS and without.")] = 200,
    seed: Annotated[int, typer.Option(metavar="N", help="Decides the place and the bit of each.")] = 1,
) -> None:
    """Flip bits, and count the outcomes."""
    bad = 0
    for tls in (True, False):
        with tempfile.TemporaryDirectory(prefix="fastflight-flips-") as folder:
            found = campaign(Path(folder), flips, seed, tls=tls)
        totals = Counter(dict.fromkeys((RIGHT, WRONG, TYPED, UNTYPED, HUNG), 0))
        for (name, result, code), count in sorted(found.items()):
            print(f"{'TLS' if tls else 'plain':5} {name:4} {result:7} {count:4} {code}", flush=True)
            totals[result] += count
        print(json.dumps({"tls": tls, "flips": flips, "seed": seed, "struck": sum(totals.values()), **totals}))
        bad += totals[WRONG] + totals[UNTYPED] + totals[HUNG] + (not found) if tls else 0
    raise typer.Exit(1 if bad else 0)


if __name__ == "__main__":
    ending.like_ctrl_c()
    app()
