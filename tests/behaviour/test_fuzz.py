"""Fuzzing of every route, JSON-RPC method and command: a seeded generator mutates valid requests.

Each request is answered in the form of its protocol, none with a 500, and no failure is logged.

`BABELGATE_FUZZ=300` sets how many requests are generated of each kind; `BABELGATE_FUZZ_SEED=2` changes the seed.
"""

import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio

from babelgate.canonical.value import Json
from tests.behaviour.test_routes import QUERIES
from tests.gateway import fuzz
from tests.gateway.hostile import FORMS, IDS
from tests.gateway.route import ROUTES, Route
from tests.gateway.siege import Case, besieged, create_targets, dumped, problems, sending, spared
from tests.gateway.valid import COMMANDS, RPC, UPLOAD, V1, VALID, Command, Rpc, command, filled, rpc
from tests.running import Running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(0 if "BABELGATE_FUZZ" in os.environ else 120),
]

COUNT: Final = int(os.environ.get("BABELGATE_FUZZ", "8"))
SEED: Final = int(os.environ.get("BABELGATE_FUZZ_SEED", "1"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with besieged(tmp_path_factory.mktemp("fuzz")) as gateway:
        yield gateway


def checked(send: Callable[[], Awaitable[httpx.Response]]) -> Callable[[], Awaitable[httpx.Response]]:
    """Check that a response declared as JSON is JSON, without NaN and Infinity, which not every parser accepts."""

    async def send_and_parse() -> httpx.Response:
        response = await send()
        if response.headers.get("content-type") == "application/json" and response.content.strip():
            json.loads(response.content, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        return response

    return send_and_parse


async def survives(gateway: Running, route: Route, cases: list[Case]) -> None:
    assert await problems(gateway, route, [(name, checked(send)) for name, send in cases], refused=False) == []


@pytest.mark.parametrize("route", [route for route in ROUTES if str(route) in VALID], ids=str)
async def test_a_mutated_body_is_answered(gateway: Running, route: Route) -> None:
    slots = spared(route, await create_targets(gateway, route.path))
    at, count = route.at(slots), max(1, COUNT // 4) if route.again else COUNT
    await survives(
        gateway,
        route,
        [
            (name, sending(gateway, route, at, content=body))
            for name, body in fuzz.bodies(VALID[str(route)], f"{SEED} {route}", count)
        ],
    )


SEARCHES: Final = [
    route
    for route in ROUTES
    if route.path.endswith(("/search", "/count", "/prune", "/namespaces", "/history", "/cancel"))
]


@pytest.mark.parametrize("route", [route for route in SEARCHES if str(route) in VALID], ids=str)
async def test_strange_values_in_each_member_of_a_search_are_answered(gateway: Running, route: Route) -> None:
    """Check the values that a search passes to the database."""
    slots = await create_targets(gateway, route.path)
    valid = VALID[str(route)]
    assert isinstance(valid, dict)
    every = fuzz.STRANGE[:: 4 if route.again else 1]
    cases = [
        (f"{name} = {strange[:40]}", sending(gateway, route, route.at(slots), content=_with(valid, name, strange)))
        for name in valid
        for strange in every
    ]
    await survives(gateway, route, cases[:: 1 if COUNT > 8 else 5])


def _with(valid: Mapping[str, Json], name: str, strange: str) -> bytes:
    text = json.dumps({**valid, name: "\ue000"}).replace(json.dumps("\ue000"), strange)
    return text.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("method", RPC, ids=lambda method: method.name)
async def test_a_mutated_json_rpc_call_is_answered(gateway: Running, method: Rpc) -> None:
    slots = await create_targets(gateway, "/a2a/{agent}")
    names = {"task": slots["task_id"], "open": slots["task_id"]}
    # A subscription to a task that waits never ends.
    if "resubscribe" in method.name or method.name == "SubscribeToTask":
        names = dict.fromkeys(names, "nobody")
    whole = rpc(method.name, filled(method.valid, names))
    headers = {} if method.old else dict(V1)
    await survives(
        gateway,
        method.route,
        [
            (name, sending(gateway, method.route, "/a2a/echo", content=body, headers=headers))
            for name, body in fuzz.bodies(whole, f"{SEED} {method.name}", COUNT * 2)
        ],
    )


@pytest.mark.parametrize("each", COMMANDS, ids=str)
async def test_a_mutated_command_is_answered(gateway: Running, each: Command) -> None:
    slots = await create_targets(gateway, "/threads")
    route = Route("POST", "/threads/{thread_id}/commands")
    await survives(
        gateway,
        route,
        [
            (name, sending(gateway, route, route.at(slots), content=body))
            for name, body in fuzz.bodies(filled(command(each.method, each.valid), slots), f"{SEED} {each}", COUNT * 2)
        ],
    )


@pytest.mark.parametrize("name", QUERIES)
async def test_a_generated_query_is_answered(gateway: Running, name: str) -> None:
    route = next(route for route in ROUTES if str(route) == name)
    at = route.at(spared(route, await create_targets(gateway, route.path)))
    body = dumped(VALID[name]) if name in VALID else None
    await survives(
        gateway,
        route,
        [
            (query, sending(gateway, route, f"{at}?{query}", content=body))
            for query in fuzz.queries(QUERIES[name], f"{SEED} {name}", COUNT * 2)
        ],
    )


@pytest.mark.parametrize("route", [route for route in ROUTES if route.slots and not route.waits], ids=str)
async def test_an_id_of_strange_characters_is_answered(gateway: Running, route: Route) -> None:
    slots = spared(route, await create_targets(gateway, route.path))
    texts = [*IDS.values(), *(quote(text.encode(errors="replace")[:2000], safe="") for text in fuzz.TEXTS if text)]
    cases = [
        (f"{slot} = {text[:30]}", sending(gateway, route, route.at({**slots, slot: text}), json=VALID.get(str(route))))
        for slot in route.slots
        for text in texts
    ]
    await survives(gateway, route, cases[:: 1 if COUNT > 8 else 25])


async def test_a_mutated_form_is_answered(gateway: Running) -> None:
    route = next(route for route in ROUTES if str(route) == UPLOAD)
    at = route.at(await create_targets(gateway, route.path))
    kind, _ = FORMS["no end"]
    valid = FORMS["no end"][1].rstrip(b"\r\n") + b"--\r\n"
    await survives(
        gateway,
        route,
        [
            (
                name,
                sending(
                    gateway,
                    route,
                    at,
                    content=body,
                    headers={"Content-Type": kind.strip().encode("latin-1", "replace")},
                ),
            )
            for name, kind, body in fuzz.forms(kind, valid, SEED, COUNT * 20)
        ],
    )
