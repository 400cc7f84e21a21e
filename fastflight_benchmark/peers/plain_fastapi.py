"""The peer of the suite `http`: one JSON endpoint as in FastAPI's tutorial, on uvicorn with all its accelerators.

    python -m fastflight_benchmark.peers.plain_fastapi

It answers `/devices` as a gateway with one device does; the suite compares the two answers. It runs without fastflight.
"""

from __future__ import annotations

import socket
from typing import Any

import uvicorn
from fastapi import FastAPI

DEMO = {
    "name": "demo",
    "url": "sim:",
    "open": True,
    "holder": None,
    "recording": None,
    "publishing": [],
    "trouble": None,
    "last_data": 1_795_385_941_109,
}
DEVICES = {"devices": [DEMO]}

app = FastAPI()


@app.get("/devices")
async def devices() -> dict[str, Any]:
    return DEVICES


def main() -> None:
    # asyncio and uvloop set TCP_NODELAY only if the socket names its protocol. Without it, each answer waits for 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        print(f"listening on http://127.0.0.1:{listener.getsockname()[1]};", flush=True)
        config = uvicorn.Config(app, loop="auto", http="httptools", access_log=False, log_level="critical")
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
