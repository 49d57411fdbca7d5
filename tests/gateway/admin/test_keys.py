"""API keys over the administration API: their life, on one node and on two."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.gateway.api_key import digest_of
from tests.gateway.admin.administering import ALICE, OPS, administered, becomes, two_nodes, until
from tests.gateway.hubs import within
from tests.running import Running

RUN = {"agent_name": "patient", "input": [{"parts": [{"content": "Hi"}]}], "mode": "stream"}


async def create(gateway: Running, **body: Any) -> tuple[str, dict[str, str]]:
    """Create a key, and return its id and the headers of a caller with it."""
    response = await gateway.http.post("/admin/keys", json={"owner": "ci", **body}, headers=OPS)
    assert response.status_code == 201, response.text
    return response.json()["id"], {"X-Api-Key": response.json()["key"]}


async def ask(gateway: Running, headers: dict[str, str]) -> httpx.Response:
    return await gateway.http.get("/", headers=headers)


async def test_a_new_key_is_accepted_at_once(tmp_path: Path, database: dict[str, Any]) -> None:
    async with administered(tmp_path, **database) as gateway:
        key_id, headers = await create(gateway, groups=["automation"], scopes=["agents:run"], expires="90d")
        assert (await ask(gateway, headers)).status_code == 200
        listed = (await gateway.http.get("/admin/keys", headers=OPS)).json()["keys"]
        assert [each["id"] for each in listed] == [key_id]
        assert listed[0]["owner"] == "ci"
        assert listed[0]["groups"] == ["automation"]
        assert listed[0]["scopes"] == ["agents:run"]
        assert listed[0]["created_by"] == "key:ops"
        expires = datetime.fromisoformat(listed[0]["expires_at"]) - datetime.now(UTC)
        assert timedelta(days=89) < expires <= timedelta(days=90)
        response = await gateway.http.get(f"/admin/keys/{key_id}", headers=OPS)
        assert headers["X-Api-Key"] not in response.text
        assert digest_of(headers["X-Api-Key"]) not in response.text


async def test_a_key_survives_a_restart(tmp_path: Path, database: dict[str, Any]) -> None:
    async with administered(tmp_path, **database) as gateway:
        _, headers = await create(gateway)
    async with administered(tmp_path, **database) as gateway:
        assert (await ask(gateway, headers)).status_code == 200


async def test_a_rotated_key_is_accepted_within_its_grace_period(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        key_id, old = await create(gateway)
        rotated = (await gateway.http.post(f"/admin/keys/{key_id}/rotate", json={"grace": "1h"}, headers=OPS)).json()
        assert rotated["id"] == key_id
        new = {"X-Api-Key": rotated["key"]}
        assert [(await ask(gateway, headers)).status_code for headers in (old, new)] == [200, 200]
        third = (await gateway.http.post(f"/admin/keys/{key_id}/rotate", headers=OPS)).json()
        newest = {"X-Api-Key": third["key"]}
        assert [(await ask(gateway, headers)).status_code for headers in (old, new, newest)] == [401, 401, 200]


async def test_an_expired_key_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        soon = (datetime.now(UTC) + timedelta(milliseconds=300)).isoformat()
        key_id, headers = await create(gateway, expires=soon)
        refused = await becomes(lambda: ask(gateway, headers), 401)
        assert "it has expired" in refused.text
        rotated = await gateway.http.post(f"/admin/keys/{key_id}/rotate", headers=OPS)
        assert rotated.status_code == 409
        assert "has expired: create another one" in rotated.text


async def test_the_last_use_of_a_key_is_noted(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        key_id, headers = await create(gateway)
        url = f"/admin/keys/{key_id}"
        assert (await gateway.http.get(url, headers=OPS)).json()["last_used_at"] is None
        await ask(gateway, headers)

        get = partial(gateway.http.get, url, headers=OPS)
        await until(get, lambda response: bool(response.json()["last_used_at"]), "the time of the last use")


@pytest.mark.parametrize("way", ["revoke", "rotate"])
async def test_a_revoked_key_ends_its_open_streams(tmp_path: Path, way: str) -> None:
    released = asyncio.Event()

    async def patient(text: str) -> AsyncGenerator[str]:
        yield "first "
        await released.wait()

    async with administered(tmp_path, {"patient": patient}) as gateway:
        key_id, headers = await create(gateway, owner="alice")

        async def read() -> None:
            async with gateway.http.stream("POST", "/acp/runs", json=RUN, headers=headers) as response:
                assert response.status_code == 200
                async for line in response.aiter_lines():
                    if "first" in line and not revoked.done():
                        revoked.set_result(None)

        revoked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reading = asyncio.ensure_future(read())
        await within(revoked, "the first event")
        if way == "revoke":
            assert (await gateway.http.delete(f"/admin/keys/{key_id}", headers=OPS)).json()["revoked_at"]
        else:
            await gateway.http.post(f"/admin/keys/{key_id}/rotate", headers=OPS)
        with pytest.raises(httpx.RemoteProtocolError):
            await within(reading, "the end of the stream")
        assert (await ask(gateway, headers)).status_code == 401
        assert (await ask(gateway, ALICE)).status_code == 200
        released.set()


async def test_all_nodes_accept_a_new_key(tmp_path: Path, postgres_url: str) -> None:
    async with two_nodes(tmp_path, postgres_url) as (a, b):
        key_id, headers = await create(a)
        await becomes(lambda: ask(b, headers), 200)
        assert (await b.http.delete(f"/admin/keys/{key_id}", headers=OPS)).status_code == 200
        assert (await ask(b, headers)).status_code == 401
        await becomes(lambda: ask(a, headers), 401)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "missing required field `owner`"),
        ({"owner": "ci", "name": "x"}, "members of the body are owner, groups, scopes, expires"),
        ({"owner": ""}, "owner: a name is 1 to 128 printable characters"),
        ({"owner": "ci", "expires": "soon"}, "expires: a period is a number of seconds"),
        ({"owner": "ci", "expires": "2020-01-01"}, "expires: '2020-01-01' is not in the future"),
        ({"owner": "ci", "groups": "automation"}, "Expected `array`, got `str`"),
    ],
)
async def test_a_wrong_body_is_refused_with_what_is_wrong(tmp_path: Path, body: Any, words: str) -> None:
    async with administered(tmp_path) as gateway:
        response = await gateway.http.post("/admin/keys", json=body, headers=OPS)
        assert response.status_code == 400
        assert words in response.json()["error"]["message"]


async def test_an_unknown_key_is_not_found(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/rotate")):
            response = await gateway.http.request(method, f"/admin/keys/nobody{path}", headers=OPS)
            assert response.status_code == 404
            assert "GET /admin/keys lists them" in response.text
