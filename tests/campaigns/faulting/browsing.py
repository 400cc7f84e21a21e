"""The work of a browser: files and rows by HTTP, and a TCP stream by the relay."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
from collections.abc import Iterator

import pyarrow as pa
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from tests.campaigns.faulting.stage import (
    BROWSER_GATEWAY,
    FILES,
    HOST,
    RELAY_TARGET,
    TALKER,
    Stage,
)
from tests.campaigns.faulting.target import CONTENT
from tests.campaigns.faulting.works import ROWS, Ended, Get, Put, Rows, Work, code_of_answer, few

# What nobody answers for so long has hung.
ANSWER_SECONDS = 50.0
# A connection that ended without a word, and an answer that did, once its head had come: HTTP has no word for that.
BROKEN, BROKEN_OFF = "connection broken", "broken off"
# Close codes of a gateway: that it shuts down, and from where on they are an error's status.
GOING_AWAY, OF_STATUS = 1001, 4000


class _Browser:
    """A browser behind the proxy in front of the server's gateway."""

    stage: Stage
    way: str

    @property
    def address(self) -> str:
        return f"{HOST}:{self.stage.proxies[BROWSER_GATEWAY].port}"

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The content of the answer. `Ended` for one that says why not, and for one that broke off."""
        with self.answer(method, path, body) as answer:
            return answer.read()

    @contextlib.contextmanager
    def answer(self, method: str, path: str, body: bytes | None = None) -> Iterator[http.client.HTTPResponse]:
        """The answer, whose content is read in the block. `Ended` for one that says why not, and if it breaks off."""
        verifying = self.stage.guard.verifying
        connection = (
            http.client.HTTPConnection(self.address, timeout=ANSWER_SECONDS)
            if verifying is None
            else http.client.HTTPSConnection(self.address, timeout=ANSWER_SECONDS, context=verifying)
        )
        answer: http.client.HTTPResponse | None = None
        try:
            connection.request(method, path, body, self.stage.guard.headers)
            answer = connection.getresponse()
            if answer.status >= 300:
                content = answer.read()
                refusal = code_of_answer(answer.status, content)
                raise refusal or RuntimeError(f"HTTP {answer.status}: {content[:500]!r}")
            yield answer
        except TimeoutError:
            raise  # nobody answered: that is a hang, and is judged as one
        except (http.client.HTTPException, OSError, StopIteration, pa.ArrowInvalid) as error:
            began = answer is not None and method != "PUT" and not isinstance(error, OSError)
            raise Ended(BROKEN_OFF if began else BROKEN, type(error).__name__) from error
        finally:
            connection.close()

    @contextlib.contextmanager
    def socket(self, path: str) -> Iterator[ClientConnection]:
        """A WebSocket; what ends it too early is raised as `unfinished` has it."""
        verifying = self.stage.guard.verifying
        try:
            with connect(
                f"{'wss' if verifying else 'ws'}://{self.address}{path}",
                ssl=verifying,
                additional_headers=self.stage.guard.headers,
                open_timeout=ANSWER_SECONDS,
                close_timeout=2,
                max_size=2**24,
            ) as socket:
                yield socket
        except TimeoutError:
            raise
        except (WebSocketException, OSError, EOFError) as error:
            raise unfinished(error) from error


def unfinished(error: Exception) -> Exception:
    """What the end of a WebSocket says: `Ended` for an answer or a close code that is documented, and for no word."""
    if isinstance(error, InvalidStatus):
        status, body = error.response.status_code, bytes(error.response.body or b"")
        return code_of_answer(status, body) or RuntimeError(f"upgrade refused with {status}: {body[:500]!r}")
    if isinstance(error, ConnectionClosed) and error.rcvd is not None:
        code, reason = error.rcvd.code, error.rcvd.reason
        if code == GOING_AWAY or (code >= OF_STATUS and code != OF_STATUS + 500):
            return Ended(f"closed with {code}", reason)
        return RuntimeError(f"closed with {code} {reason!r} before its end")
    return Ended(BROKEN, type(error).__name__)


class HttpGet(_Browser, Get):
    name = "GET"
    way = BROWSER_GATEWAY

    def carry_out(self) -> None:
        content = self.ask("GET", f"/devices/{FILES}/files/s.bin?mode={self.mode}")
        self.taken["s.bin"].write_bytes(content)


class HttpPut(_Browser, Put):
    name = "PUT"
    way = BROWSER_GATEWAY

    def carry_out(self) -> None:
        self.ask("PUT", f"/devices/{FILES}/files/t.bin?mode={self.mode}", self.given["t.bin"].read_bytes())


class HttpSession(_Browser, Rows):
    name = "http session"
    way = BROWSER_GATEWAY

    def carry_out(self) -> None:
        self.kept.rows.clear()
        self.kept.missing.clear()
        request = {"type": "device.session", "device": TALKER, "limit_rows": ROWS, "mode": self.mode}
        with self.answer("POST", "/stream", json.dumps(request).encode()) as answer:
            rows = pa.ipc.open_stream(answer)
            while True:
                batch, said = rows.read_next_batch_with_custom_metadata()
                told = {key.decode(): json.loads(value) for key, value in (said or {}).items()}
                columns = (batch[key].to_pylist() for key in ("seq", "direction", "data"))
                self.take(*columns)
                if gap := told.get("fastflight.note", {}).get("gap"):
                    self.kept.missing.append((gap["first"], gap["last"]))
                if error := told.get("fastflight.error"):
                    raise code_of_answer(503, json.dumps(error).encode()) or RuntimeError(f"told {error}")
                if trailer := told.get("fastflight.trailer"):
                    if trailer["ended"] != "limit reached":
                        raise Ended(f"ended: {trailer['ended']}")
                    return

    def flaw(self, completed: bool) -> str:
        return few(self.kept, completed) or super().flaw(completed)


class Relayed(_Browser, Work):
    """A stream from a target: what came is its beginning, and an end that is in order means all of it."""

    name = "relay"
    way = BROWSER_GATEWAY
    board = ""
    is_verified = False

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        super().__init__(stage, chance)
        self.reach = len(CONTENT)
        self.data = bytearray()

    def carry_out(self) -> None:
        self.data.clear()
        port = self.stage.proxies[RELAY_TARGET].port
        with self.socket(f"/ws/tcp?host={HOST}&port={port}") as socket, contextlib.suppress(ConnectionClosedOK):
            while True:
                message = socket.recv(ANSWER_SECONDS)
                if isinstance(message, str):
                    error = json.loads(message)["error"]
                    raise Ended(f"relay: {error['code']}", error["text"])
                self.data += message

    def flaw(self, completed: bool) -> str:
        if not CONTENT.startswith(self.data):
            return f"{len(self.data)} bytes came, and they are others"
        return f"{len(self.data)} bytes came, and then an end in order" if completed and self.data != CONTENT else ""
