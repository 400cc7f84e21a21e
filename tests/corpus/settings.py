"""What people write: device URLs, fleet files, addresses and options of the command line."""

from __future__ import annotations

from fastflight.app.fleet_file import MAX_FLEET_BYTES
from fastflight.errors import RequestError
from fastflight.transport.url import MAX_URL_CHARACTERS

from .case import Case

DIGITS = "9" * 5000
UNKNOWN = "unknown kind of device"
NEEDED = "host and port are both needed"

URLS = [
    Case("nothing", "", RequestError, UNKNOWN),
    Case("a kind alone", "serial", RequestError, UNKNOWN),
    Case("a kind in capitals", "SIM:", RequestError, UNKNOWN),
    Case("a slip of the pen", "sims:", RequestError, "Did you mean 'sim'?"),
    Case("another server's scheme", "https://example.com", RequestError, UNKNOWN),
    Case("a file", "file:///etc/passwd", RequestError, UNKNOWN),
    Case("a URL without end", "x" * (MAX_URL_CHARACTERS + 1), RequestError, f"{MAX_URL_CHARACTERS} are allowed"),
    Case("a kind with NUL", "\0:", RequestError, UNKNOWN),
    Case("COM without number", "COM", RequestError, UNKNOWN),
    Case("a serial port without name", "serial:", RequestError, "the port's name is missing"),
    Case("a serial port named twice", "serial:///dev/ttyACM0?serial_number=1", RequestError, "named twice"),
    Case("a speed of nothing", "serial:///dev/ttyACM0?baud=0", RequestError, "baud must be from 1"),
    Case("a speed below nothing", "serial:///dev/ttyACM0?baud=-1", RequestError, "baud must be a whole number"),
    Case("a speed that is text", "serial:///dev/ttyACM0?baud=fast", RequestError, "baud must be a whole number"),
    Case("a speed of thousands of digits", f"serial:///dev/ttyACM0?baud={DIGITS[:1500]}", RequestError, "baud must be"),
    Case("a speed in another script", "serial:///dev/ttyACM0?baud=\u0661\u0662", RequestError, "baud must be"),
    Case("a speed with underscores", "serial:///dev/ttyACM0?baud=1_000", RequestError, "baud must be"),
    Case("a speed that is superscript", "serial:///dev/ttyACM0?baud=\u00b2", RequestError, "baud must be"),
    Case("a speed twice", "serial:///dev/ttyACM0?baud=1&baud=2", RequestError, "option 'baud' is given twice"),
    Case("an unknown option", "serial:///dev/ttyACM0?buad=1", RequestError, "Did you mean 'baud'?"),
    Case("an option without value", "serial:///dev/ttyACM0?baud", RequestError, "cannot read the options"),
    Case("too many options", "sim:?" + "&".join(f"fault=a{i}" for i in range(100)), RequestError, "cannot read the options"),
    Case("an unknown option of a serial port", "serial:///dev/ttyACM0?writer=x", RequestError, "unknown option"),
    Case("a flag of two", "serial:///dev/ttyACM0?dtr=2", RequestError, "dtr must be 0 or 1"),
    Case("a socket without port", "socket://host", RequestError, NEEDED),
    Case("a socket without host", "socket://:2218", RequestError, NEEDED),
    Case("a port of nothing", "socket://host:0", RequestError, NEEDED),
    Case("a port beyond all", "socket://host:65536", RequestError, "out of range"),
    Case("a port below nothing", "socket://host:-1", RequestError, "Port"),
    Case("a port that is text", "socket://host:http", RequestError, "Port could not be cast"),
    Case("a port with a path", "socket://host:1/../..", RequestError, "only options may follow the port"),
    Case("half an IPv6 address", "socket://[::1:2218", RequestError, "Invalid IPv6 URL"),
    Case("an RFC 2217 server without anything", "rfc2217://", RequestError, NEEDED),
    Case("no command", "exec:", RequestError, "the command is missing"),
    Case("a command of spaces", "exec:   ", RequestError, "the command is missing"),
    Case("a simulated board at a place", "sim:/etc", RequestError, "is out of place"),
    Case("a simulated board with an unknown fault list", "sim:?faults=x", RequestError, "Did you mean 'fault'?"),
    Case("a ring that is text", "sim:?ring=big", RequestError, "ring must be a whole number"),
    Case("a heap of thousands of digits", f"sim:?heap={DIGITS[:1500]}", RequestError, "heap must be a whole number"),
]  # fmt: skip

COLLECT = "collect = {{ path = '/log.csv', to = 'collected', minutes = {} }}"


