"""Tests of `tls` of an agent: every protocol, a reload with changed files, and the reasons of a broken agent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from babelgate.adapters import UPSTREAMS
from babelgate.canonical import FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.admin.agent_specs import check_spec, resolve_spec
from babelgate.gateway.agents.registry import connect
from babelgate.gateway.http.connection import protocol_options
from babelgate.gateway.http.tls import ServerTls
from babelgate.gateway.settings.load import load
from babelgate.gateway.settings.model import Settings
from tests.authority import Authority, Pair, serving_options
from tests.opened import opened
from tests.serving import serving


def write(folder: Path, agents: Mapping[str, Any]) -> Path:
    file = folder / "front.yaml"
    file.write_text(yaml.safe_dump({"agents": agents, "database": f"sqlite:///{folder}/front.db"}))
    return file


def tls_of(authority: Authority, pair: Pair | None) -> dict[str, str]:
    files = {"ca": authority.path, **({} if pair is None else pair._asdict())}
    return {name: str(path) for name, path in files.items()}


async def test_each_protocol_uses_the_files_of_its_agent(tmp_path: Path) -> None:
    """Serve a gateway that requires client certificates. Changed files make another client."""
    authority = Authority(tmp_path)
    server, client = authority.issue("server", "127.0.0.1"), authority.issue("client", "front.example.com")
    (tmp_path / "back").mkdir()
    tls = {**server._asdict(), "client_ca": authority.path, "client": "required"}
    async with opened(tmp_path / "back", tls=tls) as back:
        assert back.settings.tls is not None
        context = ServerTls(back.settings.tls).context
        options = protocol_options(back.settings)
        async with serving(back.app, **serving_options(context), **options) as plain_url:
            url = plain_url.replace("http:", "https:")
            paths = {each.protocol: each.own_path.format(agent="echo") for each in UPSTREAMS if each.own_path}
            agents: dict[str, Any] = {
                f"a-{name}": {"url": url + path, "protocol": name, "agent": "echo", "tls": tls_of(authority, client)}
                for name, path in paths.items()
            }
            agents["none"] = {**agents["a-acp"], "tls": tls_of(authority, None)}
            agents["missing"] = {**agents["a-acp"], "tls": {"ca": str(tmp_path / "none")}}
            settings = load(write(tmp_path, agents))
            registry = await connect(settings)
            try:
                broken = {each.info.name: each.broken for each in registry.all() if each.broken is not None}
                assert broken.keys() == {"none", "missing"}
                assert str(broken["none"]).startswith(f"tls: {url}")
                assert "client certificate" in str(broken["none"])
                assert broken["missing"] == f"tls.ca: {tmp_path / 'none'}: it cannot be read: No such file or directory"
                clients = {each.info.name: each.agent for each in registry.all()}
                same = await connect(load(write(tmp_path, agents)), previous=registry)
                assert same.get("a-acp").agent is clients["a-acp"]
                authority.issue("client", "front.example.com")
                renewed = await connect(load(write(tmp_path, agents)), previous=same)
                assert renewed.get("a-acp").broken is None
                assert renewed.get("a-acp").agent is not clients["a-acp"]
                await renewed.aclose()
            finally:
                await registry.aclose()
                back.hub.close_readers()


async def test_the_administration_api_names_listed_files_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = authority.issue("client", "front.example.com")
    files = tls_of(authority, client)
    networks = ("127.0.0.0/8",)
    spec: JsonObject = {"url": "https://127.0.0.1:9", "tls": files}
    for missing in files:
        listed = [path for name, path in files.items() if name != missing]
        admin = {"agents": True, "agent_networks": networks, "agent_tls_files": listed}
        with pytest.raises(FaultError, match=rf"tls\.{missing}: this file is not in admin\.agent_tls_files"):
            await check_spec(spec, Settings.model_validate({"admin": admin}))
    admin = {"agents": True, "agent_networks": networks, "agent_tls_files": [*files.values()]}
    settings = Settings.model_validate({"admin": admin})
    await check_spec(spec, settings)
    before = resolve_spec(spec, settings.admin)
    assert before == resolve_spec(spec, settings.admin)
    authority.issue("client", "front.example.com")
    assert before != resolve_spec(spec, settings.admin), "a reload sees the changed files"
    client.key.write_text("no key")
    with pytest.raises(FaultError, match=r"tls\.key: "):
        await check_spec(spec, settings)
