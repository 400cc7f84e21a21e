"""Suite `identity`: what tokens and TLS add to the cost of a small request.

A server without authentication (`open`) takes turns with the same server with tokens, with TLS, with both, and with
request ids from headers (`trace`). The limits are pyarrow servers with prepared answers that only compare one header,
or only use TLS. The load is that of the suite `requests`, from Flight clients that check each answer. Ratios are of
pairs of the same round.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import trustme

from fastflight_benchmark import contenders, output, report
from fastflight_benchmark.loading.calling import DO_GET, GET_FLIGHT_INFO
from fastflight_benchmark.loading.pool import Calls, Loaders
from fastflight_benchmark.options import Options
from fastflight_benchmark.peers import constant
from fastflight_benchmark.peers.running import CONSTANT_MODULES, SERVER, Served, add_token
from fastflight_benchmark.spawned import spawned
from fastflight_benchmark.suites.requests import report as requests_report
from fastflight_benchmark.suites.requests import suite as requests
from fastflight_benchmark.suites.requests import summary as requests_summary
from fastflight_benchmark.suites.requests.suite import AROUND_SECONDS, WARM_UP_SECONDS
from fastflight_benchmark.suites.requests.summary import RAW_COLUMNS

OPEN, TRACE, TOKEN, TLS, TLS_TOKEN = OURS = ("open", "trace", "token", "tls", "tls-token")
BARE, BARE_TOKEN, BARE_TLS = ("bare", "bare-token", "bare-tls")
# Each pair is divided: a feature by the same server without it, for fastflight and for bare pyarrow; and fastflight by
# bare pyarrow.
PAIRS = (
    (TRACE, OPEN),
    (TOKEN, OPEN),
    (BARE_TOKEN, BARE),
    (TLS, OPEN),
    (BARE_TLS, BARE),
    (TLS_TOKEN, TLS),
    (OPEN, BARE),
    (TOKEN, BARE_TOKEN),
    (TLS, BARE_TLS),
)
FREE_PORTS = {False: "grpc://127.0.0.1:0", True: "grpc+tls://127.0.0.1:0"}


@dataclass(frozen=True, slots=True)
class Scope:
    """The numbers of connections, the seconds of each load, and how often each is measured in a run."""

    connections: Sequence[int]
    seconds: float
    rounds: int


FULL = Scope(connections=(1, 16), seconds=0.5, rounds=4)
QUICK = Scope(connections=(1,), seconds=0.2, rounds=2)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of servers and clients: files in a folder, the token, and the trusted certificates."""

    tokens: Path
    token_file: Path
    token: str
    certificate: Path
    key: Path
    roots: str

    def options(self, server: str) -> list[str]:
        """Return the options of the command that starts `server`."""
        arguments = [f"--server={FREE_PORTS[server in (TLS, TLS_TOKEN, BARE_TLS)]}"]
        if server in (TLS, TLS_TOKEN, BARE_TLS):
            arguments += [f"--tls-cert={self.certificate}", f"--tls-key={self.key}"]
        if server in (TOKEN, TLS_TOKEN):
            arguments.append(f"--tokens={self.tokens}")
        if server == BARE_TOKEN:
            arguments.append(f"--token-file={self.token_file}")
        if server == TRACE:
            arguments.append("--trace")
        return arguments

    def token_of(self, server: str) -> str:
        """Return the token that clients of `server` send, or an empty text."""
        return self.token if server in (TOKEN, TLS_TOKEN, BARE_TOKEN) else ""


def run(options: Options, scope: Scope | None = None) -> int:
    """Measure, save and show. Return how many requests failed."""
    scope = scope or (QUICK if options.quick else FULL)
    description = options.describe("identity", scope)
    loads = len(plan(scope, 1)) * options.runs
    seconds = loads * (scope.seconds + WARM_UP_SECONDS + AROUND_SECONDS)
    options.say(f"{loads} loads, about {report.duration(seconds)} in all; servers of its own, --server is not used")
    rows: list[dict[str, Any]] = []
    for number in range(1, options.runs + 1):
        with running() as (keys, servers), Loaders() as loaders, options.console.status("") as status:
            for operation, connections, server, round_ in plan(scope, number):
                status.update(f"run {number}: {operation}, {connections} connections, {server}")
                rows.append(
                    measure(
                        requests.Step(operation, requests.CLIENT, connections, server, round_),
                        servers[server],
                        loaders,
                        keys,
                        scope.seconds,
                    )
                )
    raw = pd.DataFrame(rows, columns=RAW_COLUMNS)
    result, ratios = requests_summary.aggregate(raw), requests_summary.ratios(raw, PAIRS)
    output.save(options.output, result, {"raw": raw, "ratios": ratios}, description)
    requests_report.show(options.console, result, ratios, judged=False)
    report.show_end(options.console, description, raw.loc[raw["error"] != "", "error"], options.output)
    return int(raw["failed"].sum())


def plan(scope: Scope, run: int) -> list[tuple[str, int, str, int]]:
    """Return operation, connections, server and round of each load. The order of servers is reversed each round."""
    servers = (*OURS, BARE, BARE_TOKEN, BARE_TLS)
    return [
        (operation, connections, server, round_)
        for operation in (DO_GET, GET_FLIGHT_INFO)
        for connections in scope.connections
        for round_ in range((run - 1) * scope.rounds + 1, run * scope.rounds + 1)
        for server in (servers if round_ % 2 else reversed(servers))
    ]


@contextlib.contextmanager
def running() -> Iterator[tuple[Keys, Mapping[str, Served]]]:
    """Start all servers, each in a process of its own. Their keys are deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="fastflight-identity-") as folder, contextlib.ExitStack() as stack:
        keys = made(Path(folder))
        servers: dict[str, Served] = {}
        for server in (*OURS, BARE, BARE_TOKEN, BARE_TLS):
            module = SERVER if server in OURS else CONSTANT_MODULES[contenders.BARE][0]
            one = stack.enter_context(spawned(module, *keys.options(server)))
            servers[server] = Served(one.location, one.pid)
        yield keys, servers


def made(folder: Path) -> Keys:
    """Make a token that may read, and a certificate for this computer, in `folder`."""
    tokens, token_file = folder / "tokens.json", folder / "token"
    token = add_token(tokens, "load", "read:*")
    token_file.write_text(token)
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = folder / "server.pem", folder / "server.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return Keys(tokens, token_file, token, certificate, key, authority.cert_pem.bytes().decode())


def measure(step: requests.Step, server: Served, loaders: Loaders, keys: Keys, seconds: float) -> dict[str, Any]:
    """Warm up and load a server. Return a row of `RAW_COLUMNS`."""

    def called(seconds: float) -> Calls:
        return loaders.call(
            server.location,
            step.operation,
            contenders.CONTENDERS[contenders.ASYNC].ticket(constant.REQUEST),
            rows=constant.REQUEST.total_rows,
            path=contenders.ASYNC if step.mode in OURS else "",
            connections=step.connections,
            seconds=seconds,
            token=keys.token_of(step.mode),
            roots=keys.roots if server.location.startswith("grpc+tls") else "",
        )

    requests.refuse_wrong(step, called(WARM_UP_SECONDS))
    before = server.cpu_seconds()
    calls = called(seconds)
    return requests.row(step, calls, server.cpu_seconds() - before)
