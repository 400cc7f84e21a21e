"""What there is: list_flights, get_flight_info, get_schema.

A flight has one endpoint, or several where its source says what can be read side by side: each a ticket, and no
location, which means this server, or those that serve it best. Its descriptor is `[device, path]` for a file with
default settings, else the request as a command. Its app metadata, where there is any, is JSON: what is to be known of
the device, such as `{"busy": "who has it"}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.access.authority import Authority, Listing
from fastflight.access.identity import Identity
from fastflight.errors import RequestError
from fastflight.service import Catalog, decode, encode
from fastflight.service.requests import DeviceFile, FleetFile, Recording, Request
from fastflight.service.resolve import RequestResolver, ResolvedRequest, plain
from fastflight.service.source import Estimate, Part, Parts

# A glob over names. Matching is linear in it for each name.
MAX_GLOB_BYTES = 1024
# A glob without them before its first slash names the device, or the type, before that of `name`.
_MAGIC = re.compile(r"[*?\[]")


def asked_of(descriptor: flight.FlightDescriptor, asking: RequestResolver) -> ResolvedRequest:
    """What a descriptor asks for."""
    if descriptor.descriptor_type == flight.DescriptorType.PATH:
        return asking.of_path(descriptor.path)
    if descriptor.descriptor_type == flight.DescriptorType.CMD:
        return asking.of(descriptor.command)
    raise RequestError("neither a path nor a command", where="descriptor", hint="Give [device, path] or a request")


def flights(criteria: bytes, catalog: Catalog, authority: Authority, identity: Identity) -> Iterator[flight.FlightInfo]:
    """Flights that `identity` may have and that fit `criteria`: empty for all, a glob (`demo/*.csv`), or a request."""
    if criteria.lstrip().startswith(b"{"):
        request = authority.authorize(identity, decode(criteria, catalog), "describe")
        yield info(request, estimate(request, catalog), catalog)
        return
    glob = _glob(criteria)
    existing = Listing(authority, identity)
    for source in catalog:
        if source.requests is not None:
            for request, known in source.requests(partial(_takes, existing, source.request, glob)):
                if existing.has(request) and fnmatchcase(name(request), glob):
                    yield info(request, known, catalog)


def name(request: Request) -> str:
    """What a glob is matched with: `demo/readings.csv` for a file of a device, else the request's type.

    The session of a device is `demo/device.session`, what is kept of it `demo/recording`, and a file of the fleet
    `fleet.file/readings.csv`.
    """
    device, path = getattr(request, "device", None), getattr(request, "path", None)
    if isinstance(request, Recording):
        device = request.name
    if path is None:
        return request.type if device is None else f"{device}/{request.type}"
    return f"{device or request.type}/{path.lstrip('/')}"


def _takes(existing: Listing, kind: type[Request], glob: str, device: str) -> bool:
    """Whether a device is to be asked what it has of a kind: whose names cannot fit is asked nothing."""
    head, _, _ = glob.partition("/")
    wanted = _MAGIC.search(head) is not None or head == (FleetFile.type if kind is FleetFile else device)
    return wanted and existing.takes(kind, device)


def estimate(request: Request, catalog: Catalog) -> Estimate:
    """What the request's source knows of the answer."""
    describe = catalog.source_of(request).describe
    return Estimate(None) if describe is None else describe(request)


def schema(request: Request, known: Estimate) -> pa.Schema:
    """The columns of the answer; `RequestError` where only reading would tell."""
    if known.schema is None:
        raise RequestError("the schema is known only by reading", where=name(request), hint="Use do_get")
    return plain(known.schema)


def info(
    request: Request, known: Estimate, catalog: Catalog, descriptor: flight.FlightDescriptor | None = None
) -> flight.FlightInfo:
    """A flight, with an endpoint for each part that can be read by itself."""
    divide = catalog.source_of(request).parts
    divided: Parts[Any] = Parts([Part(request)]) if divide is None else divide(request, known)
    return flight.FlightInfo(
        plain(known.schema or pa.schema([])),
        descriptor or _descriptor(request),
        [flight.FlightEndpoint(encode(part.request), list(part.locations)) for part in divided.parts],
        known.rows,
        known.bytes,
        divided.ordered,
        b"" if known.note is None else json.dumps(known.note).encode(),
    )


def _descriptor(request: Request) -> flight.FlightDescriptor:
    if isinstance(request, DeviceFile) and request == DeviceFile(device=request.device, path=request.path):
        return flight.FlightDescriptor.for_path(request.device, request.path)
    return flight.FlightDescriptor.for_command(encode(request))


def _glob(criteria: bytes) -> str:
    if len(criteria) > MAX_GLOB_BYTES:
        raise RequestError(f"a glob has at most {MAX_GLOB_BYTES} bytes", where="criteria")
    try:
        return criteria.decode() or "*"
    except UnicodeDecodeError:
        raise RequestError("not UTF-8", where="criteria", hint="Give a glob such as demo/*.csv") from None
