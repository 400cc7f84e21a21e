"""Builds the text with the first things to try, which `serve` prints if it runs on a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from fastflight.client import DEFAULT_LOCATION


def first_steps(location: str, devices: Mapping[str, str], http: str | None, environment: Mapping[str, str]) -> str:
    """Return lines with commands to try on the first of `devices` (name to URL) of the server at `location`.

    `environment`: under `uv run`, the commands begin with that, because `fastflight` need not be on the PATH elsewhere.
    """
    prefix = "uv run --no-sync " if "UV_RUN_RECURSION_DEPTH" in environment else ""
    command = f"{prefix}fastflight"
    name, url = next(iter(devices.items()))
    at, argument = ("", "") if location == DEFAULT_LOCATION else (f" --server {location}", repr(location))
    # The files of a real board are not known.
    has_readings = url.startswith("sim:") and "files=" not in url
    read = f"get {name}:/readings.csv" if has_readings else f"tail {name}"
    rows = f"read({name!r}, '/readings.csv').to_pandas()" if has_readings else f"info({name!r})"
    lines = [
        *([] if http is None else [f"Open {http}/ in a browser."]),
        "Try in another terminal:",
        f"  {command} ls {name}{at}",
        f"  {command} {read}{at}",
        f"And in a notebook, or in {prefix}python:",
        "  from fastflight import FastFlightClient",
        f"  FastFlightClient({argument}).{rows}",
        "Ctrl-C ends the server.",
    ]
    return "\n".join(lines)
