"""The examples of the OpenAPI description, as they are, to a server with the demo board."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from tests.support.servers import serving

NAMES = {"/actions/{name}": "/actions/file.stat", "/devices/{device}/exec": "/devices/demo/exec"}


def given(document: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """The method, the path, the media type and the body of each."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for kind, media in operation.get("requestBody", {}).get("content", {}).items():
                for example in media.get("examples", {}).values():
                    body = example["value"] if kind == "text/plain" else json.dumps(example["value"])
                    yield method.upper(), NAMES.get(path, path), kind, body


def test_every_example_works() -> None:
    with serving(http=("127.0.0.1", 0)) as running:
        assert running.http is not None
        address = urlsplit(running.http)
        client = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
        try:
            client.request("GET", "/openapi.json")
            examples = list(given(json.load(client.getresponse())))
            assert len(examples) >= 6
            for method, path, kind, body in examples:
                client.request(method, path, body, {"Content-Type": kind})
                answer = client.getresponse()
                assert (answer.status in (200, 201), answer.read() != b"") == (True, True), (method, path, body)
        finally:
            client.close()
