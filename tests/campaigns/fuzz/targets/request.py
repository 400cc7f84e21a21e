"""Tickets, path descriptors and the bodies of actions: a request, or a `RequestError` that helps."""

from __future__ import annotations

import json
from typing import Any

from fastflight.errors import RequestError
from fastflight.service import Catalog, decode, decode_path, encode, requests
from fastflight.service.wire import MAX_SHOWN_CHARACTERS, parse, validate
from fastflight.sources.actions import Execute, Hash, Rename, Reset
from tests.campaigns.fuzz.material import Material
from tests.campaigns.fuzz.target import Target
from tests.campaigns.fuzz.varied_json import VALUES
from tests.support.function_source import FunctionSource

CATALOG = Catalog()
for _request in (
    requests.DeviceFile,
    requests.FleetFile,
    requests.DeviceTree,
    requests.DeviceListing,
    requests.DeviceExec,
    requests.DeviceSession,
    requests.Recording,
    requests.Mock,
):
    CATALOG.add(FunctionSource(_request))
BODIES = (Hash, Rename, Execute, Reset)
# More than a key, what was given, what is allowed and a hint: a message for people.
MAX_MESSAGE_CHARACTERS = 2000


def run(data: bytes) -> None:
    material = Material(data)
    kind = material.byte()
    try:
        if kind & 7 == 7:
            request: requests.Request = decode_path([material.piece(), material.rest()])
        elif kind & 7 == 6:
            body = BODIES[kind >> 3 & 3]
            validate(body, parse(material.stretched(), "action"))
            return
        elif kind & 7 >= 3:
            model = tuple(CATALOG)[kind >> 3 & 7].request
            given: dict[str, Any] = (
                {"type": model.type, "device": "demo", "path": "/a.csv"} if kind & 64 else {"type": model.type}
            )
            keys = [each.alias or name for name, each in model.model_fields.items()]
            while material:
                given[material.pick(keys)] = material.pick(VALUES)
            request = decode(json.dumps(given).encode(), CATALOG)
        else:
            request = decode(material.stretched(), CATALOG)
    except RequestError as error:
        assert len(str(error)) <= MAX_MESSAGE_CHARACTERS + MAX_SHOWN_CHARACTERS
        return
    ticket = encode(request)
    assert decode(ticket, CATALOG) == request
    assert encode(decode(ticket, CATALOG)) == ticket


TARGET = Target(
    run,
    seeds=(
        b'\x00\x00{"type": "device.file", "device": "demo", "path":"/a.csv","schema":{"t":"int64"},"columns":["t"]}',
        b'\x00\x00{"type":"device.session","device":"demo","format":"csv","schema":{"t":"int64"},"limit_rows":5}',
        b'\x00\x00{"type":"recording","name":"demo","from_time":"2025-01-01T00:00:00Z"}',
        b'\x00\x00{"type":"fleet.file","devices":"w*","path":"/x.csv","on_error":"fail","deflate":null,"batch_rows":1}',
        b'\x00\x00{"type":"device.tree","device":"demo","path":"/","files":["a/b","c"],"transfer":"base64"}',
        b'\x00\x00{"type":"device.exec","device":"demo","code":"print(1)","timeout":1e3,"mode":"sync"}',
        b'\x00\x00{"type":"mock","rows_per_batch":5,"variant":"complex","delay_per_row":0.0,"endpoints":3}',
        b'\x00\x00{"type":"device.listing","device":"demo","recursive":true,"mode":"async"}',
        b"\x43\x02\x02\x05\x0e\x06\x16",
        b"\x2b\x00\x03\x04\x1a\x06\x19\x08\x0c",
        b"\x33\x02\x1c\x03\x0c",
        b"\x07\x04demo/readings.csv",
        b'\x06\x00{"device":"demo","path":"/a","limit":5,"recursive":false}',
        b'\x16\x00{"device":"demo","code":"1/0","timeout":0.5}',
        b'\x00\x00{"type":"mock","delay_per_row":NaN,"total_rows":1' + b"0" * 100 + b"}",
    ),
    max_bytes=400,
)
