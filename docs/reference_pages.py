"""Makes the parts of the reference that come from the code: commands, requests, actions, errors, settings, metrics.

`limits_page` makes those of the page on limits.

`PARTS` maps a page of this folder to a function that returns Markdown, which replaces the line `MARK` of the page.
Names, types, limits, defaults and texts come from the code. What a key of a request means is in `reference/keys.toml`,
which also has the keys of text files for the fleet file. A key without a text, or a text without a key, is a
`ValueError`: the pages cannot describe what does not exist, or leave out what does.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from limits_page import limits_part
from pydantic import BaseModel

from fastflight import errors
from fastflight.access.action import Action, EmptyBody, RawAction
from fastflight.access.authority import Authority
from fastflight.app import config
from fastflight.app.config import FleetFile, is_reloaded
from fastflight.app.device_address import PASSWORD_VARIABLE
from fastflight.cli.main import COMMANDS, PANELS, load
from fastflight.cli.server_options import TOKEN_VARIABLE
from fastflight.concurrency import Shards
from fastflight.device import Inventory
from fastflight.gateway.errors import STATUS as HTTP_STATUS
from fastflight.gateway.metrics import EdgeMetrics
from fastflight.runtime import admission
from fastflight.runtime.admission import Limits
from fastflight.runtime.metrics import DEFINITIONS
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server.actions import own_actions
from fastflight.server.status import STATUS as FLIGHT_STATUS
from fastflight.service import Catalog
from fastflight.service.requests import FileRequest, Request
from fastflight.sources.actions import device_actions
from fastflight.sources.crashes import Crashes
from fastflight.sources.kept_values import KeptValues
from fastflight.sources.recording_actions import recording_actions

KEYS = Path(__file__).parent / "reference" / "keys.toml"
MARK = "<!-- made from the code: the site has the tables here -->"
# The gRPC code of each exception that `fastflight.server.status` raises.
GRPC_CODES = {
    "NotFound": "NOT_FOUND",
    "InvalidArgument": "INVALID_ARGUMENT",
    "Unimplemented": "UNIMPLEMENTED",
    "FlightUnauthenticatedError": "UNAUTHENTICATED",
    "FlightUnauthorizedError": "PERMISSION_DENIED",
    "FlightUnavailableError": "UNAVAILABLE",
    "FlightTimedOutError": "DEADLINE_EXCEEDED",
    "FlightServerError": "UNKNOWN",
    "FlightInternalError": "INTERNAL",
}
# The variables that the commands read but no option names.
OTHER_VARIABLES = {
    TOKEN_VARIABLE: "Your token itself. A token file is safer.",
    PASSWORD_VARIABLE: "The password of `ws://` devices whose URL does not say where it is.",
}
# The Flight call of each operation that a request type declares.
CALLS = {"read": "do_get", "write": "do_put", "exchange": "do_exchange", "describe": "get_flight_info"}


def commands_part() -> str:
    """Return the part on the command line."""
    parts = []
    for panel, names in PANELS.items():
        rows = [(f"[`{name}`](#{name})", COMMANDS[name][1]) for name in names if name in COMMANDS]
        parts += [f"**{panel}**", _table(("command", "does"), rows)]
    for name in COMMANDS:
        parts.extend(_command(load(name), name))
    return _page(parts)


def _command(command: Any, name: str, level: int = 2) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    if subcommands := getattr(command, "commands", None):
        yield _reflowed(command.help)
        for name_below, below in subcommands.items():
            yield from _command(below, f"{name} {name_below}", level + 1)
        return
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in shown if not parameter.opts[0].startswith("-")]
    options = [parameter for parameter in shown if parameter.opts[0].startswith("-")]
    usage = " ".join(["fastflight", name, *(["[OPTIONS]"] if options else []), *map(argument, arguments)])
    yield f"```text\n{usage}\n```"
    yield _reflowed(command.help)
    rows = [(f"`{argument(each)}`", "", each.help or "") for each in arguments]
    rows += [(option(each), default(each), each.help or "") for each in options]
    yield _table(("option", "default", "meaning"), rows)


def argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def option(parameter: Any) -> str:
    value = "" if getattr(parameter, "is_flag", False) else f" {parameter.metavar or _choices(parameter)}"
    names = [*sorted(parameter.opts, key=len), *parameter.secondary_opts]
    variable = f"<br>variable `{parameter.envvar}`" if parameter.envvar else ""
    return ", ".join(f"`{name}{value}`" for name in names) + variable


def _choices(parameter: Any) -> str:
    if choices := getattr(parameter.type, "choices", None):
        return "|".join(map(str, choices))
    kind = parameter.type.name.removesuffix(" range")
    return {"integer": "NUMBER", "float": "NUMBER", "path": "PATH"}.get(kind, "TEXT")


def default(parameter: Any) -> str:
    default = parameter.default
    if default is None or default is False or default == () or default == [] or callable(default):
        return ""
    if default is True:
        return f"`{parameter.opts[0]}`"
    return f"`{default}`"


def requests_part() -> str:
    """Return the part on requests: a section for each type."""
    texts = tomllib.loads(KEYS.read_text(encoding="utf-8"))["requests"]
    override = texts.pop("override")
    kinds = request_types()
    parts = [
        _table(
            ("type", "in one sentence", "`do_get`", "`do_put`", "`do_exchange`"),
            [
                (
                    f"[`{kind.type}`](#{_anchor(kind.type)})",
                    _first_sentence(kind),
                    *("yes" if call in kind.demands else "" for call in ("read", "write", "exchange")),
                )
                for kind in kinds
            ],
        ),
    ]
    used: set[str] = set()
    for kind in kinds:
        rows = []
        for key, schema, required in properties(kind):
            full = f"{kind.type}.{key}"
            used.add(full if full in override else key)
            text = override.get(full, texts.get(key))
            if text is None:
                raise ValueError(f"reference/keys.toml has no text for the key {full}")
            rows.append((f"`{key}`", type_of(schema), default_of(schema, required), text))
        needs = ", ".join(f"`{verb}` for `{CALLS[call]}`" for call, verb in kind.demands.items() if verb is not None)
        parts += [
            f"## {kind.type}",
            _prose(kind),
            f"With tokens, the caller needs this scope on the device: {needs}." if needs else "It needs no scope.",
            _table(("key", "type", "default", "meaning"), rows),
        ]
    _check_used({*texts, *override}, used)
    return _page(parts)


def request_types() -> list[type[Request]]:
    """Return the product's request types. Tests define more of them."""
    known = [*Request.__subclasses__(), *FileRequest.__subclasses__()]
    own = [kind for kind in known if kind.__module__ == Request.__module__ and hasattr(kind, "type")]
    return sorted(own, key=lambda kind: kind.type)


