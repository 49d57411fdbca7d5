"""The caller in the console: its owner and rights, and the limits of the gateway."""

from pathlib import Path

from tests.gateway.admin.administering import ALICE, OPS, administered
from tests.running import running

ME = "/console/api/v1/me"


async def test_anonymous_caller_sees_the_gateway(tmp_path: Path) -> None:
    async with running(tmp_path, limits={"artifact": 1000, "body": 2000}, console={"jobs": False}) as gateway:
        response = await gateway.http.get(ME)
        version, _, instance = response.headers["babelgate"].partition("; instance=")
        assert response.json() == {
            "owner": "default",
            "subject": "anonymous",
            "groups": [],
            "operator": True,
            "keyed": False,
            "version": version,
            "instance": instance,
            "node": None,
            "limits": {"file_bytes": 1000, "body_bytes": 2000},
            "can": {"jobs": False, "wire": True, "settings": True},
        }


async def test_caller_with_a_key_sees_its_rights(tmp_path: Path) -> None:
    async with administered(tmp_path, console={"wire": "off"}, node="a") as gateway:
        me = (await gateway.http.get(ME, headers=OPS)).json()
        assert (me["owner"], me["subject"], me["groups"]) == ("ops", "key:ops", ["ops"])
        assert (me["operator"], me["keyed"], me["node"]) == (True, True, "a")
        me = (await gateway.http.get(ME, headers=ALICE)).json()
        assert (me["owner"], me["groups"]) == ("alice", [])
        assert me["can"] == {"jobs": False, "wire": False, "settings": False}
