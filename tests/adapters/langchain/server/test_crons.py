"""Crons over HTTP. When they run is of `tests/gateway/runs/test_crons.py`."""

from typing import Any

import pytest

from babelgate.adapters.langchain.codec.state import assistant_id
from babelgate.adapters.langchain.server.crons import submit
from tests.adapters.langchain.site import NOBODY, Site, new_id, said

FIELDS = {
    *("cron_id", "assistant_id", "thread_id", "user_id", "metadata", "payload", "enabled", "created_at", "updated_at"),
    *("schedule", "timezone", "end_time", "next_run_date", "on_run_completed"),
}
YEARLY: dict[str, Any] = {"assistant_id": "echo", "schedule": "0 0 1 1 *"}


async def test_a_cron_is_made_changed_found_and_deleted(site: Site) -> None:
    asked = {**YEARLY, "timezone": "Europe/Berlin", "input": said("hi"), "metadata": {"a": 1}, "end_time": None}
    made = await site.ok("/runs/crons", asked)
    assert set(made) == FIELDS
    assert (made["assistant_id"], made["thread_id"], made["enabled"]) == (assistant_id("echo"), None, True)
    assert made["next_run_date"].endswith("-12-31T23:00:00.000000+00:00")
    assert (made["on_run_completed"], made["metadata"]) == ("delete", {"a": 1})
    assert made["payload"]["input"] == said("hi")
    at = f"/runs/crons/{made['cron_id']}"
    assert await site.look(at) == made
    change = {"schedule": "0 1 * * *", "metadata": {"b": 2}, "enabled": False, "on_run_completed": "keep"}
    changed = (await site.http.patch(at, json=change)).json()
    assert (changed["schedule"], changed["metadata"], changed["enabled"]) == ("0 1 * * *", {"a": 1, "b": 2}, False)
    assert (changed["on_run_completed"], changed["next_run_date"]) == ("keep", None)
    assert await site.ok("/runs/crons/search", {"enabled": False, "metadata": {"b": 2}}) == [changed]
    assert await site.ok("/runs/crons/search", {"select": ["cron_id"], "assistant_id": "echo"}) == [
        {"cron_id": made["cron_id"]}
    ]
    assert await site.ok("/runs/crons/count", {}) == 1
    assert await site.ok("/runs/crons/count", {"assistant_id": "slow"}) == 0
    assert (await site.http.delete(at)).status_code == 204
    for method in ("GET", "PATCH", "DELETE"):
        assert (await site.http.request(method, at, json={"enabled": True})).status_code == 404


async def test_a_cron_of_a_thread_runs_there(site: Site, thread_id: str) -> None:
    made = await site.ok(f"/threads/{thread_id}/runs/crons", {**YEARLY, "input": said("hi"), "config": {"tags": ["t"]}})
    assert (made["thread_id"], made["on_run_completed"]) == (thread_id, None)
    hub = site.gateway.hub
    cron = await hub.crons.get(made["user_id"], made["cron_id"])
    assert cron is not None
    run_id = new_id()
    await submit(hub, made["user_id"], cron, run_id)
    assert await site.ends(thread_id, run_id) == "success"
    run = await site.look(f"/threads/{thread_id}/runs/{run_id}")
    assert (run["metadata"]["cron_id"], run["kwargs"]["config"]) == (made["cron_id"], {"tags": ["t"]})
    values = (await site.look(f"/threads/{thread_id}/state"))["values"]
    assert [each["content"] for each in values["messages"]] == ["hi", "hi"]


async def test_the_runs_of_a_cron_are_its_assistants(site: Site) -> None:
    own = await site.ok("/assistants", {"graph_id": "echo", "config": {"tags": ["mine"]}})
    made = await site.ok("/runs/crons", {**YEARLY, "assistant_id": own["assistant_id"], "on_run_completed": "keep"})
    assert made["assistant_id"] == own["assistant_id"]
    cron = await site.gateway.hub.crons.get(made["user_id"], made["cron_id"])
    assert cron is not None
    await submit(site.gateway.hub, made["user_id"], cron, new_id())
    (thread,) = await site.ok("/threads/search", {"metadata": {"assistant_id": own["assistant_id"]}})
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
async def test_what_is_no_cron_is_refused(site: Site, wrong: dict[str, Any], status: int) -> None:
    answer = await site.post("/runs/crons", {**YEARLY, **wrong})
    assert (answer.status_code, set(answer.json())) == (status, {"detail"})
    assert await site.ok("/runs/crons/count", {}) == 0


async def test_a_cron_needs_a_schedule_its_thread_and_something_to_change(site: Site) -> None:
    assert (await site.post("/runs/crons", {"assistant_id": "echo"})).status_code == 422
    assert (await site.post(f"/threads/{NOBODY}/runs/crons", YEARLY)).status_code == 404
    made = await site.ok("/runs/crons", YEARLY)
    assert (await site.http.patch(f"/runs/crons/{made['cron_id']}", json={})).status_code == 400
    assert (await site.post("/runs/crons/search", {"sort_by": "age"})).status_code == 422
