"""OpenAPI document of LangGraph's server, compared with the gateway's."""

import json
from pathlib import Path

from tests.bridge import client
from tests.gateway.http.official import facts_of
from tests.gateway.http.test_openapi import differences, unserved
from tests.interop.peers import peer_python
from tests.opened import opened


async def test_langgraph_document_is_served_as_documented(tmp_path: Path):
    python = peer_python("langgraph")
    (official,) = (python.parents[1] / "lib").glob("python*/site-packages/openapi.json")
    async with opened(tmp_path) as gateway, client(gateway.app) as http:
        document = (await http.get("/openapi.json")).json()
    differences("LangGraph", unserved(facts_of(json.loads(official.read_text(encoding="utf-8"))), facts_of(document)))