def device(keys: str) -> bytes:
    """A fleet file with one device, and what comes after its URL."""
    return f"[devices.a]\nurl = 'sim:'\n{keys}\n".encode()


FLEETS = [
    Case("nothing", b"", RequestError, "devices"),
    Case("no TOML", b"devices: {}", RequestError, "not TOML"),
    Case("NUL", b"\0", RequestError, "not TOML"),
    Case("bytes that are not UTF-8", b"\xff", RequestError, "not TOML"),
    Case("UTF-16", "[devices.a]\nurl='sim:'\n".encode("utf-16"), RequestError, "not TOML"),
    Case("a byte order mark", b"\xef\xbb\xbf[devices.a]\nurl='sim:'\n", RequestError, "not TOML"),
    Case("a byte too many", b"#" * (MAX_FLEET_BYTES + 1), RequestError, "not a fleet file"),
    Case("brackets without end", b"a=" + b"[" * 20_000, RequestError, "nested too deep"),
    Case("a number of thousands of digits", b"a=" + DIGITS.encode(), RequestError, "not TOML"),
    Case("a key given twice", b"[devices.a]\nurl='sim:'\nurl='sim:'\n", RequestError, "not TOML"),
    Case("a table given twice", b"[devices.a]\nurl='sim:'\n[devices.a]\nurl='sim:'\n", RequestError, "not TOML"),
    Case("devices that are a list", b"devices = ['sim:']", RequestError, "devices"),
    Case("a device that is text", b"[devices]\na = 'sim:'\n", RequestError, "devices.a"),
    Case("a device without URL", b"[devices.a]\n", RequestError, "devices.a.url"),
    Case("a URL that is a number", b"[devices.a]\nurl=1\n", RequestError, "devices.a.url"),
    Case("a device without name", b"[devices.'']\nurl='sim:'\n", RequestError, "no name for a device"),
    Case("a device that leads up", b"[devices.'../a']\nurl='sim:'\n", RequestError, "no name for a device"),
    Case("a device with a line feed", b"[devices.\"a\\n\"]\nurl='sim:'\n", RequestError, "no name for a device"),
    Case("a device of spaces", b"[devices.' ']\nurl='sim:'\n", RequestError, "no name for a device"),
    Case("an unknown key of a device", b"[devices.a]\nurl='sim:'\nbaud=1\n", RequestError, "devices.a.baud: unknown key"),
    Case("an unknown table", b"[devices.a]\nurl='sim:'\n[limit]\nstreams=1\n", RequestError, "limit"),
    Case("a bridge without port", b"[devices.a]\nurl='sim:'\nbridge={}\n", RequestError, "a bridge needs a port"),
    Case("a bridge at a port beyond all", b"[devices.a]\nurl='sim:'\nbridge={socket=65536}\n", RequestError, "devices.a.bridge.socket: Input should be less than or equal to 65535. As in bridge = {"),
    Case("a bridge at a port of text", b"[devices.a]\nurl='sim:'\nbridge={socket='1'}\n", RequestError, "bridge.socket"),
    Case("no streams", b"[devices.a]\nurl='sim:'\n[limits]\nstreams=0\n", RequestError, "limits.streams: Input should be greater than or equal to 1. As in [limits]"),
    Case("streams of truth", b"[devices.a]\nurl='sim:'\n[limits]\nstreams=true\n", RequestError, "limits.streams"),
    Case("infinite waiting", b"[devices.a]\nurl='sim:'\n[limits]\nwait_seconds=inf\n", RequestError, "wait_seconds"),
    Case("waiting that is no number", b"[devices.a]\nurl='sim:'\n[limits]\nwait_seconds=nan\n", RequestError, "wait_seconds"),
    Case("a relay to one that is no list", b"[devices.a]\nurl='sim:'\n[relay]\nallow='a:1'\n", RequestError, "relay.allow"),
    Case("a date where text should be", b"[devices.a]\nurl=1979-05-27\n", RequestError, "devices.a.url"),
    Case("recorded by a number", device("record = 1"), RequestError, "devices.a.record: Input should be a valid boolean"),
    Case("viewers of no bridge", device("bridge = { viewers = 1 }"), RequestError, "a bridge needs a port: rfc2217, socket or both"),
    Case("an unknown key of a bridge", device("bridge = { sokcet = 1 }"), RequestError, "devices.a.bridge.sokcet: unknown key. Did you mean 'socket'"),
    Case("an unknown key of limits", device("[limits]\nsteams = 9"), RequestError, "limits.steams: unknown key. Did you mean 'streams'"),
    Case("an unknown key of recordings", device("[recordings]\nmax_byte = 1"), RequestError, "recordings.max_byte: unknown key. Did you mean 'max_bytes'"),
    Case("a size in pounds", device("[recordings]\nmax_bytes = '2 pounds'"), RequestError, "could not interpret byte unit: pounds"),
    Case("a size beyond all numbers", device(f"[recordings]\nmax_bytes = '{'9' * 305}GB'"), RequestError, "could not parse value and unit"),
    Case("a sync of no time", device("[recordings]\nsync_ms = 0"), RequestError, "recordings.sync_ms: Input should be greater"),
    Case("little memory for SQL", device("[sql]\nmemory = '1MB'"), RequestError, "sql.memory: Input should be greater"),
    Case("a log that is collected all the time", device(COLLECT.format(0)), RequestError, "collect.minutes"),
    Case("a log that is never collected", device(COLLECT.format(1e9)), RequestError, "collect.minutes"),
    Case("an unknown output", device("publish = ['kafka://x']"), RequestError, "unknown kind of output. Known: influx"),
    Case("an output that is a number", device("publish = [7]"), RequestError, "publish"),
    Case("an output that is named twice", device("publish = ['mqtt://x', 'mqtt://x']"), RequestError, "named twice"),
    Case("published rows without columns", device("publish = ['mqtt://x']\nrows = { format = 'jsonl' }"), RequestError, "devices.a.rows: schema: jsonl needs a schema"),
    Case("an unknown key of rows", device("publish = ['mqtt://x']\nrows = { colour = 'red' }"), RequestError, "devices.a.rows.colour: unknown key. Known: comment, decimal, delimiter, format"),
    Case("a password of no variable", device("publish = ['mqtt://me@x?password_env=NOT_SET_ANYWHERE']"), RequestError, "NOT_SET_ANYWHERE is not set"),
]  # fmt: skip

