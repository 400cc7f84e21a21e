"""How a server proves to NATS who it is: the right secret connects, a wrong one is an error that does not name it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fastflight.app.certificates import CertificateAuthority
from fastflight.app.cluster import nats_address
from fastflight.app.config import ClusterSettings
from fastflight.app.local_cluster import nats_servers
from fastflight.cluster.connection import ClusterConnection
from fastflight.errors import RequestError
from tests.support.nats_accounts import operator_mode, user
from tests.support.servers import running
from tests.support.waiting import auntil

SECRET = "s3cret-of-nats"
REFUSED = "NATS refuses the credentials. Check the credentials in [cluster]"


def written(folder: Path, name: str, content: str | bytes) -> Path:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


def trouble_of(urls: tuple[str, ...], **settings: Any) -> str:
    """Connect with these settings. Return why that is not possible; empty if it is."""

    async def scenario() -> str:
        connection = ClusterConnection(nats_address(ClusterSettings(servers=urls, name="alpha", **settings)), "a test")
        connection.open()
        try:
            await auntil(lambda: connection.is_connected or connection.trouble != "not connected to NATS yet")
            return connection.trouble
        finally:
            await connection.aclose()

    return asyncio.run(scenario())


Case = tuple[str, dict[str, Any], list[dict[str, Any]]]


def by_password(folder: Path) -> Case:
    settings = f'authorization {{ users: [ {{ user: server, password: "{SECRET}" }} ] }}'
    wrong = [{"user": "server", "password": SECRET + "x"}, {"user": "other", "password": SECRET}, {}]
    return settings, {"user": "server", "password": SECRET}, wrong


def by_token(folder: Path) -> Case:
    wrong = [{"nats_token": SECRET + "x"}, {}]
    return f'authorization {{ token: "{SECRET}" }}', {"nats_token": SECRET}, wrong


def by_nkey(folder: Path) -> Case:
    server, other = user(), user()
    right, wrong = (written(folder, f"{name}.nk", key.seed + b"\n") for name, key in (("a", server), ("b", other)))
    return f"authorization {{ users: [ {{ nkey: {server.public} }} ] }}", {"nkey": right}, [{"nkey": wrong}, {}]


def by_jwt(folder: Path) -> Case:
    settings, credentials = operator_mode(user())
    _, of_another_operator = operator_mode(user())
    right, wrong = written(folder, "a.creds", credentials), written(folder, "b.creds", of_another_operator)
    return settings, {"credentials": right}, [{"credentials": wrong}, {}]


@pytest.mark.parametrize("case", [by_password, by_token, by_nkey, by_jwt])
def test_the_right_secret_connects_and_others_are_refused(tmp_path: Path, case: Callable[[Path], Case]) -> None:
    settings, right, wrong = case(tmp_path)
    with nats_servers(tmp_path, settings=settings) as nats:
        assert trouble_of(nats.urls, **right) == ""
        for each in wrong:
            trouble = trouble_of(nats.urls, **each)
            assert REFUSED in trouble and SECRET not in trouble
    assert SECRET not in repr(nats_address(ClusterSettings(servers=nats.urls, name="alpha", **right)))


@contextmanager
def nats_with_tls(folder: Path) -> Iterator[tuple[tuple[str, ...], dict[str, Path], dict[str, Path]]]:
    """NATS that wants a client's certificate; the files for it, and those of a foreign CA."""
    until = datetime.now(UTC) + timedelta(days=1)
    found = []
    for name in ("own", "foreign"):
        ca = CertificateAuthority.create()
        files = {"ca": written(folder, f"{name}-ca.pem", ca.pem[0])}
        for kind, hosts in (("", []), ("server-", ["127.0.0.1"])):
            pair = zip(("cert", "key"), ca.issue(hosts, "server", until), strict=True)
            files |= {kind + part: written(folder, f"{name}-{kind}{part}.pem", pem) for part, pem in pair}
        found.append(files)
    own, foreign = found
    settings = (
        f'tls {{ cert_file: "{own["server-cert"]}", key_file: "{own["server-key"]}", '
        f'ca_file: "{own["ca"]}", verify: true }}'
    )
    with nats_servers(folder, settings=settings) as nats:
        yield nats.urls, own, foreign


def test_tls_with_certificates_of_clients(tmp_path: Path) -> None:
    with nats_with_tls(tmp_path) as (urls, own, foreign):
        files = {key: own[key] for key in ("ca", "cert", "key")}
        assert trouble_of(urls, **files) == ""
        for wrong in (
            {"ca": own["ca"]},
            {**files, "ca": foreign["ca"]},
            {**files, "cert": foreign["cert"], "key": foreign["key"]},
            {},
        ):
            trouble = trouble_of(urls, **wrong)
            assert "Check that nats-server uses TLS, and that ca, cert and key in [cluster] belong to" in trouble
        with pytest.raises(RequestError, match="TLS files for NATS cannot be used"):
            trouble_of(urls, **{**files, "key": foreign["key"]})


def test_a_password_is_not_sent_to_a_server_without_tls(tmp_path: Path) -> None:
    """Somebody on the way could take TLS out of what the server says."""

    async def scenario() -> bytes:
        got = b""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal got
            writer.write(b'INFO {"server_id":"x","version":"2.11.0","max_payload":1000,"auth_required":true}\r\n')
            got += await reader.read()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            settings = ClusterSettings(servers=(url,), name="alpha", user="server", password=SECRET)
            connection = ClusterConnection(nats_address(settings), "a test")
            connection.open()
            await auntil(lambda: "secure connection required" in connection.trouble)
            await connection.aclose()
        return got

    assert asyncio.run(scenario()) == b""


@pytest.mark.parametrize("key", ["nkey", "credentials"])
@pytest.mark.parametrize("content", ["", SECRET, f"SU{SECRET.upper()}", None])
def test_a_file_without_a_key_is_refused_at_the_start(tmp_path: Path, key: str, content: str | None) -> None:
    file = tmp_path / "file" if content is None else written(tmp_path, "file", content)
    with pytest.raises(RequestError) as refusal:
        nats_address(ClusterSettings(servers=("nats://127.0.0.1:1",), name="alpha", **{key: file}))
    assert str(file) in str(refusal.value) and refusal.value.hint and SECRET not in str(refusal.value)


def test_no_secret_is_in_the_process_list_or_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = written(tmp_path, "fleet.toml", '[cluster]\nuser = "server"\n[devices.board]\nurl = "sim:"\n')
    monkeypatch.setenv("FASTFLIGHT_NATS_PASSWORD_FILE", str(written(tmp_path, "password", SECRET)))
    settings, _, _ = by_password(tmp_path)
    with nats_servers(tmp_path, settings=settings) as nats:
        options = ("--fleet", str(fleet), "--cluster", nats.url, "--cluster-name", "alpha")
        with running(*options) as server:
            server.read_until("this server owns a device")
            assert SECRET not in Path(f"/proc/{server.process.pid}/cmdline").read_text()
            assert server.end() == 0
        assert SECRET not in "".join(server.lines)
        written(tmp_path, "password", SECRET + "x")
        with running(*options) as server:
            assert REFUSED.partition(".")[0] in server.read_until("NATS cannot be used; trying again")
            server.end()
        assert SECRET not in "".join(server.lines)
