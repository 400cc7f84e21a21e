"""What to try first with a server, printed by `serve` on a terminal: people who read the log of a service know it."""

from __future__ import annotations

from collections.abc import Mapping

from fastflight.client import DEFAULT_LOCATION


def first_steps(location: str, devices: Mapping[str, str], http: str | None, environment: Mapping[str, str]) -> str:
    """Return lines with commands to try on the first of `devices` (name to URL) of the server at `location`.

    `environment`: under `uv run`, the commands begin with that, because `fastflight` need not be on the PATH elsewhere.
    """
    command = "uv run --no-sync fastflight" if "UV_RUN_RECURSION_DEPTH" in environment else "fastflight"
    name, url = next(iter(devices.items()))
    at, argument = ("", "") if location == DEFAULT_LOCATION else (f" --server {location}", repr(location))
    # The files of a real board are not known.
    has_readings = url.startswith("sim:") and "files=" not in url
    read = f"get {name}:/readings.csv" if has_readings else f"tail {name}"
    steps = [f"{command} ls {name}{at}", f"{command} {read}{at}"]
    if has_readings:
        python = f"import fastflight as ff; ff.FastFlightClient({argument}).read({name!r}, '/readings.csv').to_pandas()"
        steps.append(f"in Python or a notebook: {python}")
    else:
        steps.append(f"{command} exec {name} 'print(1 + 1)'{at}")
    page = [] if http is None else [f"Open {http}/ in a browser."]
    return "\n".join([*page, "Try in another terminal:", *(f"  {step}" for step in steps), "Ctrl-C ends the server."])
