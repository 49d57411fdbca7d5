"""Access to the administration API: every route needs `admin`, and without credentials the API is off."""

from pathlib import Path
from typing import Any

import pytest
from litestar import Router

from babelgate.gateway.admin.routes import admin_routes
from tests.gateway.admin.administering import ALICE, OPS, administered
from tests.running import Running, running


def routes_of(gateway: Running) -> list[tuple[str, str]]:
    """Return the method and an example of the path of each route."""
    router: Router = admin_routes(gateway.hub, gateway.generations.admin_port())
    return sorted(
        (method, route.path_format.replace("{key_id}", "k").replace("{name}", "echo"))
        for route in router.routes
        for method in route.methods - {"OPTIONS"}  # type: ignore[union-attr]
    )


async def test_every_route_is_refused_without_admin(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        routes = routes_of(gateway)
        assert len(routes) >= 11
        for method, path in routes:
            for headers, status in ((ALICE, 403), ({}, 401), ({"X-Api-Key": "wrong"}, 401)):
                response = await gateway.http.request(method, path, headers=headers)
                assert response.status_code == status, (method, path, response.text)
                assert set(response.json()["error"]) == {"code", "message"}
        assert (await gateway.http.get("/admin/agents", headers=OPS)).status_code == 200


async def test_no_key_may_administrate_a_gateway_without_rules(tmp_path: Path) -> None:
    async with running(tmp_path, keys={"ops": "key-of-ops"}) as gateway:
        response = await gateway.http.get("/admin/keys", headers=OPS)
        assert response.status_code == 403
        assert 'Add a rule such as {who: "key:ops", allow: [admin]} to access' in response.json()["error"]["message"]


async def test_the_api_is_off_without_credentials(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        for method, path in routes_of(gateway):
            response = await gateway.http.request(method, path)
            assert response.status_code == 404, (method, path, response.text)
            assert "Set keys or issuers in the settings" in response.text


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b'{"owner": 1}', b'{"owner": null}'])
async def test_a_body_of_another_form_is_refused(tmp_path: Path, body: Any) -> None:
    async with administered(tmp_path) as gateway:
        response = await gateway.http.post("/admin/keys", content=body, headers=OPS)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid")
