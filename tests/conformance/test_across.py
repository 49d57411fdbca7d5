"""Comparison of one run across protocols.

The protocols of the gateway with its demo agents must agree. A proxy that changes the answers of one protocol proves
that each kind of difference is found and attributed to the right protocol.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from babelgate.canonical import Artifact, Ask, DataPart, FilePart, Message
from babelgate.conformance.across.play import NothingToCompare, play
from babelgate.conformance.across.report.document import document, picture
from babelgate.conformance.across.report.html import html
from babelgate.conformance.across.report.markdown import markdown
from babelgate.conformance.across.report.text import lines
from babelgate.conformance.across.scenario import SCENARIOS
from babelgate.conformance.across.verdict import AcrossVerdict, judge
from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.trigger import Trigger, Triggers, read_triggers
from babelgate.conformance.wire.exchange import as_list, as_object, dig
from babelgate.conformance.wire.http import Unanswered
from babelgate.gateway.cli import main
from docs.across import RECORD, read_record
from tests.conformance.bending import DROPPED, Bend, bending
from tests.gateway.command import bound_socket
from tests.running import Running, running

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PROTOCOLS = [
    *("acp", "a2a-0.3", "a2a-1.0", "aief", "langgraph", "agent-protocol"),
    *("openai-chat", "openai-responses", "mcp"),
]
READERS = PROTOCOLS[:6]
"""Protocols that can read a run of another protocol. Chat Completions stores no runs, Responses reads only its own, and
MCP returns no run ids."""
CREATORS = PROTOCOLS[:-1]
"""Protocols whose runs the readers can read."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


def as_it_is(protocol: str, path: str, value: Any) -> Any:
    return value


async def compare(url: str, *only: str, baseline: dict[str, str] | None = None) -> AcrossVerdict:
    return judge(await play([url], ProbeOptions(triggers=read_triggers("demo")), only=only), baseline)


async def compare_bent(gateway: Running, bend: Bend, *only: str, **options: Any) -> AcrossVerdict:
    async with bending(gateway.url, bend, **options) as url:
        return await compare(url, *only)


def ids(verdict: AcrossVerdict) -> set[str]:
    """Return the ids of the differences between separate runs."""
    return {each.id.removeprefix("across/") for each in verdict.against if not each.is_shared}


def declared_ids(verdict: AcrossVerdict) -> set[str]:
    found = (each for each in verdict.findings if each.difference.declared and not each.is_shared)
    return {each.id.removeprefix("across/") for each in found}


