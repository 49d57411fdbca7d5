"""Judgement of the gateway with its demo agents, with and without keys."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.adapters.openai.codec.model import format_of, tools_of
from babelgate.canonical import AgentInfo, Artifact, Invocation, UseTool
from babelgate.canonical.agent import Skill
from babelgate.conformance.examine import RequirementSelection, examine
from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.report.model import CheckReport
from babelgate.conformance.trigger import Trigger, Triggers, read_triggers
from babelgate.conformance.verdict import Verdict
from babelgate.gateway import demo
from tests.conformance.recorded import assert_recorded
from tests.running import running

pytestmark = pytest.mark.slow

BOB = {"Authorization": "Bearer bobs-secret"}
ALICE = {"Authorization": "Bearer alices-secret"}
KEYS = {"alice": "alices-secret", "bob": "bobs-secret"}
UNOWNED = ProbeOptions(triggers=read_triggers("demo"))
OWNED = ProbeOptions(headers=ALICE, other_headers=BOB, triggers=read_triggers("demo"))


async def judged(folder: Path, protocol: str, options: ProbeOptions, path: str, **settings: Any) -> CheckReport:
    async with running(folder, **settings) as gateway:
        return await examine(f"{gateway.url}{path}", RequirementSelection(protocol), options)


def wrong(report: CheckReport) -> list[str]:
    return [
        f"{each.requirement.id}: {each.verdict}: {each.expected}: {each.actual}"
        for of in report.sets
        for each in of.results
        if each.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)
    ]


@pytest.mark.timeout(180)
async def test_demo_agents_conform_to_a2a_of_both_versions(tmp_path: Path, accept: bool) -> None:
    report = await judged(tmp_path, "a2a", UNOWNED, "/a2a/echo", serves_grpc=True)
    assert [each.set.name for each in report.sets] == ["a2a-0.3", "a2a-1.0"]
    assert "grpc" in report.sets[1].capabilities
    assert wrong(report) == []
    assert report.sets[1].seconds < 20, "a user waits for the report"
    assert_recorded("babelgate", report, accept)


async def test_gateway_without_private_addresses_fails_no_push_requirement(tmp_path: Path) -> None:
    """Test the default settings of `babelgate serve`, which allow no private address, without working DNS."""
    async with running(tmp_path, network={"allow": []}) as gateway:
        chosen = RequirementSelection("a2a", only=("push.*",))
        report = await examine(f"{gateway.url}/a2a/echo", chosen, UNOWNED)
    assert [f"{each.requirement.id}: {each.expected}" for of in report.sets for each in of.broken()] == []


async def test_demo_agents_conform_to_the_agent_protocol_in_both_layouts(tmp_path: Path, accept: bool) -> None:
    settings = {"keys": KEYS, "default_agent": "echo", "limits": {"ephemeral_ttl": 0.1}}
    report = await judged(tmp_path, "agent-protocol", OWNED, "/agent-protocol", **settings)
    [only] = report.sets
    assert only.capabilities >= {"OpenAPI", "README", "agents", "commands", "store"}
    assert wrong(report) == []
    assert_recorded("babelgate", report, accept)


async def test_demo_agents_conform_to_langgraph_platform(tmp_path: Path, accept: bool) -> None:
    report = await judged(tmp_path, "langgraph", OWNED, "", keys=KEYS)
    assert [each.set.name for each in report.sets] == ["langgraph-0.16"]
    # The demo agents are no graphs, so there is no node to stop before. The run declares the loss.
    assert [each for each in wrong(report) if not each.startswith("langgraph-0.16/question.breakpoint: warning")] == []
    assert_recorded("babelgate", report, accept)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("protocol", "path", "capability"), [("a2a", "/a2a/echo", "security"), ("acp", "/acp", "second-caller")]
)
async def test_callers_with_keys_cannot_see_each_others_tasks(
    tmp_path: Path, protocol: str, path: str, capability: str
) -> None:
    report = await judged(tmp_path, protocol, OWNED, path, keys=KEYS, serves_grpc=protocol == "a2a")
    assert all(capability in each.capabilities for each in report.sets)
    assert wrong(report) == []


@pytest.mark.timeout(120)
async def test_demo_agents_conform_to_acp(tmp_path: Path, accept: bool) -> None:
    report = await judged(tmp_path, "acp", UNOWNED, "/acp")
    assert [each.set.name for each in report.sets] == ["acp-0.2"]
    assert wrong(report) == []
    assert_recorded("babelgate", report, accept)


async def test_demo_agents_conform_to_aief(tmp_path: Path, accept: bool) -> None:
    report = await judged(tmp_path, "aief", OWNED, "/agent/echo", keys=KEYS)
    assert [each.set.name for each in report.sets] == ["aief-v1"]
    assert wrong(report) == []
    assert_recorded("babelgate", report, accept)


async def test_demo_agents_conform_to_the_ui_message_stream(tmp_path: Path, accept: bool) -> None:
    report = await judged(tmp_path, "vercel-ui", UNOWNED, "/vercel-ui/echo")
    assert [each.set.name for each in report.sets] == ["vercel-ui-v1"]
    assert "resume" in report.sets[0].capabilities
    assert wrong(report) == []
    assert_recorded("babelgate", report, accept)


async def test_demo_agents_conform_to_the_messages_api(tmp_path: Path, accept: bool) -> None:
    report = await judged(tmp_path, "anthropic", UNOWNED, "/anthropic")
    assert [each.set.name for each in report.sets] == ["anthropic-2023-06-01"]
    assert wrong(report) == []
    assert_recorded("babelgate", report, accept)


@pytest.mark.timeout(120)
async def test_demo_agents_conform_to_ag_ui(tmp_path: Path, accept: bool) -> None:
    report = await judged(tmp_path, "ag-ui", OWNED, "/ag-ui/echo", keys=KEYS)
    assert [each.set.name for each in report.sets] == ["ag-ui-1.0"]
    assert wrong(report) == []
    assert_recorded("babelgate", report, accept)


@pytest.mark.timeout(120)
async def test_demo_agents_conform_to_the_agent_client_protocol(tmp_path: Path, accept: bool) -> None:
    report = await judged(tmp_path, "agent-client", OWNED, "/agent-client/echo", keys=KEYS)
    assert [each.set.name for each in report.sets] == ["agent-client-v1"]
    assert report.sets[0].capabilities >= {"load", "resume", "list", "close", "delete", "second-caller"}
    assert wrong(report) == []
    assert_recorded("babelgate", report, accept)


async def report(call: Invocation) -> AsyncGenerator[Artifact]:
    """Return a binary artifact, and one that is larger than `limits.inline` of the test, to which the result links."""
    yield Artifact.of("dot.png", b"\x89PNG", "image/png")
    yield Artifact.of("report.txt", "word " * 1000)


async def page(call: Invocation) -> str:
    assert isinstance(call.data, dict)
    return f"Page {call.data['name']}."


async def greeting(call: Invocation) -> str:
    assert isinstance(call.data, dict)
    return f"Greet in {call.data['tone']}."


async def talk(text: str) -> str:
    return text


def _schemas(name: str, choices: Sequence[str]) -> Mapping[str, Any]:
    member = {"type": "string", "enum": list(choices)}
    return {"input": {"type": "object", "properties": {name: member}, "required": [name]}}


def _with_info(agent: Any, *, skills: Sequence[Skill] = (), schemas: Any = None, **mcp: Any) -> Any:
    metadata = {"mcp": mcp} if mcp else {}
    agent.info = AgentInfo(name=agent.__name__, skills=tuple(skills), schemas=schemas or {}, metadata=metadata)
    return agent


_SKILL: Final = Skill(id="talk", name="Talk", description="Repeats a text.", examples=("Hello", "Good morning"))
MCP_AGENTS: Final[Mapping[str, Any]] = {
    **{name: getattr(demo, name) for name in demo.__all__},
    "report": report,
    "talk": _with_info(talk, skills=(_SKILL,)),
    "page": _with_info(
        page, schemas=_schemas("name", [f"p{number}" for number in range(150)]), resource="docs://{name}"
    ),
    "greeting": _with_info(greeting, schemas=_schemas("tone", ["kind", "keen"]), prompt=True),
}


@pytest.mark.timeout(120)
async def test_demo_agents_conform_to_mcp_of_both_versions(tmp_path: Path, accept: bool) -> None:
    """Test the demo agents, and agents that are prompts and resources or return a link."""
    change = Trigger("Go", agent="report", data={"message": "Go", "thread_id": "babelgate-check"})
    triggers = {**UNOWNED.triggers.by_behaviour, "links": Trigger("Go", agent="report"), "change": change}
    options = ProbeOptions(triggers=Triggers(triggers))
    report = await judged(tmp_path, "mcp", options, "/mcp", agents=MCP_AGENTS, limits={"inline": 2000})
    assert all(each.capabilities >= {"resources", "prompts", "completions"} for each in report.sets)
    assert [each.set.name for each in report.sets] == ["mcp-2025-11-25", "mcp-2026-07-28"]
    # The gateway stores nothing in a session, so requests without one are accepted. It answers cancelled calls.
    expected = ("mcp-2025-11-25/session.missing: warning", "mcp-2025-11-25/cancel.unanswered: warning")
    assert [each for each in wrong(report) if not each.startswith(expected)] == []
    assert_recorded("babelgate", report, accept)
    async with running(tmp_path, keys=KEYS) as gateway:
        owned = await examine(f"{gateway.url}/mcp", RequirementSelection("mcp", "2026-07-28", ("*/question.*",)), OWNED)
        guarded = await examine(f"{gateway.url}/mcp", RequirementSelection("mcp", only=("*/http.origin",)), OWNED)
    [only] = owned.sets
    assert "second-caller" in only.capabilities
    assert wrong(owned) == []
    assert [result.verdict for each in guarded.sets for result in each.results] == [Verdict.PASS] * 2


async def suite(call: Invocation) -> AsyncGenerator[Any, Any]:
    """Call the first tool that the request allows, and answer in the requested format."""
    tools = tools_of(call.config) if call.config.get("tool_choice") != "none" else []
    if format_of(call.config, None) is not None:
        yield '{"city": "Paris"}'
    elif tools:
        result = yield UseTool(tools[0]["name"], {"city": "Paris"})
        yield f"It is {result}"
    else:
        yield call.text


@pytest.mark.timeout(180)
async def test_agent_with_tools_conforms_to_open_responses(tmp_path: Path, accept: bool) -> None:
    agents = {"suite": suite, "fail": demo.fail, "slow": demo.slow}
    named = {"plain": "suite", "stream": "suite", "fail": "fail", "calls": "suite", "data": "suite"}
    triggers = {name: Trigger("Hello, agent", agent=agent) for name, agent in named.items()}
    options = ProbeOptions(
        headers=ALICE, other_headers=BOB, triggers=Triggers({**triggers, "long": Trigger("30", agent="slow")})
    )
    async with running(tmp_path, agents, keys=KEYS) as gateway:
        report = await examine(f"{gateway.url}/v1", RequirementSelection("openai", "responses"), options)
    assert [each.set.name for each in report.sets] == ["openai-responses"]
    assert wrong(report) == []
    assert_recorded("babelgate", report, accept)
