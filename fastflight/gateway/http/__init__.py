"""HTTP/1.1 and the WebSocket upgrade, on uvicorn, with limits in number and in time."""