@pytest.mark.timeout(60)
async def test_protocols_of_the_gateway_agree(gateway: Running, accept: bool) -> None:
    verdict = await compare(gateway.url)
    assert [(each.id, each.difference) for each in verdict.against] == []
    assert verdict.is_same and verdict.played == len(SCENARIOS)
    assert verdict.record.protocols == PROTOCOLS
    assert set(verdict.shared) == {(creator, reader) for creator in CREATORS for reader in READERS}
    assert all(cell.compared >= 13 for (creator, _), cell in verdict.shared.items() if creator in READERS)
    # Prove that the compared answers are not empty.
    shots = {each.scenario.name: each.shots["a2a-1.0"] for each in verdict.record.played}
    assert shots["plain"]["answer"].meaning.text == "Hello, agent"  # pyright: ignore[reportOptionalMemberAccess]
    last = {name: [*each.values()][-1].meaning for name, each in shots.items()}
    assert {name: each.state for name, each in last.items() if each} == {
        **dict.fromkeys(shots, "completed"),
        "fail": "failed",
        "cancel": "cancelled",
    }
    if accept:
        RECORD.write_text(json.dumps(picture(verdict), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert picture(verdict) == read_record(), "pytest --accept, then make docs"


async def test_server_without_shared_runs_is_compared_by_separate_runs(gateway: Running) -> None:
    drops = frozenset({"babelgate-thread", "babelgate-task", "babelgate-run"})
    verdict = await compare_bent(gateway, as_it_is, "plain", "question", drops=drops)
    assert verdict.is_same
    assert not verdict.shared
    assert all(cell.compared == 3 for pair, cell in verdict.pairs.items() if set(pair) <= set(READERS))


def each(value: Any, change: Callable[[dict[str, Any]], None]) -> Any:
    """Apply a change to every object in a JSON value, at any depth, and return the value."""
    members = as_object(value)
    if members is not None:
        changed = {name: each(member, change) for name, member in members.items()}
        change(changed)
        return changed
    return [each(item, change) for item in as_list(value)] if isinstance(value, list) else value


def in_protocol(name: str, change: Callable[[dict[str, Any]], None]) -> Bend:
    return lambda protocol, path, value: each(value, change) if protocol == name else value


def without(name: str, *members: str) -> Bend:
    def change(of: dict[str, Any]) -> None:
        for member in members:
            of.pop(member, None)

    return in_protocol(name, change)


def instead(name: str, member: str, was: Any, now: Any) -> Bend:
    def change(of: dict[str, Any]) -> None:
        if of.get(member) == was:
            of[member] = now

    return in_protocol(name, change)


def drops_artifact_parts(of: dict[str, Any]) -> None:
    if "artifactId" in of:
        of["parts"] = of["parts"][1:]


def drops_a_piece(protocol: str, path: str, value: Any) -> Any:
    """Drop the piece " two" of a stream, and of the whole message."""
    if protocol != "acp":
        return value
    if value.get("type") == "message.part" and value["part"]["content"] == " two":
        return DROPPED
    return each(value, drops_its_part)


def drops_its_part(of: dict[str, Any]) -> None:
    if "parts" in of:
        of["parts"] = [part for part in of["parts"] if part["content"] != " two"]


def keeps_one_question(of: dict[str, Any]) -> None:
    if "__interrupt__" in of:
        of["__interrupt__"] = of["__interrupt__"][:1]


def other_bytes(protocol: str, path: str, value: Any) -> Any:
    return value + b"?" if protocol == "aief" and isinstance(value, bytes) else value


def forgets_sessions(protocol: str, path: str, value: Any) -> Any:
    if protocol == "acp" and dig(value, "session_id") is not None:
        return {**value, "session_id": value["run_id"]}
    return value


BROKEN: Sequence[tuple[str, Bend, str, set[str]]] = (
    ("a-part-is-dropped", in_protocol("a2a-1.0", drops_artifact_parts), "plain", {"plain.text:a2a-1.0"}),
    ("a-state-is-changed", instead("acp", "status", "completed", "failed"), "plain", {"plain.state:acp"}),
    (
        "a-state-of-a-stream-is-left-out",
        instead("a2a-0.3", "state", "working", "submitted"),
        "stream",
        {"stream.states:a2a-0.3"},
    ),
    ("a-schema-is-lost", without("langgraph", "response_schema"), "approval", {"approval.schemas:langgraph"}),
    ("a-schema-is-lost-in-a2a", without("a2a-0.3", "schema"), "approval", {"approval.schemas:a2a-0.3"}),
    ("data-of-a-question-is-lost", without("a2a-1.0", "value"), "approval", {"approval.question-data:a2a-1.0"}),
    (
        "a-question-is-lost",
        in_protocol("agent-protocol", keeps_one_question),
        "questions",
        # With one question left, the answer does not name the question that it belongs to.
        {"questions.questions:agent-protocol", "questions.answer:agent-protocol"},
    ),
    ("bytes-are-changed", other_bytes, "files", {"files.files:aief"}),
    (
        "a-media-type-is-changed",
        instead("acp", "content_type", "application/octet-stream", "text/plain"),
        "files",
        {"files.media-types:acp"},
    ),
    ("a-value-is-changed", instead("langgraph", "words", 3, "3"), "data", {"data.data:langgraph"}),
    (
        "an-error-is-reworded",
        instead("agent-protocol", "message", "RuntimeError: as it was told to", "failed"),
        "fail",
        {"fail.error:agent-protocol"},
    ),
    ("a-piece-is-dropped", drops_a_piece, "stream", {"stream.text:acp"}),
    ("a-conversation-is-not-kept", forgets_sessions, "turns", {"turns.conversation:acp"}),
)


@pytest.mark.parametrize(
    ("bend", "scenario", "expected"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN]
)
async def test_difference_in_one_protocol_is_found_and_named(
    gateway: Running, bend: Bend, scenario: str, expected: set[str]
) -> None:
    verdict = await compare_bent(gateway, bend, scenario)
    assert ids(verdict) == expected
    assert not verdict.is_same


JUNK: Sequence[Any] = (None, True, -1.5, "x", [], {}, [None], [[]], {"kind": []})


def mangling_bend(seed: int) -> Bend:
    """Return a bend that removes members and replaces values at random, except in answers that discovery needs."""
    random = Random(seed)

    def mangle(value: Any) -> Any:
        members = as_object(value)
        if random.random() < 0.1:
            return random.choice(JUNK)
        if members is not None:
            return {name: mangle(member) for name, member in members.items() if random.random() > 0.1}
        return [mangle(item) for item in as_list(value)] if isinstance(value, list) else value

    searches = ("/search", "/agents", "/agent-card.json", "/tasks")
    return lambda protocol, path, value: value if path.endswith(searches) else mangle(value)


async def test_server_with_malformed_answers_fails_every_scenario(gateway: Running) -> None:
    async with bending(gateway.url, mangling_bend(1)) as url:
        options = ProbeOptions(triggers=read_triggers("demo"), timeout=1.0)
        verdict = judge(await play([url], options, only=["plain", "approval", "files", "fail"]))
    assert {each.scenario for each in verdict.against} == {"plain", "approval", "files", "fail"}
    for report in ("\n".join(lines(verdict)), markdown(verdict), html(verdict), document(verdict)):
        assert "across/plain." in report


def changed_when_read(protocol: str, path: str, value: Any) -> Any:
    """Change a run only when it is read later, and not in the answer to its creation."""
    is_read = protocol == "acp" and re.fullmatch(r"/acp/runs/[^/]+", path)
    return each(value, lambda of: of.update(content="?") if "content" in of else None) if is_read else value


async def test_run_that_differs_when_read_by_another_protocol_is_found(gateway: Running) -> None:
    verdict = await compare_bent(gateway, changed_when_read, "plain")
    assert {each.id for each in verdict.against} == {f"across/plain.text:{creator}>acp" for creator in CREATORS}
    assert [verdict.shared[creator, "acp"].undeclared for creator in CREATORS] == [1] * len(CREATORS)
    assert all(cell.undeclared == (reader == "acp") for (_, reader), cell in verdict.shared.items())


def declares(protocol: str, path: str, value: Any) -> Any:
    """Remove the files of an answer and declare the loss."""
    if protocol != "a2a-0.3" or "result" not in value or "status" not in value["result"]:
        return value if protocol != "a2a-0.3" or "result" not in value else without_files(value)
    loss = {"babelgate": {"loss": {"artifact": "files are lost"}}}
    return {**value, "result": {**value["result"], "artifacts": [], "metadata": loss}}


def without_files(value: Any) -> Any:
    return DROPPED if dig(value, "result", "kind") == "artifact-update" else value


async def test_declared_loss_is_no_failure(gateway: Running) -> None:
    verdict = await compare_bent(gateway, declares, "files")
    declared = {each.id: each.difference.declared for each in verdict.findings if each.there.protocol == "a2a-0.3"}
    assert declared["across/files.files:a2a-0.3"] == "a2a-0.3 declares artifact, files are lost"
    assert verdict.is_same


async def test_baseline_difference_passes_until_it_disappears(gateway: Running) -> None:
    baseline = {"across/data.data:langgraph": "numbers are texts there"}
    shared = {f"across/data.data:{creator}>langgraph": "the same" for creator in READERS if creator != "langgraph"}
    shared |= {f"across/data.data:langgraph>{reader}": "the same" for reader in READERS if reader != "langgraph"}
    bend = instead("langgraph", "words", 3, "3")
    async with bending(gateway.url, bend) as url:
        verdict = await compare(url, "data", baseline={**baseline, **shared})
    assert verdict.is_same and len(verdict.findings) == 11
    without_difference = await compare(
        gateway.url, "data", baseline={**baseline, "a2a-1.0/card.name": "of another command"}
    )
    assert not without_difference.is_same
    assert without_difference.stale == [*baseline]


async def test_report_of_a_difference_contains_both_wire_forms(gateway: Running) -> None:
    verdict = await compare_bent(gateway, without("langgraph", "response_schema"), "approval")
    text = "\n".join(lines(verdict))
    page = html(verdict)
    for report in (text, markdown(verdict), page, document(verdict)):
        assert "approval.schemas:langgraph" in report
        assert "/runs/wait" in report and "/acp/runs" in report
    assert "✗ across/approval.schemas:langgraph" in text
    # The page loads no resources.
    assert not re.search(r"<script|<link|<img|\bsrc=|\bhref=", page)


async def test_reports_contain_no_keys(tmp_path: Path) -> None:
    headers = {"Authorization": "Bearer alices-secret"}
    async with running(tmp_path, keys={"alice": "alices-secret"}) as gateway:
        options = ProbeOptions(headers=headers, triggers=read_triggers("demo"))
        verdict = judge(await play([gateway.url], options, only=["plain", "files"]))
    assert verdict.is_same and verdict.played == 2
    for report in ("\n".join(lines(verdict)), markdown(verdict), html(verdict), document(verdict)):
        assert "alices-secret" not in report


async def test_scenario_without_a_trigger_is_skipped(gateway: Running) -> None:
    triggers = Triggers({"plain": Trigger("Hello", agent="echo"), "files": Trigger("", is_never=True)})
    verdict = judge(await play([gateway.url], ProbeOptions(triggers=triggers)))
    played = {each.scenario.name for each in verdict.record.played if each.shots}
    assert played == {"plain", "turns"}
    skipped = {each.scenario.name: each.skipped for each in verdict.record.played}
    assert "--trigger question=" in skipped["question"]
    assert "never" in skipped["files"]
    assert verdict.is_same


async def test_several_urls_are_compared(gateway: Running) -> None:
    urls = [f"{gateway.url}/a2a/echo", f"{gateway.url}/acp", f"{gateway.url}/agent/echo/ap/v1"]
    record = await play(urls, ProbeOptions(), only=["plain"])
    assert record.protocols[:4] == ["acp", "a2a-0.3", "a2a-1.0", "aief"]
    assert judge(record).is_same


async def test_comparison_needs_two_protocols(gateway: Running) -> None:
    async with bending(gateway.url, as_it_is, only="/acp/") as url:
        with pytest.raises(NothingToCompare, match="ACP; two protocols are needed"):
            await play([url], ProbeOptions())
    with pytest.raises(NothingToCompare, match="no scenario matches lunch; the scenarios are plain,"):
        await play([gateway.url], ProbeOptions(), only=["lunch"])
    with bound_socket() as unused, pytest.raises(Unanswered):
        await play([f"http://127.0.0.1:{unused.getsockname()[1]}"], ProbeOptions())


async def exit_code(*arguments: str) -> int:
    """Run `babelgate check` in a thread, because it runs its own event loop, and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        await asyncio.to_thread(main, ["check", "--across", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


async def test_exit_code_reports_whether_protocols_agree(
    gateway: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, table = tmp_path / "across.html", tmp_path / "across.md"
    only = ("--triggers", "demo", "--only", "plain")
    assert await exit_code(gateway.url, *only, "--html", str(page), "--markdown", str(table)) == 0
    assert ": the same; no differences in 1 scenarios" in capsys.readouterr().out
    assert page.read_text().startswith("<!doctype html>") and "| **plain**" in table.read_text()
    async with bending(gateway.url, in_protocol("a2a-1.0", drops_artifact_parts)) as url:
        assert await exit_code(url, *only) == 1
    assert "✗ across/plain.text:a2a-1.0" in capsys.readouterr().out
    with bound_socket() as unused:
        assert await exit_code(f"http://127.0.0.1:{unused.getsockname()[1]}") == 2
    assert await exit_code("localhost") == await exit_code() == await exit_code(gateway.url, "--protocol", "acp") == 2
    assert await exit_code(gateway.url, "--junit", str(table)) == 2
    assert "--across can write json, markdown, html, not junit" in capsys.readouterr().err


async def two(text: str) -> AsyncGenerator[Message]:
    """Send two messages."""
    yield Message.of("one")
    yield Message.of("two")


async def again(text: str) -> AsyncGenerator[Ask | str, Any]:
    """Ask again after an answer."""
    yield "Before. "
    first = yield Ask("First?")
    second = yield Ask("Second?", schema={"type": "string"})
    yield f"{first} {second}"


async def notes(text: str) -> AsyncGenerator[Artifact | str]:
    """Send a text and a file."""
    yield "See the notes."
    yield Artifact.of("notes.md", "# Notes\n")


async def large(text: str) -> AsyncGenerator[Artifact]:
    """Send a file that is too large for an inline answer."""
    yield Artifact(name="large.bin", parts=(FilePart(inline=bytes(range(256)) * 40, name="large.bin"),))


async def number(text: str) -> AsyncGenerator[DataPart]:
    """Send data that is no object."""
    yield DataPart(data=3)


async def table(text: str) -> AsyncGenerator[Artifact]:
    """Send an artifact of data whose name has no extension."""
    yield Artifact(name="table", parts=(DataPart(data={"rows": [1, 2]}),))


AGENTS = {agent.__name__: agent for agent in (two, again, notes, large, number, table)}


async def compare_agent(url: str, agent: str, **triggers: Trigger) -> AcrossVerdict:
    chosen = {"plain": Trigger("Go", agent=agent), "stream": Trigger("Go", agent=agent), **triggers}
    return judge(await play([url], ProbeOptions(triggers=Triggers(chosen)), only=[*chosen]))


async def test_different_forms_of_the_same_content_are_equal(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS) as gateway:
        for agent in ("two", "notes"):
            verdict = await compare_agent(gateway.url, agent)
            assert [(each.id, each.difference) for each in verdict.against] == [], agent
        asking = await compare_agent(gateway.url, "again", question=Trigger("Go", agent="again", answer="Ada"))
    # The judge declares no elicitation in MCP, so the question arrives as the result of the tool.
    assert [(each.id, each.difference) for each in asking.against if each.there.protocol != "mcp"] == []
    [shots] = [each.shots for each in asking.record.played if each.scenario.name == "question"]
    meanings = {name: each["answered"].meaning for name, each in shots.items()}
    assert {name: meaning and meaning.text for name, meaning in meanings.items()} == dict.fromkeys(
        READERS, "Before. Ada Ada"
    )


async def test_losses_of_the_gateway_are_declared(tmp_path: Path) -> None:
    """Test the declared losses.

    A2A 0.3 wraps data that is no object, as the official SDK does. AIEF recognizes JSON only by the file name.
    LangGraph names a large file by its hash. OpenAI's APIs support only text.
    """
    async with running(tmp_path, AGENTS, limits={"inline": 1000}) as gateway:
        found = {agent: await compare_agent(gateway.url, agent) for agent in ("large", "number", "table")}
    assert {agent: ids(verdict) for agent, verdict in found.items()} == {agent: set() for agent in found}
    assert declared_ids(found["large"]) >= {"stream.files:langgraph", "stream.files:agent-protocol"}
    number_losses = {
        f"{scenario}.{aspect}:openai-{api}"
        for api in ("chat", "responses")
        for scenario in ("plain", "stream")
        for aspect in ("text", "data")
    }
    assert declared_ids(found["number"]) == number_losses
    assert "plain.files:aief" in declared_ids(found["table"])