def settings_part() -> str:
    """Return the part on settings: the fleet file, and environment variables."""
    texts = tomllib.loads(KEYS.read_text(encoding="utf-8"))["settings"]
    rows = [*settings()]
    _check_used(set(texts), {key for key, _, _, text in rows if not text})
    parts = [
        "## Fleet file",
        "`*` is the name of a device, or the place of an alert. SIGHUP applies what says so, and logs the rest.",
        _table(
            ("key", "type", "default", "reload", "meaning"),
            [
                (f"`{key}`", kind, default, "applied" if is_reloaded(key) else "restart", text or texts[key])
                for key, kind, default, text in rows
            ],
        ),
        "## Environment variables",
        _table(("variable", "meaning"), sorted(variables().items())),
    ]
    return _page(parts)


def settings() -> Iterator[tuple[str, str, str, str]]:
    """Yield the key, the type, the default and the text of each setting of a fleet file."""
    schema = FleetFile.model_json_schema()
    yield from _settings(schema, schema["$defs"], texts_of(config, admission), "")


def texts_of(*modules: ModuleType) -> dict[tuple[str, str], str]:
    """Return the docstrings below the keys of classes, by the names of class and key.

    pydantic would read them, too, and take the time for that each time a server starts.
    """
    return {
        (kind.name, key.target.id.rstrip("_")): text.value.value
        for module in modules
        for kind in ast.parse(inspect.getsource(module)).body
        if isinstance(kind, ast.ClassDef)
        for key, text in pairwise(kind.body)
        if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def _settings(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], texts: Mapping[tuple[str, str], str], prefix: str
) -> Iterator[tuple[str, str, str, str]]:
    for key, given in schema["properties"].items():
        at = f"{prefix}{key}"
        text = texts.get((schema["title"], key), "")
        below = [each for each in (given, *given.get("anyOf", ())) if "$ref" in each]
        values = given.get("additionalProperties", given.get("items"))
        if isinstance(values, Mapping) and "$ref" in values:
            below, at = [values], f"{at}.*"
        if not below:
            yield at, type_of(given), default_of(given, key in schema.get("required", ())), text
        for reference in below:
            if ".*." in f"{at}.":
                if not at.endswith("*"):
                    yield at, "table", "", text
            yield from _settings(definitions[reference["$ref"].rpartition("/")[2]], definitions, texts, f"{at}.")


