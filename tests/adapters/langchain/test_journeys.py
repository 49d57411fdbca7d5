"""The three journeys of the Agent Protocol's README, by an HTTP client and by `hurl` if it is installed."""

import asyncio
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.adapters.langchain.site import Site
from tests.gateway.hubs import within
from tests.skip import missing

THREAD: Final = "229c1834-bc04-4d90-8fd6-77f6b9ef1462"


@dataclass(frozen=True)
class Step:
    request: str
    status: int
    body: Any = None
    shows: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Expected values of the response by path of members."""
    captures: str | None = None
    """Member of the response that later steps reference as `{{member}}`."""


CONVERSATION: Final = (
    Step("POST /threads", 200, {"thread_id": THREAD, "metadata": {"purpose": "support-chat"}}, {"thread_id": THREAD}),
    Step(f"GET /threads/{THREAD}", 200, shows={"status": "idle"}),
    Step(
        f"POST /threads/{THREAD}/runs",
        200,
        {"input": {"message": "What is the weather?"}, "metadata": {"requestType": "weatherQuery"}},
        {"status": "pending"},
        captures="run_id",
    ),
    Step(f"GET /threads/{THREAD}/runs/{{{{run_id}}}}/wait", 200, shows={"status": "success"}),
)
ONE_SHOT: Final = (
    Step(
        "POST /runs/wait",
        200,
        {
            "input": {"prompt": "How do I get to the airport?"},
            "metadata": {"useCase": "travelPlan"},
            "config": {"tags": ["ephemeral", "demo"]},
        },
    ),
)
_ITEM: Final = {"namespace": ["user_profiles"], "key": "profile_jane_doe"}
MEMORY: Final = (
    Step("PUT /store/items", 204, {**_ITEM, "value": {"displayName": "Jane Doe", "role": "customer"}}),
    Step(
        "GET /store/items?key=profile_jane_doe&namespace=user_profiles",
        200,
        shows={"value.displayName": "Jane Doe", "value.role": "customer"},
    ),
    Step("DELETE /store/items", 204, _ITEM),
)

JOURNEYS = pytest.mark.parametrize("journey", [CONVERSATION, ONE_SHOT, MEMORY], ids=["thread", "one shot", "store"])
LAYOUTS = pytest.mark.parametrize("prefix", ["", "/agent-protocol", "/agent/echo"])


@LAYOUTS
@JOURNEYS
async def test_a_journey_of_the_readme_has_the_documented_responses(
    site: Site, journey: Sequence[Step], prefix: str
) -> None:
    captured: dict[str, str] = {}
    for step in journey:
        method, _, path = step.request.partition(" ")
        for name, value in captured.items():
            path = path.replace(f"{{{{{name}}}}}", value)
        answer = await within(site.http.request(method, prefix + path, json=step.body), step.request)
        assert answer.status_code == step.status, answer.text
        for name, expected in step.shows.items():
            actual = answer.json()
            for member in name.split("."):
                actual = actual[member]
            assert actual == expected
        if step.captures is not None:
            captured[step.captures] = answer.json()[step.captures]


async def test_the_agent_receives_text_from_any_shape_of_input(site: Site) -> None:
    for input in ({"message": "hello"}, {"prompt": "hello"}, "hello", {"messages": "hello"}):
        result = await site.ok("/runs/wait", {"input": input})
        assert result["messages"][-1]["content"] == "hello"


def to_hurl(journey: Sequence[Step], base_url: str) -> str:
    """Return the journey as a hurl file."""
    lines: list[str] = []
    for step in journey:
        method, _, path = step.request.partition(" ")
        lines += [f"{method} {base_url}{path}"]
        if step.body is not None:
            lines += ["Content-Type: application/json", "", json.dumps(step.body, indent=2)]
        lines += ["", f"HTTP/1.1 {step.status}"]
        if step.captures is not None:
            lines += ["[Captures]", f'{step.captures}: jsonpath "$.{step.captures}"']
        if step.shows:
            lines += ["[Asserts]", *(f'jsonpath "$.{name}" == {json.dumps(v)}' for name, v in step.shows.items())]
        lines.append("")
    return "\n".join(lines)


@JOURNEYS
async def test_hurl_passes_the_journey(site: Site, journey: Sequence[Step], tmp_path: Path) -> None:
    hurl = shutil.which("hurl")
    if hurl is None:
        missing("hurl")
    file = tmp_path / "journey.hurl"
    file.write_text(to_hurl(journey, site.gateway.url))
    process = await asyncio.create_subprocess_exec(
        hurl, "--test", str(file), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await within(process.communicate(), "hurl", 30)
    assert process.returncode == 0, output.decode()
