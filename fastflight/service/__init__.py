"""Requests, the catalog of the sources that serve them, and the choice between sync and async."""

from fastflight.service.catalog import Catalog
from fastflight.service.source import Source
from fastflight.service.wire import decode, decode_path, encode, make_request

__all__ = ["Catalog", "Source", "decode", "decode_path", "encode", "make_request"]