def variables() -> dict[str, str]:
    found = {}
    for name in COMMANDS:
        for command in getattr(load(name), "commands", {name: load(name)}).values():
            for parameter in command.params:
                if parameter.envvar:
                    found[f"`{parameter.envvar}`"] = f"The same as `{parameter.opts[0]}`: {parameter.help}"
    return {**found, **{f"`{name}`": text for name, text in OTHER_VARIABLES.items()}}


def all_actions() -> list[Action | RawAction]:
    """Return the actions of a server, by name."""
    with Shards(1) as shards:
        actions = [
            *device_actions(Inventory({}, shards=shards)),
            *recording_actions(None),
            Crashes(Inventory({}, shards=shards), KeptValues(lambda: None)).action(),
            *own_actions(StreamRegistry(Limits()), Catalog(), shards, Authority((), None)),
        ]
    return sorted(actions, key=lambda each: each.name.lower())


def actions_part() -> str:
    """Return the part on actions."""
    parts = []
    for action in all_actions():
        parts += [f"## {action.name}", _markup(action.description)]
        if not isinstance(action, Action):
            continue
        if action.public:
            parts.append("Everybody who reaches the port may run it.")
        elif action.verb is not None:
            parts.append(f"With tokens, it needs the scope `{action.verb}`.")
        if action.body is not EmptyBody:
            rows = [
                (f"`{key}`", type_of(schema), default_of(schema, required))
                for key, schema, required in properties(action.body)
            ]
            parts.append(_table(("key", "type", "default"), rows))
            if texts := [text for kind in reversed(action.body.__mro__) if (text := kind.__dict__.get("__doc__"))]:
                parts += [_reflowed(text) for text in texts if "`:" in text]
    return _page(parts)


def errors_part() -> str:
    """Return the part on errors, with the codes on the wire and the statuses of both protocols."""
    return _page([_table(("code", "class", "Flight", "HTTP", "when"), error_rows())])


