"""The values that some keys of requests can have. The command line offers the same, and starts without the requests."""

from __future__ import annotations

from typing import Literal

Mode = Literal["sync", "async"]
Format = Literal["csv", "jsonl", "packed", "arrow", "raw"]
SessionFormat = Literal["bytes", "lines", "jsonl", "csv"]
OnError = Literal["skip", "fail"]
# How the bytes of a file are encoded on the line; `auto` is the fastest encoding that the board supports.
Method = Literal["auto", "binary", "base64", "literal"]
