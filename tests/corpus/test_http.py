"""Bad requests as bytes at the HTTP port: `http` has them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from . import http
from .case import Case, discreet, each
from .conftest import Edges

SOON = 60.0


@pytest.fixture(autouse=True)
def _alive(edges: Edges) -> Iterator[None]:
    yield
    edges.goes_on()


def said(edges: Edges, data: bytes) -> bytes:
    """All that is answered until the server ends."""
    url = edges.http.base_url
    answer = b""
    with socket.create_connection((url.host, url.port or 0), SOON) as stream:
        try:
            stream.sendall(data)
            while piece := stream.recv(65536):
                answer += piece
        except ConnectionError:
            pass  # it had seen enough, and did not wait for the rest
    return answer


@each(http.PATHS + http.QUERIES + http.HEADERS + http.CONTENTS)
def test_a_request(edges: Edges, case: Case) -> None:
    head, _, content = said(edges, case.given.wire).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % case.given.status), (head, content)
    assert b"set-cookie" not in head.lower()
    told = json.loads(content)
    assert case.error is not None
    assert told["code"].startswith(case.error.code), told
    assert case.says in told["text"], told
    discreet(told["text"])


@each(http.RAW)
def test_what_is_no_http(edges: Edges, case: Case) -> None:
    answer = said(edges, case.given)
    status = int(answer.split(b" ", 2)[1]) if answer else None
    assert status == case.outcome, answer[:200]
    discreet(answer.decode("latin-1"))