def error_rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield each error: its code, its class, its gRPC code, its HTTP status, and when it is raised."""
    base = len(errors.FastFlightError.__mro__)
    for kind in _tree(errors.FastFlightError):
        is_root = kind is errors.FastFlightError
        yield (
            f"`{kind.code}`",
            f"{'&nbsp;&nbsp;' * (len(kind.__mro__) - base)}`{kind.__name__}`",
            "INTERNAL" if is_root else GRPC_CODES[_first(FLIGHT_STATUS, kind).__name__],
            "500" if is_root else str(_first(HTTP_STATUS, kind)),
            _summary(kind),
        )


def _tree(kind: type[errors.FastFlightError]) -> Iterator[type[errors.FastFlightError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _tree(below)


def _first(table: Iterable[tuple[type[Exception], Any]], kind: type[Exception]) -> Any:
    return next((status for known, status in table if issubclass(kind, known)), None) or _missing(kind)


def _missing(kind: type[Exception]) -> Any:
    # AccessError itself is never raised over HTTP: both of its subclasses have a status of their own.
    return 403 if kind is errors.AccessError else 500


def metrics_part() -> str:
    """Return the part on metrics: those of a server, and those of the gateway itself."""
    headings = ("metric", "kind", "labels", "meaning")
    of_server = [(name, each.kind, each.labels, each.help) for name, each in DEFINITIONS.items()]
    of_gateway = []
    for metric in _gateway_metrics().collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        of_gateway.append((name, metric.type, metric._labelnames, metric.documentation))
    return _page(
        [
            "## Of a server",
            _table(headings, map(_metric, of_server)),
            "## Of the gateway",
            "Only on `/metrics`: `stats` does not have them.",
            _table(headings, map(_metric, of_gateway)),
        ]
    )


def _gateway_metrics() -> EdgeMetrics:
    """Return the collector of a gateway that has done nothing. Its parts are not needed to name the metrics."""
    connections: Any = SimpleNamespace(open=0, unasked=0, refused=0, crowded_out=0, late=0, not_read=0)
    sockets: Any = SimpleNamespace(open=dict, revoked=0)
    viewers: Any = SimpleNamespace(all=list, skipped=0)
    return EdgeMetrics(Counter(), connections, sockets, viewers)


def _metric(row: tuple[str, str, Sequence[str], str]) -> tuple[str, str, str, str]:
    name, kind, labels, text = row
    return f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels) or "–", text


PARTS: Mapping[str, Callable[[], str]] = {
    "reference/commands.md": commands_part,
    "reference/requests.md": requests_part,
    "reference/actions.md": actions_part,
    "reference/errors.md": errors_part,
    "reference/settings.md": settings_part,
    "reference/metrics.md": metrics_part,
    "limits.md": limits_part,
}


def properties(model: type[BaseModel]) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    schema = model.model_json_schema()
    required = schema.get("required", ())
    # Keys that must be there come first, `mode` last: it is the same everywhere.
    names = sorted(schema["properties"], key=lambda key: (key not in required, key == "mode"))
    for key in names:
        yield key, schema["properties"][key], key in required


def type_of(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema in words: `integer, 1 to 4096`."""
    if "anyOf" in schema:
        return " or ".join(
            type_of({**each, **{key: schema[key] for key in ("gt", "ge", "le") if key in schema}})
            for each in schema["anyOf"]
            if each != {"type": "null"}
        )
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "$ref" in schema:
        return "object"
    if schema.get("type") == "array":
        return "list of text"
    words = {"string": "text", "boolean": "true or false", "object": "object"}
    kind = words.get(schema.get("type", ""), schema.get("type", "any"))
    if schema.get("format") == "date-time":
        return "time"
    if kind == "text":  # a range is that of its number
        longest = schema.get("maxLength")
        return kind if longest is None else f"{kind}, at most {longest:,} characters"
    low, high = schema.get("ge", schema.get("minimum")), schema.get("le", schema.get("maximum"))
    above = schema.get("exclusiveMinimum", schema.get("gt"))
    if low is not None and high is not None:
        return f"{kind}, {low:,} to {high:,}"
    if above is not None:
        return f"{kind}, above {above:,}" + (f", at most {high:,}" if high is not None else "")
    if low is not None:
        return f"{kind}, at least {low:,}"
    return kind


def default_of(schema: Mapping[str, Any], required: bool) -> str:
    if required:
        return "**required**"
    default = schema.get("default")
    if default is None or default == []:
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _check_used(texts: set[str], used: set[str]) -> None:
    if texts != used:
        raise ValueError(f"reference/keys.toml and the code differ in the keys {sorted(texts ^ used)}")


def _prose(kind: type[Any]) -> str:
    return _reflowed(inspect.getdoc(kind) or "")


def _summary(kind: type[Any]) -> str:
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def _first_sentence(kind: type[Any]) -> str:
    return _summary(kind).partition(". ")[0].rstrip(".:") + "."


def _reflowed(text: str | None) -> str:
    """Return the paragraphs of a help text, each in one line. Lists are kept as they are."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return _markup("\n\n".join(re.sub(r"\n(?!\s*- )", " ", paragraph) for paragraph in paragraphs))


def _markup(text: str) -> str:
    """Keep `<IhHB`, `*` and the like as they are, where no backticks protect them."""
    parts = text.split("`")
    return "`".join(part if place % 2 else re.sub(r"([*<\[\]])", r"\\\1", part) for place, part in enumerate(parts))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    """Escape the bars that would end the cell. Within backticks a bar is one anyway, and a backslash would be shown."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if place % 2 else part.replace("|", "\\|") for place, part in enumerate(parts))


def _anchor(name: str) -> str:
    return re.sub(r"[^\w-]", "", name)


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
