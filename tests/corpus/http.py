"""Requests to the HTTP port: paths that lead out, queries, headers, contents, and what is no HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastflight.errors import DataError, FileMissing, RequestError, UnknownName
from fastflight.gateway.http.listening import MAX_HEAD_BYTES
from fastflight.service.choices import MAX_REQUEST_BYTES

from .case import Case

FILE = "/devices/demo/files/"


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """A request as it is written, with a `status` to be answered."""

    target: str
    status: int
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""

    @property
    def wire(self) -> bytes:
        headers = {"Host": "127.0.0.1", "Connection": "close", "Content-Length": str(len(self.content)), **self.headers}
        lines = [f"{self.method} {self.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.content


def get(target: str, status: int, **headers: str) -> ResolvedRequest:
    return ResolvedRequest(target, status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def put(content: bytes, status: int, media_type: str, target: str = FILE + "a.csv") -> ResolvedRequest:
    return ResolvedRequest(target, status, "PUT", {"Content-Type": media_type}, content)


def post(target: str, status: int, content: bytes = b"{}") -> ResolvedRequest:
    return ResolvedRequest(target, status, "POST", {}, content)


PATHS = [
    Case("dots, encoded", get(FILE + "%2e%2e%2f%2e%2e%2fetc%2fpasswd", 404), FileMissing, "demo:/etc/passwd"),
    Case("dots, encoded twice, are a name", get(FILE + "%252e%252e%252fa.csv", 404), FileMissing, "demo:/%2e%2e%2fa.csv"),
    Case("dots as they are", get(FILE + "../../../etc/passwd", 404), FileMissing, "demo:/etc/passwd"),
    Case("backslashes are characters", get(FILE + "..%5c..%5ca.csv", 404), FileMissing, "no such file"),
    Case("an absolute path", get(FILE + "/etc/passwd", 404), FileMissing, "demo:/etc/passwd"),
    Case("NUL, encoded", get(FILE + "a.csv%00.png", 400), RequestError, "the path holds the character"),
    Case("a byte that is not UTF-8", get(FILE + "%ff", 400), RequestError, "the path is not UTF-8"),
    Case("an overlong slash", get(FILE + "..%c0%afa.csv", 400), RequestError, "the path is not UTF-8"),
    Case("a surrogate", get(FILE + "%ed%a0%80", 400), RequestError, "the path is not UTF-8"),
    Case("half an encoding is a name", get(FILE + "%4", 404), FileMissing, "no such file"),
    Case("a line feed, encoded", get(FILE + "a%0d%0aSet-Cookie:%20a=b", 404), FileMissing, "no such file"),
    Case("a name without end", get(FILE + "n" * 2000, 400), RequestError, "path"),
    Case("a device that leads up", get("/devices/..%2f..%2fetc/info", 404), RequestError, ""),
    Case("a device that is not there", get("/devices/dem", 404), UnknownName, "Did you mean 'demo'?"),
    Case("a part of the page that leads out", get("/page/..%2f..%2fapp", 404), RequestError, ""),
    Case("a library of the page that leads out", get("/page/xterm/../../../METADATA", 404), RequestError, ""),
    Case("a route that is not there", get("/admin", 404), RequestError, "See /openapi.json"),
    Case("a method that is not there", ResolvedRequest("/devices", 405, "PATCH"), RequestError, ""),
]  # fmt: skip

QUERIES = [
    Case("an unknown format", get(FILE + "a.csv?format=xml", 400), RequestError, "'xml' is not a format here"),
    Case("a format of half a character", get(FILE + "a.csv?format=%ed%a0%80", 400), RequestError, "is not a format"),
    Case("an unknown key", get(FILE + "a.csv?format=csv&colums=n", 400), RequestError, "Did you mean 'columns'?"),
    Case("rows that are no number", get(FILE + "a.csv?format=csv&batch_rows=many", 400), RequestError, "batch_rows"),
    Case("no rows", get(FILE + "a.csv?format=csv&batch_rows=0", 400), RequestError, "batch_rows"),
    Case("rows of thousands of digits", get(FILE + "a.csv?format=csv&batch_rows=" + "9" * 5000, 400), RequestError, "batch_rows"),
    Case("rows in another script", get(FILE + "a.csv?format=csv&batch_rows=%D9%A1", 400), RequestError, "batch_rows"),
    Case("a flag that is no truth", get(FILE + "a.csv?interrupt=maybe", 400), RequestError, "interrupt"),
    Case("a column that is not there", get(FILE + "a.csv?format=csv&columns=m", 400), RequestError, "no column is named"),
    Case("a use of a ticket that is none", post("/tickets?for=shell", 400), RequestError, "is not a use"),
]  # fmt: skip

HEADERS = [
    Case("another host", get("/devices", 421, Host="evil.example"), RequestError, "not a name of this computer"),
    Case("a host that begins like ours", get("/devices", 421, Host="127.0.0.1.evil.example"), RequestError, "not a name"),
    Case("a host of nothing", get("/devices", 421, Host=""), RequestError, "not a name of this computer"),
    Case("a page from elsewhere", get("/devices", 403, Origin="http://evil.example"), RequestError, "pages from elsewhere"),
    Case("a page without origin", get("/devices", 403, Origin="null"), RequestError, "pages from elsewhere"),
    Case("a page that a browser calls foreign", get("/devices", 403, Sec_Fetch_Site="cross-site"), RequestError, "pages from"),
    Case("a range behind the end", get(FILE + "a.csv", 416, Range="bytes=100-"), RequestError, "the file has 8 bytes"),
    Case("a range of nothing", get(FILE + "a.csv", 416, Range="bytes=-0"), RequestError, "the file has 8 bytes"),
    Case("a type that nothing is", get(FILE + "a.csv", 406, Accept="image/png"), RequestError, "not available as"),
    Case("a weight that is no number", get(FILE + "a.csv", 406, Accept="text/csv;q=x"), RequestError, "not available as"),
]  # fmt: skip

CSV, JSONL, ARROW = "text/csv", "application/jsonl", "application/vnd.apache.arrow.stream"
CONTENTS = [
    Case("a type that holds no rows", put(b"<a/>", 415, "text/xml"), RequestError, "not a format for uploads"),
    Case("a type without end", put(b"a", 415, "x/" + "y" * 3000), RequestError, "not a format for uploads"),
    Case("no rows at all", put(b"", 422, JSONL), DataError, "the table has no columns"),
    Case("rows that are no Arrow", put(b"n\n1\n2\n3\n4\n", 422, ARROW), DataError, "no Arrow message starts here"),
    Case("Arrow that is cut", put(b"\xff\xff\xff\xff", 422, ARROW), DataError, "in the middle of a message"),
    Case("CSV that is not UTF-8", put(b"\xff\n1\n", 422, CSV, FILE + "a.jsonl"), DataError, "the header is not UTF-8"),
    Case("a row too short", put(b"n,m\n1\n", 422, CSV, FILE + "a.jsonl"), DataError, "the row has 1 cells"),
    Case("rows that are no JSON", put(b"{\n", 422, JSONL), DataError, "is not a JSON object"),
    Case("a request that is too long", post("/stream", 413, b" " * (MAX_REQUEST_BYTES + 1)), RequestError, f"more than {MAX_REQUEST_BYTES} bytes"),
    Case("code in no object", post("/devices/demo/exec", 400, b'"print(1)"'), RequestError, "a JSON object is needed"),
    Case("code for another device", post("/devices/dem/exec", 404, b'{"code": "1", "device": "demo"}'), UnknownName, "no such device"),
    Case("an action that is not there", post("/actions/devics", 400), RequestError, "Did you mean 'devices'?"),
]  # fmt: skip

# What is not HTTP, or too much of it: the status, or nothing but an end.
RAW = [
    Case("the beginning of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", outcome=400),
    Case("HTTP/2 without having been asked", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", outcome=400),
    Case("a version that is none", b"GET / HTTP/9.9\r\n\r\n", outcome=400),
    Case("a method that is none", b"GIT / HTTP/1.1\r\n\r\n", outcome=400),
    Case("a header without colon", b"GET / HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n", outcome=400),
    Case("a header with NUL", b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", outcome=400),
    Case("two lengths", b"POST /stream HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", outcome=400),
    Case("a length and chunks", b"POST /stream HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", outcome=400),
    Case("a length below nothing", b"POST /stream HTTP/1.1\r\nContent-Length: -1\r\n\r\n", outcome=400),
    Case("a length of thousands of digits", b"POST /stream HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", outcome=400),
    Case("a chunk that is no number", b"POST /stream HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", outcome=400),
    Case("a head without end", b"GET / HTTP/1.1\r\nA: " + b"x" * (MAX_HEAD_BYTES + 1), outcome=400),
]  # fmt: skip

CASES = {
    "HTTP paths": PATHS,
    "HTTP queries": QUERIES,
    "HTTP headers": HEADERS,
    "HTTP contents": CONTENTS,
    "what is no HTTP": RAW,
}
