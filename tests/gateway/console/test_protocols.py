"""Protocols as data: each version with every feature, as the adapters declare it."""

from pathlib import Path

from babelgate.adapters import ADAPTERS
from babelgate.canonical import Feature
from babelgate.gateway import demo
from tests.running import running


async def test_every_version_lists_every_feature(tmp_path: Path) -> None:
    async with running(tmp_path, {"echo": demo.echo}) as gateway:
        response = await gateway.http.get("/console/api/v1/protocols")
        assert response.status_code == 200, response.text
        protocols = response.json()
    assert [each["name"] for each in protocols] == [adapter.name for adapter in ADAPTERS]
    versions = {
        (each["name"], version["version"]): version["carries"] for each in protocols for version in each["versions"]
    }
    assert set(versions) == {(adapter.name, version) for adapter in ADAPTERS for version in adapter.versions}
    for carries in versions.values():
        assert set(carries) == {feature.value for feature in Feature}
        assert {carry["level"] for carry in carries.values()} <= {"whole", "loss", "none"}
        assert all(carry["how"] and carry["source"] for carry in carries.values() if carry["level"] != "whole")
    assert versions["a2a", "1.0"]["step"] == {
        "level": "whole",
        "how": "in the metadata of an otherwise empty status update; not part of the task",
        "source": "docs/protocols/a2a.md, Metadata",
        "streamed_only": True,
    }
