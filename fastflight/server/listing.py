"""Builds the answers of list_flights, get_flight_info and get_schema.

A flight has one endpoint, or several if its source divides it into parts that can be read in parallel. An endpoint has
a ticket, and the locations that serve it best; no location means this server. The flight's descriptor is
`[device, path]` for a file with default settings, else the request as a command. Its app metadata, if any, is JSON with
the state of the device, such as `{"busy": "the name of its holder"}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from fastflight.access.authority import Authority, Listing
from fastflight.access.identity import Identity
from fastflight.errors import RequestError
from fastflight.service import Catalog, decode, encode
from fastflight.service.requests import DeviceFile, FleetFile, Recording, Request
from fastflight.service.resolve import RequestResolver, ResolvedRequest, plain
from fastflight.service.source import Estimate, Parts

# A glob over names. Matching is linear in it for each name.
MAX_GLOB_BYTES = 1024
# A glob without these before its first slash begins with a device's name, or with a request type, as in `name`.
_MAGIC = re.compile(r"[*?\[]")


def resolve(descriptor: flight.FlightDescriptor, resolver: RequestResolver) -> ResolvedRequest:
    """Return the request of a descriptor, or raise `RequestError`."""
    if descriptor.descriptor_type == flight.DescriptorType.PATH:
        return resolver.of_path(descriptor.path)
    if descriptor.descriptor_type == flight.DescriptorType.CMD:
        return resolver.of(descriptor.command)
    raise RequestError("neither a path nor a command", where="descriptor", hint="Give [device, path] or a request")


def flights(criteria: bytes, catalog: Catalog, authority: Authority, identity: Identity) -> Iterator[flight.FlightInfo]:
    """Yield the flights that `identity` may have and that match `criteria`.

    `criteria` is empty for all flights, a glob (`demo/*.csv`), or a request.
    """
    if criteria.lstrip().startswith(b"{"):
        request = authority.authorize(identity, decode(criteria, catalog), "describe")
        yield info(request, catalog.source_of(request).describe(request), catalog)
        return
    glob = _glob(criteria)
    visible = Listing(authority, identity)
    for source in catalog:
        for request, known in source.requests(partial(_takes, visible, source.request, glob)):
            if visible.has(request) and fnmatchcase(name(request), glob):
                yield info(request, known, catalog)


def name(request: Request) -> str:
    """Return the name that globs are matched with: `demo/readings.csv` for a device's file, else the request's type.

    A device's session is `demo/device.session`, its recording `demo/recording`, and a file of the fleet
    `fleet.file/readings.csv`.
    """
    if isinstance(request, Recording):
        return f"{request.name}/{request.type}"
    device, path = getattr(request, "device", None), getattr(request, "path", None)
    if path is None:
        return request.type if device is None else f"{device}/{request.type}"
    return f"{device or request.type}/{path.lstrip('/')}"


def _takes(visible: Listing, kind: type[Request], glob: str, device: str) -> bool:
    """Whether to ask a device for its flights of a kind. Devices whose names cannot match are not asked."""
    head, _, _ = glob.partition("/")
    wanted = _MAGIC.search(head) is not None or head == (FleetFile.type if kind is FleetFile else device)
    return wanted and visible.takes(kind, device)


def schema(resolved: ResolvedRequest, descriptor: flight.FlightDescriptor) -> pa.Schema:
    """Return the schema of a request's answer. Raise `RequestError` if it is known only by reading."""
    known = resolved.source.describe(resolved.request)
    if known.schema is None:
        raise RequestError("the schema is known only by reading", where=name(resolved.request), hint="Use do_get")
    return plain(known.schema)


def info(request: Request, known: Estimate, catalog: Catalog) -> flight.FlightInfo:
    """Return the flight of a request, with an endpoint for each part that can be read by itself."""
    return _info(request, known, catalog.source_of(request).parts(request, known), _descriptor(request))


def described(resolved: ResolvedRequest, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
    """Return the flight of a request that has this descriptor: the last one again, if it is still true."""
    known = resolved.source.describe(resolved.request)
    divided = resolved.source.parts(resolved.request, known)
    last = resolved.last_flight
    if last is None or not _is_same(last[0], known) or last[1] != divided:
        last = known, divided, _info(resolved.request, known, divided, descriptor)
        resolved.last_flight = last
    return last[2]


def _is_same(known: Estimate, other: Estimate) -> bool:
    # The equality of schemas does not include their metadata.
    return known == other and (known.schema is None or known.schema.equals(other.schema, check_metadata=True))


def _info(
    request: Request, known: Estimate, divided: Parts[Any], descriptor: flight.FlightDescriptor
) -> flight.FlightInfo:
    return flight.FlightInfo(
        plain(known.schema or pa.schema([])),
        descriptor,
        [flight.FlightEndpoint(encode(part.request), [*map(_location, part.locations)]) for part in divided.parts],
        known.rows,
        known.bytes,
        divided.ordered,
        b"" if known.note is None else json.dumps(known.note).encode(),
    )


# Parsing the addresses of a cluster's servers for each flight takes longer than the rest of its endpoint.
_location = lru_cache(256)(flight.Location)


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
