"""Who may what: over every request type of the catalog, every action of the table, and every verb."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from fastflight.access.action import Action, Body
from fastflight.access.actions import Actions
from fastflight.access.authority import Authority, Listing, visible_part
from fastflight.access.identity import ANYBODY, NOBODY, Identity, scopes
from fastflight.concurrency import Shards
from fastflight.device import Inventory
from fastflight.errors import AccessError, FastFlightError, Forbidden, RequestError, Unauthenticated, UnknownName
from fastflight.runtime.stream_registry import StreamRegistry
from fastflight.server.actions import own_actions
from fastflight.service import Catalog, DataSource
from fastflight.service.requests import (
    DeviceFile,
    DeviceListing,
    Doing,
    FleetFile,
    Recording,
    Request,
    SourceRequest,
    Verb,
)
from fastflight.sources import device_actions, device_sources, recording_actions, recording_source
from fastflight_benchmark import mock
from fastflight_benchmark.mock import Mock

NAMES = ["bench", "demo", "demo-2"]
AUTHORITY = Authority(lambda: NAMES, lambda: ["bench", "demo", "old"])
DEMO = {"device": "demo", "devices": "demo", "name": "demo", "path": "/x", "to": "/y", "code": "1"}

# What a new request type has to be added to, once it declares what it demands.
REQUESTS: dict[str, dict[Doing, Verb | None]] = {
    "device.file": {"read": Verb.READ, "write": Verb.WRITE},
    "fleet.file": {"read": Verb.READ},
    "device.tree": {"read": Verb.READ, "write": Verb.WRITE},
    "device.listing": {"read": Verb.READ},
    "device.exec": {"read": Verb.EXEC},
    "device.session": {"read": Verb.SESSION, "write": Verb.EXEC, "exchange": Verb.EXEC},
    "recording": {"read": Verb.SESSION},
    "mock": {"read": None, "write": None},
}
# And a new action.
ACTIONS: dict[str, Verb | str | None] = {
    "health": "public",
    "identity": None,
    "stats": Verb.ADMIN,
    "devices": None,
    "device.info": Verb.READ,
    "device.exec": Verb.EXEC,
    "device.reset": Verb.EXEC,
    "file.stat": Verb.READ,
    "file.mkdir": Verb.WRITE,
    "file.remove": Verb.WRITE,
    "file.rename": Verb.WRITE,
    "file.hash": Verb.READ,
    "recordings": None,
    "recording.start": Verb.ADMIN,
    "recording.stop": Verb.ADMIN,
}
RAW_ACTIONS = {"CancelFlightInfo", "RenewFlightEndpoint"}


def named(*texts: str) -> Identity:
    return Identity("ada", scopes(texts))


def sources() -> list[DataSource[Any]]:
    return [*device_sources(Inventory({})), recording_source(None), mock.SOURCE]


@pytest.fixture(scope="module")
def actions() -> Iterator[dict[str, Any]]:
    with Shards(1) as shards:
        own = own_actions(StreamRegistry(), Catalog(), shards, AUTHORITY)
        yield {each.name: each for each in (*own, *device_actions(Inventory({})), *recording_actions(None))}


def request_of(source: DataSource[Any], **more: Any) -> Request:
    keys = {name: DEMO[name] for name, field in source.request.model_fields.items() if name in DEMO}
    made: Request = source.request(**keys, **more)
    return made


def body_of(action: Action, **more: Any) -> Body:
    return action.body(**{name: DEMO[name] for name in action.body.model_fields if name in DEMO}, **more)


def may(identity: Identity, request: Request, doing: Doing) -> bool:
    try:
        authorized = AUTHORITY.authorize(identity, request, doing)
        return not isinstance(authorized, FleetFile) or authorized.existing(["demo"]) == ["demo"]
    except FastFlightError:
        return False


def supported(source: DataSource[Any]) -> set[Doing]:
    does: dict[Doing, tuple[object, object]] = {
        "read": (source.read, source.aread),
        "write": (source.write, source.awrite),
        "exchange": (source.exchange, source.aexchange),
    }
    return {doing for doing, functions in does.items() if any(functions)}


def test_every_request_type_declares_what_each_of_its_functions_demands() -> None:
    assert {source.request.type for source in sources()} == set(REQUESTS)
    for source in sources():
        assert source.request.demands == REQUESTS[source.request.type]
        assert supported(source) == set(source.request.demands)


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.request.type)
@pytest.mark.parametrize("doing", get_args(Doing))
def test_a_request_is_had_with_its_verb_and_with_no_other(source: DataSource[Any], doing: Doing) -> None:
    demands = REQUESTS[source.request.type]
    asked: Doing = "read" if doing == "describe" else doing
    request = request_of(source)
    for verb in Verb:
        granted = asked in demands and demands[asked] in (None, verb)
        assert may(named(f"{verb}:demo"), request, doing) == granted, verb
        assert not may(named(f"{verb}:bench"), request, doing) or demands.get(asked, verb) is None
    others = ",".join(verb for verb in Verb if verb != demands.get(asked))
    assert may(named(f"{others}:demo"), request, doing) == (asked in demands and demands[asked] is None)
    assert may(ANYBODY, request, doing)
    with pytest.raises(Unauthenticated):
        AUTHORITY.authorize(NOBODY, request, doing)


@pytest.mark.parametrize(
    "source", [each for each in sources() if "interrupt" in each.request.model_fields], ids=lambda s: s.request.type
)
def test_who_interrupts_a_program_must_be_allowed_to_run_one(source: DataSource[Any]) -> None:
    request = request_of(source, interrupt=True)
    for doing in supported(source):
        verb = REQUESTS[source.request.type][doing]
        assert may(named(f"{verb},exec:demo"), request, doing)
        assert verb is Verb.EXEC or not may(named(f"{verb}:demo"), request, doing)


def test_who_names_the_version_of_a_file_must_be_allowed_to_read_it(actions: dict[str, Any]) -> None:
    write = DeviceFile(device="demo", path="/x", if_match="*")
    remove = actions["file.remove"]
    for granted, allowed in (("read,write:demo", True), ("write:demo", False)):
        assert may(named(granted), write, "write") == allowed
        try:
            AUTHORITY.permit(named(granted), remove, body_of(remove, if_none_match="*"))
        except Forbidden:
            assert not allowed
        else:
            assert allowed


def test_what_declares_nothing_is_for_nobody_that_is_known() -> None:
    class Own(Request):
        type = "own"

    assert AUTHORITY.authorize(ANYBODY, Own(), "read") == Own()
    with pytest.raises(RequestError, match="type: own cannot be read"):
        AUTHORITY.authorize(named("read,write,session,exec,admin:*"), Own(), "read")


def test_a_device_that_is_not_ones_own_is_refused_in_the_words_for_one_that_is_not_there() -> None:
    ada = named("read:demo*")
    told = []
    for name in ("bench", "never"):
        with pytest.raises(UnknownName) as refused:
            AUTHORITY.authorize(ada, DeviceFile(device=name, path="/x"), "read")
        told.append((type(refused.value), str(refused.value).replace(name, "NAME")))
    assert told[0] == told[1] == (UnknownName, "NAME: no such device. Known: demo, demo-2")
    with pytest.raises(UnknownName, match="demo-3: no such device. Did you mean 'demo-2'?"):
        AUTHORITY.authorize(ada, DeviceFile(device="demo-3", path="/x"), "read")


def test_recordings_have_names_of_their_own() -> None:
    ada = named("session:o*", "session:bench")
    assert AUTHORITY.authorize(ada, Recording(name="old"), "read") == Recording(name="old")
    with pytest.raises(UnknownName, match="demo: no such recording. Known: bench, old"):
        AUTHORITY.authorize(ada, Recording(name="demo"), "read")


def test_where_names_are_not_known_scopes_alone_decide() -> None:
    somewhere = Authority()
    request = DeviceFile(device="never-seen", path="/x")
    assert somewhere.authorize(named("read:*"), request, "read") is request
    with pytest.raises(UnknownName, match="never-seen: no such device$"):
        somewhere.authorize(named("read:demo"), request, "read")


def test_of_a_fleet_only_those_that_may_be_read_exist() -> None:
    fleet = FleetFile(devices="*", path="/x")
    narrowed = AUTHORITY.authorize(named("read:demo*", "session:bench"), fleet, "read")
    assert narrowed.existing(NAMES) == ["demo", "demo-2"]
    assert narrowed.model_copy(update={"path": "/y"}).existing(NAMES) == ["demo", "demo-2"]
    assert narrowed.model_dump() == fleet.model_dump() and fleet.existing(NAMES) == NAMES


def test_a_fleet_is_not_interrupted_where_one_of_it_may_not_be() -> None:
    fleet = FleetFile(devices="*", path="/x", interrupt=True)
    narrowed = AUTHORITY.authorize(named("read:demo*", "exec:demo"), fleet, "read")
    assert narrowed.existing(["bench", "demo"]) == ["demo"]
    with pytest.raises(Forbidden, match="demo-2: ada may not exec here. Granted: read"):
        narrowed.existing(NAMES)


def test_every_action_declares_what_it_demands(actions: dict[str, Any]) -> None:
    declared = {name: "public" if a.public else a.verb for name, a in actions.items() if isinstance(a, Action)}
    assert declared == ACTIONS
    assert set(actions) == set(ACTIONS) | RAW_ACTIONS
    assert Action("new", "", Body, lambda body: []).verb is Verb.ADMIN


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_is_carried_out_with_its_verb_and_with_no_other(name: str, actions: dict[str, Any]) -> None:
    action, demanded = actions[name], ACTIONS[name]
    glob = "demo" if "device" in action.body.model_fields else "*"

    def permitted(identity: Identity, **more: Any) -> bool:
        try:
            AUTHORITY.permit(identity, action, body_of(action, **more))
        except (AccessError, RequestError):
            return False
        return True

    for verb in Verb:
        assert permitted(named(f"{verb}:{glob}")) == (demanded in (None, "public", verb)), verb
    assert permitted(ANYBODY) and permitted(NOBODY) == (demanded == "public")
    if "interrupt" in action.body.model_fields and demanded is not Verb.EXEC:
        assert not permitted(named(f"{demanded}:demo"), interrupt=True)
        assert permitted(named(f"{demanded},exec:demo"), interrupt=True)


def test_nobody_learns_which_actions_there_are(actions: dict[str, Any]) -> None:
    table = Actions(actions.values(), AUTHORITY)
    told = set()
    for name in (*ACTIONS, *RAW_ACTIONS, "no.such"):
        if ACTIONS.get(name) == "public":
            assert list(table.call(name, b"", NOBODY).results()) == [b'{"status": "serving"}']
            continue
        with pytest.raises(Unauthenticated) as refused:
            table.call(name, b"not JSON", NOBODY)
        told.add(str(refused.value))
    assert len(told) == 1


def test_of_devices_an_identity_gets_its_own_and_only_administrators_the_address(actions: dict[str, Any]) -> None:
    result = {"name": "demo", "url": "socket://10.0.0.7:2218", "open": True, "last_data": 1_000}
    assert visible_part(actions["devices"], ANYBODY, result) == result
    assert visible_part(actions["devices"], named("admin:*"), result) == {**result, "last_data": None}
    assert visible_part(actions["devices"], named("session:demo"), result) == {**result, "url": "socket:"}
    assert visible_part(actions["devices"], named("read:bench"), result) is None
    bare = {**result, "url": "/dev/ttyACM0"}
    assert visible_part(actions["devices"], named("read:demo"), bare) == {**result, "url": "serial:", "last_data": None}
    assert visible_part(actions["recordings"], named("read:demo"), {"name": "bench"}) is None
    assert visible_part(actions["recordings"], named("read:demo"), {"name": "demo"}) == {"name": "demo"}
    state = {"status": "serving", "devices": ["bench"]}
    assert visible_part(actions["health"], named("read:demo"), state) == {"status": "serving"}
    assert visible_part(actions["health"], named("admin:*"), state) == state


def test_a_listing_has_what_may_be_read_and_asks_those_that_may_have_it() -> None:
    listing = Listing(AUTHORITY, named("read:demo*", "session:bench"))
    asked = [
        (DeviceFile(device="bench", path="/x"), False),
        (DeviceFile(device="demo", path="/x"), True),
        (DeviceListing(device="bench"), False),
        (Recording(name="bench"), True),
        (Recording(name="old"), False),
        (Mock(), True),
        (FleetFile(path="/x"), True),
    ]
    assert [(request, listing.has(request)) for request, _ in asked] == asked
    names = ("demo", "demo-2", "bench")
    for kind, taken in ((DeviceFile, names[:2]), (FleetFile, names[:2]), (Recording, names[2:]), (Mock, ())):
        assert tuple(name for name in names if listing.takes(kind, name)) == taken
        assert all(Listing(AUTHORITY, ANYBODY).takes(kind, name) for name in names)
    assert all(Listing(AUTHORITY, ANYBODY).has(request) for request, _ in asked)


class Sales(SourceRequest):
    type = "sales"


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("read:sales", {"read", "describe"}),
        ("read:*", {"read", "describe"}),
        ("write:sales", {"write"}),
        ("exec,session:*", set()),
        ("read,write:demo", set()),
    ],
)
def test_an_own_source_takes_scopes_with_its_name(scope: str, allowed: set[Doing]) -> None:
    assert {doing for doing in get_args(Doing) if may(named(scope), Sales(), doing)} == allowed
