"""A device that only speaks: a TCP port that a test says lines at, falls silent at, and cuts."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self

# How often it looks whether it is to end.
LOOK_SECONDS = 0.05


class Speaker:
    """Says its line again and again to whoever is connected, while it is to speak."""

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.speaks = True
        self._over, self._drops = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LOOK_SECONDS)
        self.url = f"socket://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)

    def drop(self) -> None:
        """Close the line, and take the next one."""
        self._drops.set()

    def cut(self) -> None:
        """Close the line, and take no other."""
        self._over.set()
        self._thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cut()

    def _run(self) -> None:
        line: socket.socket | None = None
        while not self._over.wait(LOOK_SECONDS):
            if line is not None and self._drops.is_set():
                self._drops.clear()
                line.close()
                line = None
            try:
                if line is None:
                    line, _ = self._listener.accept()
                elif self.speaks:
                    line.sendall(self.line)
            except TimeoutError:
                continue
            except OSError:
                if line is not None:
                    line.close()
                line = None
        if line is not None:
            line.close()
