"""Servers with tokens and TLS, as they are started: what is refused, what is said, and that no secret is."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner

from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, issued
from fastflight.app.addresses import check_location
from fastflight.app.config import AuthTable, TlsTable
from fastflight.app.overlay import read_config
from fastflight.cli.main import app
from fastflight.cli.server_options import read_credentials
from fastflight.client import DEFAULT_LOCATION, Credentials, FastFlightClient
from fastflight.errors import RequestError, TransportError, Unauthenticated, UnknownName
from fastflight.service.requests import DeviceFile
from tests.support.servers import ServerProcess

NOW = datetime.now(UTC)
CA = trustme.CA()
SERVER = CA.issue_cert("127.0.0.1")
SOON = 60.0
TLS_NAMES = ("server.pem", "server.key", "ca.pem")
run = CliRunner().invoke


@dataclass
class Files:
    """A folder with all that a server needs, and two tokens for it."""

    folder: Path
    narrow: str
    all: str

    @property
    def options(self) -> list[str]:
        names = {"--tls-cert": "server.pem", "--tls-key": "server.key", "--tokens": "tokens.json"}
        return [word for option, name in names.items() for word in (option, str(self.folder / name))]

    def change(self, book: Book) -> None:
        (self.folder / "tokens.json").write_bytes(book.encode())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    narrow, token = issued("ada", scopes(["read:demo"]), NOW)
    root, everything = issued("root", scopes(["read,write,session,exec,admin:*"]), NOW)
    contents = {
        "tokens.json": Book((narrow, root)).encode(),
        "server.pem": b"".join(each.bytes() for each in SERVER.cert_chain_pems),
        "server.key": SERVER.private_key_pem.bytes(),
        "ca.pem": CA.cert_pem.bytes(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o600)
    return Files(tmp_path, token, everything)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "[::]", "boards.example"])
def test_others_are_served_with_tls_and_tokens_alone(host: str, files: Files) -> None:
    check_location(f"grpc+tls://{host}:8815", tls=True, tokens=True)
    for scheme, tls, tokens in (
        ("grpc", False, False),
        ("grpc", False, True),
        ("grpc", True, True),
        ("grpc+tls", False, False),
        ("grpc+tls", False, True),
        ("grpc+tls", True, False),
    ):
        with pytest.raises(RequestError, match="only with TLS and tokens") as refused:
            check_location(f"{scheme}://{host}:8815", tls=tls, tokens=tokens)
        wanted = f"--server grpc+tls://{host}:8815 --tls-cert server.pem --tls-key server.key --tokens tokens.json"
        assert wanted in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ({"location": "grpc+tls://127.0.0.1:0"}, "TLS takes a certificate. Give --tls-cert FILE --tls-key FILE"),
        ({"tls_cert": "c", "tls_key": "k"}, r"there is a certificate, and no TLS. grpc\+tls://127.0.0.1:8815"),
        ({"tls_cert": "c"}, "tls.key: Field required. .*--tls-cert and --tls-key together"),
        ({"client_ca": "a"}, "tls.cert: Field required. .*--tls-cert and --tls-key together"),
        ({"client_ca": "a", "tls_cert": "c", "tls_key": "k"}, "nothing says what a certificate grants"),
    ],
)
def test_options_that_do_not_go_together(arguments: dict[str, str], refused: str) -> None:
    given = {name: Path(value) for name, value in arguments.items() if name != "location"}
    with pytest.raises(RequestError, match=refused):
        read_config(arguments.get("location", DEFAULT_LOCATION), [], None, **given)  # type: ignore[arg-type]


def test_a_fleet_file_says_the_same_relative_to_itself_and_options_go_first(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(
        '[devices.demo]\nurl = "sim:"\n[auth]\ntokens = "t.json"\n'
        '[tls]\ncert = "s.pem"\nkey = "/keys/s.key"\nclient_ca = "ca.pem"\n'
    )
    found = read_config("grpc+tls://0.0.0.0:8815", [], fleet, tls_cert=Path("other.pem"))
    assert found.auth == AuthTable(tokens=tmp_path / "t.json")
    assert found.tls == TlsTable(cert=Path("other.pem"), key=Path("/keys/s.key"), client_ca=tmp_path / "ca.pem")
    fleet.write_text("[devices.demo]\nurl = 'sim:'\n[tls]\ncert = 's.pem'\nkey = 's.key'\nca = 'x'\n")
    with pytest.raises(RequestError, match="unknown key. Did you mean 'client_ca'|unknown key. .*client_ca"):
        read_config(DEFAULT_LOCATION, [], fleet)


def test_others_are_served_over_http_with_tls_and_tokens_alone(files: Files) -> None:
    tokens = {"tokens": files.folder / "tokens.json"}
    tls = {"tls_cert": files.folder / "server.pem", "tls_key": files.folder / "server.key"}
    for some, scheme in (({}, "grpc"), (tokens, "grpc"), (tls, "grpc+tls")):
        with pytest.raises(RequestError, match="--http 0.0.0.0:8000 --http-host NAME"):
            read_config(f"{scheme}://127.0.0.1:0", [], None, http="0.0.0.0:8000", **some)
    with pytest.raises(RequestError, match="Give --http-host NAME, the name or address by which it is reached"):
        read_config("grpc+tls://127.0.0.1:0", [], None, http="0.0.0.0:8000", **tokens, **tls)
    found = read_config("grpc+tls://127.0.0.1:0", [], None, http="10.0.0.1:80", http_host=["bench"], **tokens, **tls)
    assert (found.http, found.http_hosts) == (("10.0.0.1", 80), ("bench", "10.0.0.1"))


@pytest.mark.parametrize("wrong", ["tokens.json", "server.pem", "server.key"])
def test_a_file_that_is_not_good_is_named_before_anything_is_served(files: Files, wrong: str) -> None:
    (files.folder / wrong).write_text("nonsense")
    told = run(app, ["serve", "--server", "grpc+tls://127.0.0.1:0", *files.options])
    assert told.exit_code == 1 and wrong in told.stderr


def test_a_token_is_taken_from_a_file_or_the_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ada.token"
    path.write_text("ff_from_file\n")
    path.chmod(0o600)
    environment = {"FASTFLIGHT_TOKEN": "ff_from_environment"}
    assert read_credentials({}).token is None
    assert read_credentials(environment).token == "ff_from_environment"
    assert read_credentials(environment, token_file=path).token == "ff_from_file"
    assert capsys.readouterr().err == ""
    path.chmod(0o644)
    read_credentials({}, token_file=path)
    assert "warning: other users can read" in capsys.readouterr().err or os.name != "posix"
    for content in ("", "two words", "x" * 5000):
        path.write_text(content)
        with pytest.raises(RequestError, match="not a file with one token|it is empty") as refused:
            read_credentials({}, token_file=path)
        assert "words" not in str(refused.value)


class Started(ServerProcess):
    """`fastflight serve` in a process of its own."""

    def __init__(self, *options: str, at: str = "grpc+tls://127.0.0.1:0") -> None:
        super().__init__(*options, command=("serve", "--server", at))
        self.command = Path(f"/proc/{self.process.pid}/cmdline")

    def all_output(self) -> str:
        """End it. All that it printed."""
        self.end()
        return "".join(self.lines)


@pytest.fixture
def started(files: Files) -> Iterator[Started]:
    server = Started(
        "--log-debug",
        "--device",
        "demo=sim:",
        "--device",
        "bench=sim:?seed=4711",
        "--http",
        "0",
        "--http-host",
        "bench.example",
        *files.options,
    )
    with contextlib.closing(server):
        yield server


def over_http(started: Started, token: str | None, **headers: str) -> tuple[int, bytes]:
    """The status and the answer for a list of devices."""
    context = ssl.create_default_context(cadata=CA.cert_pem.bytes().decode())
    address = started.read_until(r"listening on https://(\S+)")
    with closing(HTTPSConnection(address, timeout=SOON, context=context)) as client:
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        client.request("GET", "/devices", headers=headers)
        answer = client.getresponse()
        return answer.status, answer.read()


def test_a_running_server_asks_everybody_and_says_no_secret(started: Started, files: Files) -> None:
    seen: list[str] = []
    ca = CA.cert_pem.bytes()
    assert over_http(started, files.narrow, host="evil.example")[0] == 421
    status, devices = over_http(started, files.narrow, host="bench.example")
    assert (status, [each["name"] for each in json.loads(devices)["devices"]]) == (200, ["demo"])
    status, said = over_http(started, None)
    assert status == 401
    seen.append(said.decode())
    with FastFlightClient(started.location, credentials=Credentials(files.narrow, ca)) as ada:
        assert [(each.name, each.url) for each in ada.devices()] == [("demo", "sim:")]
        table = ada._connection.parallel_stream(DeviceFile(device="demo", path="/readings.csv"), 2, True)
        assert sum(batch.num_rows for batch in table) == 10_000
        with pytest.raises(UnknownName) as refused:
            ada.info("bench")
        seen.append(str(refused.value))
        assert {each.descriptor.path[0] for each in ada._connection.flights() if each.descriptor.path} == {b"demo"}
        with FastFlightClient(started.location, credentials=Credentials(files.all, ca)) as root:
            assert {each.url for each in root.devices()} == {"sim:", "sim:?seed=4711"}
            seen.append(json.dumps(root.stats()))
            files.change(Book(Book.decode((files.folder / "tokens.json").read_bytes()).tokens[1:]))
            with pytest.raises(Unauthenticated):
                while True:  # until the server has looked at its file
                    ada.devices()
            assert root.health()["status"] == "serving"
    wrong = Credentials(f"{files.all[:-1]}!", ca)
    with FastFlightClient(started.location, credentials=wrong) as stranger, pytest.raises(Unauthenticated) as told:
        stranger.devices()
    seen.append(str(told.value))
    if started.command.exists():
        seen.append(started.command.read_text())
    seen.append(started.all_output())
    key = SERVER.private_key_pem.bytes().decode().splitlines()[1]
    book = Book.decode((files.folder / "tokens.json").read_bytes())
    secrets = [files.narrow[-43:], files.all[-43:], files.all[-43:-1], key, *(each.digest for each in book.tokens)]
    for text in seen:
        assert not any(secret in text for secret in secrets)


FLEET = """
[devices.tool]
url = "exec:no-such-program --key hunter2"

