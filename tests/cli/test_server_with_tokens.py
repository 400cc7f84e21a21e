"""A server with tokens and TLS, put together as `serve` does it: the same asked over HTTPS."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from fastflight.access.identity import scopes
from fastflight.access.tokens import Book, issued
from fastflight.app.compose import open_server
from fastflight.app.overlay import read_config
from fastflight.errors import RequestError

SOON = 60.0
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Files:
    """What `fastflight token` and `fastflight cert` make; one token, which may read `demo`."""

    folder: Path
    ca: trustme.CA
    token: str

    def given(self, *names: str) -> dict[str, Path]:
        known = {"tokens": "tokens.json", "tls_cert": "server.pem", "tls_key": "server.key", "client_ca": "ca.pem"}
        return {name: self.folder / known[name] for name in names}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    ca = trustme.CA()
    server = ca.issue_cert("127.0.0.1", "bench.example")
    (tmp_path / "server.pem").write_bytes(b"".join(part.bytes() for part in server.cert_chain_pems))
    (tmp_path / "server.key").write_bytes(server.private_key_pem.bytes())
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    token, text = issued("reader", scopes(["read:demo"]), NOW)
    (tmp_path / "tokens.json").write_bytes(Book((token,)).encode())
    return Files(tmp_path, ca, text)


def asked(url: str, path: str, files: Files, token: str = "", **headers: str) -> tuple[int, Any]:
    scheme, _, address = url.partition("://")
    if token:
        headers["authorization"] = f"Bearer {token}"
    context = ssl.create_default_context()
    files.ca.configure_trust(context)
    client = (
        http.client.HTTPSConnection(address, timeout=SOON, context=context)
        if scheme == "https"
        else http.client.HTTPConnection(address, timeout=SOON)
    )
    with closing(client):
        client.request("GET", path, headers=headers)
        answer = client.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.fixture
def location(files: Files) -> Iterator[tuple[str, str]]:
    """A server's Flight location, and where its gateway is."""
    options = files.given("tokens", "tls_cert", "tls_key")
    settings = read_config(
        "grpc+tls://127.0.0.1:0", ["demo=sim:", "other=sim:"], None, http="0", http_host=["bench.example"], **options
    )
    with open_server(settings) as running:
        assert running.http is not None
        yield running.location, running.http


def test_the_same_tokens_and_certificate_are_for_both_edges(files: Files, location: tuple[str, str]) -> None:
    _, url = location
    assert url.startswith("https://127.0.0.1:")
    assert asked(url, "/devices", files)[0] == 401
    status, told = asked(url, "/devices", files, files.token, host="bench.example")
    assert (status, [each["name"] for each in told["devices"]]) == (200, ["demo"])
    assert asked(url, "/devices", files, files.token, host="evil.example")[0] == 421


def test_others_are_served_over_http_with_tls_and_tokens_alone(files: Files) -> None:
    names = ["tokens", "tls_cert", "tls_key"]
    for some in ([], ["tokens"], ["tls_cert", "tls_key"]):
        scheme = "grpc+tls" if "tls_cert" in some else "grpc"
        with pytest.raises(RequestError, match="--http 0.0.0.0:8000 --http-host NAME"):
            read_config(f"{scheme}://127.0.0.1:0", [], None, http="0.0.0.0:8000", **files.given(*some))
    with pytest.raises(RequestError, match="Give --http-host NAME, the name or address by which it is reached"):
        read_config("grpc+tls://127.0.0.1:0", [], None, http="0.0.0.0:8000", **files.given(*names))
    given = read_config(
        "grpc+tls://127.0.0.1:0", [], None, http="10.0.0.1:80", http_host=["bench"], **files.given(*names)
    )
    assert (given.http, given.http_hosts) == (("10.0.0.1", 80), ("bench", "10.0.0.1"))


def test_tls_files_that_do_not_belong_together(files: Files) -> None:
    (files.folder / "server.key").write_bytes(trustme.CA().issue_cert("x").private_key_pem.bytes())
    settings = read_config("grpc+tls://127.0.0.1:0", [], None, http="0", **files.given("tokens", "tls_cert", "tls_key"))
    with pytest.raises(Exception, match="TLS files"):
        open_server(settings)