# An option of `serve`, and what is given for it.
OPTIONS = [
    Case("an address of nothing", ("location", ""), RequestError, "not an address of a server"),
    Case("an address without port", ("location", "grpc://127.0.0.1"), RequestError, "not an address of a server"),
    Case("an address of all", ("location", "grpc://0.0.0.0:8815"), RequestError, "other computers can connect only"),
    Case("an address of all, in IPv6", ("location", "grpc://[::]:8815"), RequestError, "other computers can connect only"),
    Case("an address by a name that looks local", ("location", "grpc://localhost.evil.com:1"), RequestError, "other computers can connect only"),
    Case("an address in one number", ("location", "grpc://2130706433:1"), RequestError, "other computers can connect only"),
    Case("half an IPv6 address", ("location", "grpc://[::1:1"), RequestError, "not an address"),
    Case("an address with a path", ("location", "grpc://127.0.0.1:1/a"), RequestError, "not an address of a server"),
    Case("a port beyond all", ("location", "grpc://127.0.0.1:99999"), RequestError, "not an address"),
    Case("HTTP at an address of a page", ("http", "http://127.0.0.1:8000"), RequestError, "not an address"),
    Case("HTTP for all", ("http", "0.0.0.0:80"), RequestError, "other computers can connect only"),
    Case("HTTP at a port beyond all", ("http", "65536"), RequestError, "not an address"),
    Case("HTTP at a port of thousands of digits", ("http", DIGITS), RequestError, "not an address"),
    Case("HTTP at a port in another script", ("http", "\u0661"), RequestError, "not an address"),
    Case("HTTP at no port", ("http", ""), RequestError, "not an address"),
    Case("HTTP without host", ("http", ":80"), RequestError, "not an address"),
    Case("a device without URL", ("device", "a="), RequestError, "not NAME=URL"),
    Case("a device without name", ("device", "=sim:"), RequestError, "not NAME=URL"),
    Case("a device that leads up", ("device", "../a=sim:"), RequestError, "not NAME=URL"),
    Case("an origin that is a host", ("origin", "example.com"), RequestError, "not an origin"),
    Case("an origin of all", ("origin", "*"), RequestError, "not an origin"),
    Case("an origin with a path", ("origin", "http://example.com/a"), RequestError, "not an origin"),
    Case("an origin with a line feed", ("origin", "http://example.com\n"), RequestError, "not an origin"),
    Case("no origin", ("origin", "null"), RequestError, "not an origin"),
]  # fmt: skip

CASES = {"device URLs": URLS, "fleet files": FLEETS, "options of serve": OPTIONS}