[devices.board]
url = "sim:?files={folder}/hunter2&telemetry=0"
"""


def test_what_a_device_is_started_with_is_told_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "hunter2").mkdir()
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(FLEET.format(folder=tmp_path))
    options = ["--fleet", str(fleet), "--log-debug"]
    server = Started(*options, at="grpc://127.0.0.1:0")
    told: list[str] = []
    with contextlib.closing(server):
        with FastFlightClient(server.location) as client:
            assert client.ls("board")
            with pytest.raises(TransportError, match="cannot start the command") as refused:
                client.info("tool")
            assert {each.name: each.url for each in client.devices()} == {
                "tool": "exec:no-such-program",
                "board": "sim:?telemetry=0",
            }
            told += [str(refused.value), json.dumps(client.stats()), json.dumps(client.health()), str(client.devices())]
        told.append(server.all_output())
    assert "tool (exec:no-such-program), board (sim:?telemetry=0)" in told[-1]
    for command in (
        ["doctor", "--server", server.location, "--device", "tool=exec:no-such-program --key hunter2"],
        ["serve", "--device", "exec:a hunter2"],
    ):
        said = run(app, command)
        assert said.exit_code
        told.append(said.output)
    assert not any("hunter2" in each for each in told)


def test_help_shows_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTFLIGHT_TOKEN", "ff_of_mine")
    for command in ("devices", "get", "serve", "doctor", "token", "cert"):
        told = run(app, [command, "--help"])
        assert told.exit_code == 0 and "ff_of_mine" not in told.output
    assert "ff_of_mine" not in repr(read_credentials({"FASTFLIGHT_TOKEN": "ff_of_mine"}))
