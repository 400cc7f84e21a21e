"""HTTPS at a port, with a CA made for the test: who is proven by a certificate, and who stops in the handshake."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from contextlib import ExitStack, closing
from dataclasses import dataclass

import pytest
import trustme

from fastflight.access.identity import Identity, unproven
from fastflight.concurrency import Shard
from fastflight.gateway import Gateway, listen
from fastflight.gateway.asgi import CALLER, Application, Receive, Scope, Send
from fastflight.gateway.middleware import GatewayMiddleware
from fastflight.gateway.origins import OriginPolicy

SOON = 60.0


def identify(authorization: str, certificate: str) -> Identity:
    """Know one certificate."""
    if certificate != "logger@lab.example":
        raise unproven()
    return Identity(certificate, ())


async def behind(scope: Scope, receive: Receive, send: Send) -> None:
    body = json.dumps({"name": scope[CALLER].name}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@dataclass
class TlsGateway:
    gateway: Gateway
    ca: trustme.CA

    def client(self, name: str = "") -> http.client.HTTPSConnection:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if name:
            self.ca.issue_cert(name).configure_cert(context)
        return http.client.HTTPSConnection("127.0.0.1", self.gateway.port, timeout=SOON, context=context)

    def name(self, certificate: str, host: str = "bench.example") -> tuple[int, str]:
        with closing(self.client(certificate)) as client:
            client.request("GET", "/", headers={"host": host, "origin": f"https://{host}"})
            answer = client.getresponse()
            return answer.status, json.loads(answer.read()).get("name", "")


def served_with(verify: ssl.VerifyMode, parts: ExitStack) -> TlsGateway:
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    ca.configure_trust(context)
    context.verify_mode = verify
    policy = OriginPolicy(hosts=["bench.example"], secure=True)
    app: Application = GatewayMiddleware(policy, behind, None, identify)
    return TlsGateway(parts.enter_context(listen(app, Shard("gateway").start(), 0, tls=context)), ca)


@pytest.mark.parametrize("verify", [ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED])
def test_a_certificate_says_who_asks(verify: ssl.VerifyMode) -> None:
    with ExitStack() as parts:
        served = served_with(verify, parts)
        assert served.gateway.url == f"https://127.0.0.1:{served.gateway.port}"
        assert served.name("logger@lab.example") == (200, "logger@lab.example")
        assert served.name("stranger@lab.example")[0] == 401
        assert served.name("logger@lab.example", "evil.example")[0] == 421
        assert served.name("logger@lab.example", "BENCH.example:8000")[0] == 200


def test_who_does_not_shake_hands_gets_nothing() -> None:
    with ExitStack() as parts:
        served = served_with(ssl.CERT_OPTIONAL, parts)
        with socket.create_connection(("127.0.0.1", served.gateway.port), SOON) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert not b"".join(iter(lambda: plain.recv(100), b"")).startswith(b"HTTP")


def test_one_that_is_refused_while_it_sends_is_told_why_and_may_ask_again() -> None:
    """TLS has no end of one direction: only the answer can say that nothing more is taken on its connection."""
    with ExitStack() as parts:
        client = parts.enter_context(closing(served_with(ssl.CERT_OPTIONAL, parts).client("logger@lab.example")))
        for _ in range(2):
            client.request("PUT", "/", bytes(5_000_000), {"host": "bench.example"})
            answer = client.getresponse()
            assert answer.status == 200
            assert json.loads(answer.read())["name"] == "logger@lab.example"
