"""Tests of the audit log: its records, its chain of hashes, and its retention."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from babelgate.gateway.storage import audit
from babelgate.gateway.storage.audit import Act, ActTarget, prune_records, record_act
from babelgate.gateway.storage.auditor import CountingAuditor
from babelgate.gateway.storage.transaction import Transaction
from tests.gateway.admin.administering import ALICE, OPS, administered, two_nodes
from tests.running import Running

DAY = 86_400_000_000


async def records(gateway: Running, **filters: Any) -> list[dict[str, Any]]:
    response = await gateway.http.get("/admin/audit", params=filters, headers=OPS)
    assert response.status_code == 200, response.text
    return response.json()["records"]


async def verify(gateway: Running) -> dict[str, Any]:
    return (await gateway.http.get("/admin/audit/verify", headers=OPS)).json()


async def flush_refusals(gateway: Running) -> None:
    """Record the refusals of this minute now."""
    assert isinstance(gateway.hub.auditor, CountingAuditor)
    await gateway.hub.auditor.record_now()


async def test_admin_acts_are_recorded_with_actor_and_digests(tmp_path: Path, database: dict[str, Any]) -> None:
    async with administered(tmp_path, **database) as gateway:
        trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        key = (await gateway.http.post("/admin/keys", json={"owner": "ci"}, headers={**OPS, **trace})).json()
        await gateway.http.post(f"/admin/keys/{key['id']}/rotate", headers=OPS)
        await gateway.http.delete(f"/admin/keys/{key['id']}", headers=OPS)
        await gateway.http.post("/admin/agents/echo/disable", json={"reason": "Test."}, headers=OPS)
        await gateway.http.post("/admin/agents/echo/enable", headers=OPS)
        found = (await records(gateway))[::-1]
        actions = ["key.create", "key.rotate", "key.revoke", "agent.disable", "agent.enable"]
        assert [each["action"] for each in found] == actions
        first, rotated = found[0], found[1]
        assert first["actor"].items() >= {"subject": "key:ops", "owner": "ops"}.items()
        assert first["target"] == {"kind": "key", "id": key["id"], "owner": "ci"}
        assert (first["outcome"], first["address"], first["protocol"]) == ("allow", "127.0.0.1", "gateway")
        assert first["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
        assert "before" not in first
        assert rotated["before"] == first["after"] != rotated["after"]
        assert found[3]["reason"] == "Test."
        result = await verify(gateway)
        assert (result["intact"], result["records"], result["head"]) == (True, 5, found[-1]["hash"])


async def test_deletes_are_recorded_with_their_caller(tmp_path: Path, database: dict[str, Any]) -> None:
    async with administered(tmp_path, **database) as gateway:
        thread_id = (await gateway.http.post("/threads", json={}, headers=ALICE)).json()["thread_id"]
        assert (await gateway.http.delete(f"/threads/{thread_id}", headers=ALICE)).status_code == 204
        assert (await gateway.http.delete(f"/threads/{thread_id}", headers=ALICE)).status_code == 404
        found = await records(gateway, action="thread.delete")
        assert len(found) == 1
        assert found[0]["actor"]["subject"] == "key:alice"
        assert found[0]["target"] == {"kind": "thread", "id": thread_id, "owner": "alice"}
        assert found[0]["protocol"] == "langchain"


async def test_grants_are_recorded_with_their_caller(tmp_path: Path, database: dict[str, Any]) -> None:
    async with administered(tmp_path, **database) as gateway:
        thread_id = (await gateway.http.post("/threads", json={}, headers=ALICE)).json()["thread_id"]
        share = {"thread_id": thread_id, "grantee": "group:ops", "level": "write"}
        assert (await gateway.http.post("/grants", json=share, headers=ALICE)).status_code == 200
        assert (await gateway.http.post("/grants", json={**share, "thread_id": "t"}, headers=ALICE)).status_code == 404
        query = f"?thread_id={thread_id}&grantee=group:ops"
        for status in (204, 404):
            assert (await gateway.http.delete(f"/grants{query}", headers=ALICE)).status_code == status
        found = await records(gateway, action="grant.")  # the newest first
        assert [(each["action"], each["reason"]) for each in found] == [
            ("grant.delete", "group:ops"),
            ("grant.give", "group:ops write"),
        ]
        assert {each["actor"]["subject"] for each in found} == {"key:alice"}
        assert found[0]["target"] == {"kind": "thread", "id": thread_id, "owner": "alice"}


async def test_refusals_are_counted_and_recorded(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        for _ in range(3):
            assert (await gateway.http.get("/admin/keys", headers=ALICE)).status_code == 403
            assert (await gateway.http.get("/", headers={"X-Api-Key": "wrong"})).status_code == 401
        assert await records(gateway) == []
        await flush_refusals(gateway)
        denied, login = await records(gateway, action="call.admin"), await records(gateway, action="login")
        assert [(each["outcome"], each["count"]) for each in (*denied, *login)] == [("deny", 3), ("deny", 3)]
        assert denied[0]["actor"]["subject"] == "key:alice"
        assert "An API key is needed" in login[0]["reason"]
        assert login[0]["address"] == "127.0.0.1"


async def test_refusals_are_recorded_when_the_gateway_stops(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        await gateway.http.get("/", headers={"X-Api-Key": "wrong"})
    async with administered(tmp_path) as gateway:
        assert [each["action"] for each in await records(gateway)] == ["login"]


async def test_pages_and_filters_select_records(tmp_path: Path) -> None:
    async with administered(tmp_path) as gateway:
        for owner in ("a", "b", "c"):
            await gateway.http.post("/admin/keys", json={"owner": owner}, headers=OPS)
        page = (await gateway.http.get("/admin/audit?limit=2", headers=OPS)).json()
        assert [each["seq"] for each in page["records"]] == [3, 2]
        rest = (await gateway.http.get(f"/admin/audit?limit=2&before={page['next']}", headers=OPS)).json()
        assert [each["seq"] for each in rest["records"]] == [1]
        assert "next" not in rest
        assert len(await records(gateway, action="key.")) == 3
        assert len(await records(gateway, subject="key:ops", since="2020-01-01", until="2100-01-01")) == 3
        assert await records(gateway, until="2020-01-01T00:00:00Z") == []
        for query, words in (
            ("color=red", "There is no parameter 'color'"),
            ("since=soon", "since: expected a date"),
            ("subject=key:ops&subject=key:bob", "subject: expected one value, got 2"),
        ):
            refused = await gateway.http.get(f"/admin/audit?{query}", headers=OPS)
            assert (refused.status_code, words in refused.text) == (400, True), refused.text


async def test_two_nodes_extend_one_chain(tmp_path: Path, postgres_url: str) -> None:
    async with two_nodes(tmp_path, postgres_url) as nodes:
        for number in range(5):
            calls = [node.http.post("/admin/keys", json={"owner": f"o{number}"}, headers=OPS) for node in nodes]
            assert [each.status_code for each in await asyncio.gather(*calls)] == [201, 201]
        result = await verify(nodes[0])
        assert (result["intact"], result["records"], result["last"]) == (True, 10, 10)
        assert len({each["node"] for each in await records(nodes[1])}) == 2


@pytest.mark.parametrize("statement", ["UPDATE audit SET reason = 'x'", "DELETE FROM audit"])
async def test_the_database_refuses_to_change_records(tmp_path: Path, database: dict[str, Any], statement: str) -> None:
    def change(tx: Transaction) -> None:
        with pytest.raises(DBAPIError, match="append-only"), tx.connection.begin_nested():
            tx.connection.execute(text(statement))

    async with administered(tmp_path, **database) as gateway:
        await gateway.http.post("/admin/keys", json={"owner": "ci"}, headers=OPS)
        await gateway.hub.journal.write(change)
        assert (await verify(gateway))["records"] == 1


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE audit SET subject = 'key:eve' WHERE seq = 2", "record 2 was changed"),
        ("DELETE FROM audit WHERE seq = 2", "records 2 to 2 are missing"),
        ("DELETE FROM audit WHERE seq = 1", "records before 2 are missing, and no pruning has recorded it"),
    ],
)
async def test_verification_finds_what_was_tampered_with(tmp_path: Path, statement: str, problem: str) -> None:
    def tamper(tx: Transaction) -> None:
        for trigger in ("audit_changed", "audit_deleted"):
            tx.connection.execute(text(f"DROP TRIGGER {trigger}"))
        tx.connection.execute(text(statement))

    async with administered(tmp_path) as gateway:
        for _ in range(3):
            await gateway.http.post("/admin/keys", json={"owner": "ci"}, headers=OPS)
        assert (await verify(gateway))["intact"]
        await gateway.hub.journal.write(tamper)
        result = await verify(gateway)
        assert (result["intact"], problem in result["problem"]) == (False, True), result


async def test_old_records_are_pruned_and_the_rest_stays_verified(
    tmp_path: Path, database: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_PAGE", 2)

    def fill(tx: Transaction) -> None:
        now, at = tx.now, [0]
        tx.now = lambda: at[0]
        for days in (500, 450, 420, 410, 10, 0):
            at[0] = now() - days * DAY
            record_act(tx, Act(action="test", target=ActTarget("test", str(days))))
        tx.now = now

    def prune(tx: Transaction) -> bool:
        return prune_records(tx, tx.now() - 400 * DAY)

    async with administered(tmp_path, **database) as gateway:
        await gateway.hub.journal.write(fill)
        await gateway.hub.retention.sweep()
        found = await records(gateway)
        assert [each["target"]["id"] for each in found if each["action"] == "test"] == ["0", "10"]
        assert [each["actor"]["subject"] for each in found if each["action"] == "audit.prune"] == ["gateway"] * 2
        result = await verify(gateway)
        assert (result["intact"], result["first"], result["last"]) == (True, 5, 8), result
        assert not await gateway.hub.journal.write(prune)
