"""Crons over HTTP. `tests/gateway/runs/test_crons.py` tests when they run."""

from typing import Any

import pytest

from babelgate.adapters.langchain.codec.state import assistant_id
from babelgate.adapters.langchain.server.crons import submit
from babelgate.canonical import Principal
from tests.adapters.langchain.site import NOBODY, Site, new_id, user_input
from tests.gateway.hubs import guarded

FIELDS = {
    *("cron_id", "assistant_id", "thread_id", "user_id", "metadata", "payload", "enabled", "created_at", "updated_at"),
    *("schedule", "timezone", "end_time", "next_run_date", "on_run_completed"),
}
YEARLY: dict[str, Any] = {"assistant_id": "echo", "schedule": "0 0 1 1 *"}


async def test_a_cron_is_created_changed_found_and_deleted(site: Site) -> None:
    order = {**YEARLY, "timezone": "Europe/Berlin", "input": user_input("hi"), "metadata": {"a": 1}, "end_time": None}
    cron = await site.ok("/runs/crons", order)
    assert set(cron) == FIELDS
    assert (cron["assistant_id"], cron["thread_id"], cron["enabled"]) == (assistant_id("echo"), None, True)
    assert cron["next_run_date"].endswith("-12-31T23:00:00.000000+00:00")
    assert (cron["on_run_completed"], cron["metadata"]) == ("delete", {"a": 1})
    assert cron["payload"]["input"] == user_input("hi")
    at = f"/runs/crons/{cron['cron_id']}"
    assert await site.look(at) == cron
    change = {"schedule": "0 1 * * *", "metadata": {"b": 2}, "enabled": False, "on_run_completed": "keep"}
    changed = (await site.http.patch(at, json=change)).json()
    assert (changed["schedule"], changed["metadata"], changed["enabled"]) == ("0 1 * * *", {"a": 1, "b": 2}, False)
    assert (changed["on_run_completed"], changed["next_run_date"]) == ("keep", None)
    assert await site.ok("/runs/crons/search", {"enabled": False, "metadata": {"b": 2}}) == [changed]
    assert await site.ok("/runs/crons/search", {"select": ["cron_id"], "assistant_id": "echo"}) == [
        {"cron_id": cron["cron_id"]}
    ]
    assert await site.ok("/runs/crons/count", {}) == 1
    assert await site.ok("/runs/crons/count", {"assistant_id": "slow"}) == 0
    assert (await site.http.delete(at)).status_code == 204
    for method in ("GET", "PATCH", "DELETE"):
        assert (await site.http.request(method, at, json={"enabled": True})).status_code == 404


async def test_a_cron_of_a_thread_runs_there(site: Site, thread_id: str) -> None:
    created = await site.ok(
        f"/threads/{thread_id}/runs/crons", {**YEARLY, "input": user_input("hi"), "config": {"tags": ["t"]}}
    )
    assert (created["thread_id"], created["on_run_completed"]) == (thread_id, None)
    hub = site.gateway.hub
    cron = await hub.crons.get(created["user_id"], created["cron_id"])
    assert cron is not None
    run_id = new_id()
    await submit(guarded(hub), Principal.of_owner(created["user_id"]), cron, run_id)
    assert await site.ends(thread_id, run_id) == "success"
    run = await site.look(f"/threads/{thread_id}/runs/{run_id}")
    assert (run["metadata"]["cron_id"], run["kwargs"]["config"]) == (created["cron_id"], {"tags": ["t"]})
    values = (await site.look(f"/threads/{thread_id}/state"))["values"]
    assert [each["content"] for each in values["messages"]] == ["hi", "hi"]


async def test_runs_of_a_cron_use_its_assistant(site: Site) -> None:
    assistant = await site.ok("/assistants", {"graph_id": "echo", "config": {"tags": ["mine"]}})
    created = await site.ok(
        "/runs/crons", {**YEARLY, "assistant_id": assistant["assistant_id"], "on_run_completed": "keep"}
    )
    assert created["assistant_id"] == assistant["assistant_id"]
    cron = await site.gateway.hub.crons.get(created["user_id"], created["cron_id"])
    assert cron is not None
    await submit(guarded(site.gateway.hub), Principal.of_owner(created["user_id"]), cron, new_id())
    (thread,) = await site.ok("/threads/search", {"metadata": {"assistant_id": assistant["assistant_id"]}})
    (run,) = await site.look(f"/threads/{thread['thread_id']}/runs")
    assert run["kwargs"]["config"]["tags"] == ["mine"]


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"schedule": "nope"}, 422),
        ({"schedule": "* * * * * *"}, 422),
        ({"timezone": "Mars/Olympus"}, 422),
        ({"assistant_id": "nope"}, 422),
        ({"assistant_id": NOBODY}, 404),
        ({"end_time": "tomorrow"}, 422),
        ({"enabled": "perhaps"}, 422),
        ({"webhook": "http://10.0.0.1/"}, 422),
        ({"context": {"a": 1}, "config": {"configurable": {"b": 1}}}, 400),
    ],
)
async def test_an_invalid_cron_is_rejected(site: Site, wrong: dict[str, Any], status: int) -> None:
    answer = await site.post("/runs/crons", {**YEARLY, **wrong})
    assert (answer.status_code, set(answer.json())) == (status, {"detail"})
    assert await site.ok("/runs/crons/count", {}) == 0


async def test_a_cron_without_schedule_thread_or_change_is_rejected(site: Site) -> None:
    assert (await site.post("/runs/crons", {"assistant_id": "echo"})).status_code == 422
    assert (await site.post(f"/threads/{NOBODY}/runs/crons", YEARLY)).status_code == 404
    cron = await site.ok("/runs/crons", YEARLY)
    assert (await site.http.patch(f"/runs/crons/{cron['cron_id']}", json={})).status_code == 400
    assert (await site.post("/runs/crons/search", {"sort_by": "age"})).status_code == 422
