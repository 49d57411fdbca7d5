"""Calls of the known clients of this protocol, in their order and form."""

import re
from typing import Any

from tests import loopback
from tests.adapters.aief.site import Site
from tests.adapters.langchain.site import SHARED

pytestmark = SHARED

JSON = {"Content-Type": "application/json", "Accept": "application/json"}


def strict(value: Any, names: dict[str, type | tuple[type, ...]]) -> None:
    """Check types as strictly as the pydantic models of the generated client."""
    for name, kind in names.items():
        assert isinstance(value[name], kind), f"{name} of {value}"


def check_artifact(artifact: Any) -> None:
    strict(artifact, {"artifact_id": str, "agent_created": bool, "file_name": str, "created_at": str})
    assert artifact["relative_path"] is None or isinstance(artifact["relative_path"], str)


def check_task(task: Any) -> None:
    strict(task, {"task_id": str, "input": (str, type(None)), "additional_input": dict, "artifacts": list})
    for artifact in task["artifacts"]:
        check_artifact(artifact)


def check_step(step: Any) -> None:
    strict(step, {"task_id": str, "step_id": str, "status": str, "is_last": bool, "artifacts": list})
    strict(step, {"additional_input": dict, "additional_output": (dict, type(None)), "output": (str, type(None))})
    assert step["status"] in ("created", "running", "completed")
    for artifact in step["artifacts"]:
        check_artifact(artifact)


def check_page(page: Any) -> None:
    strict(page["pagination"], {"total_items": int, "total_pages": int, "current_page": int, "page_size": int})


async def test_the_generated_python_client(site: Site) -> None:
    """Create a task, execute all steps, list and download, as the client's minimal example does."""
    base = "/agent/files/ap/v1/agent/tasks"
    task = (await site.http.post(base, headers=JSON, content=b'{"input": "Write", "additional_input": null}')).json()
    check_task(task)
    while True:
        step = (await site.http.post(f"{base}/{task['task_id']}/steps", headers=JSON, content=b"{}")).json()
        check_step(step)
        if step["is_last"]:
            break
    page = (
        await site.http.get(f"{base}/{task['task_id']}/artifacts", params={"current_page": 1, "page_size": 10})
    ).json()
    check_page(page)
    [artifact] = page["artifacts"]
    check_artifact(artifact)
    download = await site.http.get(f"{base}/{task['task_id']}/artifacts/{artifact['artifact_id']}")
    found = re.search(r'filename=[\'"]?([^\'"\s]+)[\'"]?', download.headers["content-disposition"])
    assert found is not None
    assert found[1] == "report.txt"
    # The client detects a missing step by the status.
    assert (await site.http.get(f"{base}/{task['task_id']}/steps/none")).status_code == 404


async def test_the_postman_collection(site: Site) -> None:
    """Read the first step before any is executed, and post another one after the last."""
    base = "/ap/v1/agent/tasks"
    task = (await site.http.post(base, json={"input": "test", "additional_input": {}})).json()
    path = f"{base}/{task['task_id']}"
    listed = (await site.http.get(base, params={"current_page": 1, "page_size": 10})).json()
    check_page(listed)
    assert task["task_id"] in [each["task_id"] for each in listed["tasks"]]
    steps = (await site.http.get(f"{path}/steps")).json()
    check_page(steps)
    first = steps["steps"][0]
    assert (await site.http.get(f"{path}/steps/{first['step_id']}")).json() == first
    done = await site.http.post(f"{path}/steps", json={"input": "y"})
    assert (done.status_code, done.json()["step_id"]) == (200, first["step_id"])
    more = await site.http.post(f"{path}/steps", json={"input": "y"})
    assert (more.status_code, more.json()["status"]) == (200, "completed")
    up = await site.http.post(f"{path}/artifacts", files={"file": ("a.txt", b"a")}, data={"relative_path": "x/"})
    check_artifact(up.json())
    check_page((await site.http.get(f"{path}/artifacts")).json())
    for missing in ("/none", "/none/steps", f"/{task['task_id']}/steps/none", f"/{task['task_id']}/artifacts/none"):
        answer = await site.http.get(base + missing)
        assert answer.status_code == 404
        strict(answer.json(), {"message": str})
    assert (await site.http.post(base, json={"input": {"no": "text"}})).status_code == 422


async def test_the_benchmark(site: Site) -> None:
    """Make the calls of agbenchmark.

    Its host is the base URL with /ap/v1. A POST of a step has a content type and no body. It reads one page of
    artifacts, and rejects an artifact without created_at.
    """
    async with loopback.client(base_url=f"{site.url}/agent/files/ap/v1") as http:
        task = (await http.post("/agent/tasks", json={"input": "Write Washington", "additional_input": None})).json()
        path = f"/agent/tasks/{task['task_id']}"
        up = await http.post(f"{path}/artifacts", files={"file": ("in.txt", b"data")}, data={"relative_path": ""})
        assert up.status_code == 200
        for _ in range(10):
            step = (await http.post(f"{path}/steps", headers={"Content-Type": "application/json"})).json()
            check_step(step)
            if step["is_last"]:
                break
        artifacts = (await http.get(f"{path}/artifacts")).json()["artifacts"]
        assert {each["file_name"] for each in artifacts} == {"in.txt", "report.txt"}
        for each in artifacts:
            check_artifact(each)
            assert (await http.get(f"{path}/artifacts/{each['artifact_id']}")).content
