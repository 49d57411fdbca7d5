"""Tests of `babelgate record` and `babelgate replay`: a replay repeats the agent's answers in every protocol."""

import asyncio
import base64
import io
import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from babelgate.canonical.event import InterruptRaised
from babelgate.gateway import demo
from babelgate.gateway.agents.python.recording import Recorded, Recording, read_recording
from babelgate.gateway.cli import main
from babelgate.gateway.cli.conversation import ConversationError, OpenQuestion, Output, ProgressNote, TextPiece
from babelgate.gateway.cli.line import ClientConversation
from tests.gateway.command import babelgate, served
from tests.running import running

pytestmark = pytest.mark.timeout(120)

BOUND = 30


def command(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command in this process, and return its exit code and its stderr."""
    errors = io.StringIO()
    with chdir(folder), redirect_stdout(io.StringIO()), redirect_stderr(errors), pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0), errors.getvalue()


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with recordings of four demo agents: `files`, `ask`, `approve` and `fail`."""
    folder = tmp_path_factory.mktemp("recordings")
    (folder / "data.bin").write_bytes(b"\x00\xff" * 1000)
    for arguments in (
        ("files", "Report", "--file", "data.bin"),
        ("ask", "Hi", "--answer", "Ada"),
        ("approve", "Go", "--answer", "y", "--answer", "n"),
        ("fail", "Out of paper"),
    ):
        code, errors = command(folder, "record", *arguments, "--out", f"{arguments[0]}.json")
        assert code == 0, errors
    return folder


async def converse(url: str, agent: str, protocol: str, text: str, *answers: Any) -> list[Output]:
    """Return all outputs of a conversation, with pieces of text joined and without the ids of questions."""
    line, outputs = ClientConversation(protocol, url, agent, None), list[Output]()
    remaining = list(answers)
    try:
        questions = await _collect(line.send(text), outputs)
        while questions:
            questions = await _collect(line.answer([(each, remaining.pop(0)) for each in questions]), outputs)
    except ConversationError as failed:
        outputs.append(ProgressNote(f"failed: {failed}"))
    finally:
        await line.aclose()
    return outputs


async def _collect(stream: AsyncGenerator[Output], outputs: list[Output]) -> Sequence[OpenQuestion]:
    questions: list[OpenQuestion] = []
    async for each in stream:
        if isinstance(each, OpenQuestion):
            questions.append(each)
            outputs.append(OpenQuestion("", each.text, each.schema))
        elif isinstance(each, TextPiece) and outputs and isinstance(outputs[-1], TextPiece):
            outputs[-1] = TextPiece(outputs[-1].text + each.text)
        else:
            outputs.append(each)
    return questions


def test_record_prints_only_the_summary(tmp_path: Path) -> None:
    done = babelgate(tmp_path, "record", "fail", "Out of paper", "--out", "fail.json")
    assert done.stderr == "fail.json: 1 runs, 5 events, 0 files\n"


@pytest.mark.parametrize("protocol", ["acp", "a2a", "aief", "langgraph"])
@pytest.mark.parametrize(("name", "text", "answers"), [("ask", "Hi", ["Ada"]), ("fail", "Out of paper", [])])
async def test_a_replay_equals_the_agents_answers(
    recordings: Path, tmp_path: Path, protocol: str, name: str, text: str, answers: Sequence[Any]
) -> None:
    agents = {name: getattr(demo, name), "again": Recorded(read_recording(recordings / f"{name}.json"))}
    async with asyncio.timeout(BOUND), running(tmp_path, agents) as gateway:
        itself = await converse(gateway.url, name, protocol, text, *answers)
        again = await converse(gateway.url, "again", protocol, text, *answers)
    assert again == itself
    assert len(itself) >= 2


DESK = """
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt


def agent(state):
    if state["messages"][-1].type == "tool":
        return {"messages": [AIMessage("Done.")]}
    call = {"name": "refund", "args": {}, "id": "c1"}
    return {"messages": [AIMessage("Let me check.", tool_calls=[call])]}


def tools(state):
    answer = interrupt("Refund?")
    return {"messages": [ToolMessage(f"refunded: {answer}", tool_call_id="c1")]}


builder = StateGraph(MessagesState).add_node("agent", agent).add_node("tools", tools)
builder.add_edge(START, "agent").add_edge("tools", "agent")
builder.add_conditional_edges("agent", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__")
graph = builder.compile()
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("desk")
    (folder / "desk.py").write_text(DESK, encoding="utf-8")
    done = babelgate(folder, "record", "desk:graph", "Hi", "--answer", "yes", "--out", "desk.json")
    assert done.returncode == 0, done.stderr
    return read_recording(folder / "desk.json")


@pytest.mark.parametrize("protocol", ["acp", "a2a", "aief", "langgraph", "agent-protocol", "openai"])
async def test_the_answer_to_a_recorded_graph_continues_the_replay(
    desk: Recording, tmp_path: Path, protocol: str
) -> None:
    async with asyncio.timeout(BOUND), running(tmp_path, {"again": Recorded(desk)}) as gateway:
        outputs = await converse(gateway.url, "again", protocol, "Hi", "yes")
    answer = "".join(each.text for each in outputs if isinstance(each, TextPiece))
    assert answer.removesuffix("\n").endswith("Done.")
    assert [each.text for each in outputs if isinstance(each, OpenQuestion)] == ["Refund?"]


async def test_a_recorded_graph_uses_only_the_new_ids(desk: Recording, tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND), running(tmp_path, {"again": Recorded(desk)}) as gateway:
        thread_id = (await gateway.http.post("/threads", json={})).json()["thread_id"]
        body = {"assistant_id": "again", "input": {"messages": [{"role": "user", "content": "Hi"}]}}
        waited = (await gateway.http.post(f"/threads/{thread_id}/runs/wait", json=body)).json()
        (question,) = waited["__interrupt__"]
        assert re.fullmatch("[0-9a-f]{32}", question["id"]), "answers use ids in LangGraph's form"
        command = {"resume": {question["id"]: "yes"}}
        body = {"assistant_id": "again", "command": command, "stream_mode": ["checkpoints", "values"]}
        stream = (await gateway.http.post(f"/threads/{thread_id}/runs/stream", json=body)).text
    events = [each.event for run in desk.runs for each in run.events]
    recorded = {event.interrupt_id for event in events if isinstance(event, InterruptRaised)}
    assert question["id"] in stream
    assert not any(each is not None and each in stream for each in recorded)


@pytest.mark.parametrize("protocol", ["acp", "a2a"])
async def test_files_are_replayed_byte_for_byte(recordings: Path, tmp_path: Path, protocol: str) -> None:
    recording = read_recording(recordings / "files.json")
    async with asyncio.timeout(BOUND), running(tmp_path, {"again": Recorded(recording)}) as gateway:
        outputs = await converse(gateway.url, "again", protocol, "whatever")
        if protocol == "acp":
            body: Any = {"agent_name": "again", "input": [{"role": "user", "parts": [{"content": "x"}]}]}
            response = (await gateway.http.post("/acp/runs", json={**body, "mode": "sync"})).text
        else:
            message = {"messageId": "1", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "x"}]}
            body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
            response = (await gateway.http.post("/a2a/again", json=body)).text
    assert outputs == [ProgressNote("file data.bin"), ProgressNote("file report.txt")]
    assert base64.b64encode(b"\x00\xff" * 1000).decode() in response


async def test_two_questions_at_once_are_replayed_with_their_schemas(recordings: Path, tmp_path: Path) -> None:
    agents = {"approve": demo.approve, "again": Recorded(read_recording(recordings / "approve.json"))}
    answers = [{"approved": True}, {"approved": False}]
    async with asyncio.timeout(BOUND), running(tmp_path, agents) as gateway:
        itself = await converse(gateway.url, "approve", "langgraph", "Go", *answers)
        again = await converse(gateway.url, "again", "langgraph", "Go", *answers)
    assert again == itself
    assert sum(isinstance(each, OpenQuestion) for each in again) == 2


def test_a_recording_holds_the_events_with_their_times(recordings: Path) -> None:
    recording = json.loads((recordings / "ask.json").read_text(encoding="utf-8"))
    first, second = recording["runs"]
    assert (first["cause"], second["cause"]) == ("input", "answer")
    kinds = [each["event"]["kind"] for each in second["events"]]
    assert (kinds[0], kinds[-1]) == ("message_started", "run_ended")
    times = [each["at"] for each in second["events"]]
    assert times == sorted(times) and times[0] >= 0


def test_replay_serves_a_file_and_runs_call_it(recordings: Path, tmp_path: Path) -> None:
    with served(tmp_path, str(recordings / "ask.json"), "--name", "again", command="replay") as gateway:
        for protocol in ("acp", "a2a"):
            done = babelgate(tmp_path, "run", "again", "Hi", "--url", gateway.url, "--as", protocol, stdin="Bob\n")
            assert (done.returncode, done.stdout) == (0, "Hello, Ada.\n"), done.stderr
        assert gateway.stop() == ""


def test_a_key_repeated_by_an_agent_is_not_recorded(tmp_path: Path) -> None:
    with served(tmp_path) as gateway:
        target = f"{gateway.url}/acp#echo"
        headers = ("--header", "X-Key: Token k3y-of-mine", "--header", "X-Mode: text")
        code, errors = command(tmp_path, "record", target, "mine is k3y-of-mine", *headers, "--out", "run.json")
    assert code == 0, errors
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert "k3y-of-mine" not in text
    assert json.dumps(json.loads(text)["runs"]).count("mine is [redacted]") == 2, "the input and the answer"
    assert "mine is [redacted]" in json.dumps(json.loads(text)["wire"])
    assert len(read_recording(tmp_path / "run.json").runs) == 1, "a header's value may equal a word of the format"


def test_exchanges_of_both_sides_are_recorded(tmp_path: Path) -> None:
    with served(tmp_path, BABELGATE_KEYS='{"alice": "k3y-of-mine"}') as gateway:
        headers = ("--header", "Authorization: Bearer k3y-of-mine", "--answer", "Ada k3y-of-mine")
        code, errors = command(
            tmp_path, "record", f"{gateway.url}/acp#ask", "Hi", *headers, "--as", "a2a", "--out", "run.json"
        )
    assert code == 0, errors
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert "k3y-of-mine" not in text
    exchanges = json.loads(text)["wire"]["exchanges"]
    callers, agents = ([each for each in exchanges if each["side"] == side] for side in ("caller", "agent"))
    assert [json.loads(each["body"])["method"] for each in callers if each["body"]] == ["SendStreamingMessage"] * 2
    runs = [each for each in agents if not each["url"].startswith(f"{gateway.url}/acp/agents/")]
    assert [each["url"].startswith(f"{gateway.url}/acp/runs") for each in runs] == [True, True]
    assert "run.awaiting" in runs[0]["answer"]["events"][-1]["text"]
    assert "TASK_STATE_COMPLETED" in callers[-1]["answer"]["events"][-1]["text"]
    assert len(read_recording(tmp_path / "run.json").runs) == 2


@pytest.mark.parametrize("protocol", ["acp", "a2a", "aief", "langgraph"])
def test_every_protocol_records_the_same_events(recordings: Path, tmp_path: Path, protocol: str) -> None:
    arguments = ("ask", "Hi", "--answer", "Ada")
    code, errors = command(tmp_path, "record", *arguments, "--as", protocol, "--out", "run.json")
    assert code == 0, errors
    recording = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    direct = json.loads((recordings / "ask.json").read_text(encoding="utf-8"))
    assert [_kinds(run) for run in recording["runs"]] == [_kinds(run) for run in direct["runs"]]
    assert {each["side"] for each in recording["wire"]["exchanges"]} == {"caller"}
    assert direct["wire"] == {"exchanges": []}


def _kinds(run: Any) -> list[str]:
    return [each["event"]["kind"] for each in run["events"]]


def test_a_file_of_the_first_format_is_read(recordings: Path, tmp_path: Path) -> None:
    recording = json.loads((recordings / "ask.json").read_text(encoding="utf-8"))
    del recording["wire"]
    (tmp_path / "old.json").write_text(json.dumps({**recording, "format": 1}), encoding="utf-8")
    assert read_recording(tmp_path / "old.json").runs == read_recording(recordings / "ask.json").runs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("record", "nope", "Hi", "--out", "a.json"), "nope: expected a URL, module:name or a configured agent"),
        (("record", "echo", "Hi", "--out", "no/a.json"), "--out no/a.json: there is no such folder"),
        (("record", "echo", "Hi", "--file", "gone", "--out", "a.json"), "--file gone: it cannot be read"),
        (("record", "approve", "Hi", "--answer", "maybe", "--out", "a.json"), "--answer maybe: May I write the file?"),
        (("replay", "gone.json"), "gone.json: it cannot be read"),
        (("replay", "newer.json"), "newer.json: a newer version has written it"),
        (("replay", "ask.json", "--name", "A B"), "--name A B: not a valid name for an agent"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(
    recordings: Path, tmp_path: Path, arguments: Sequence[str], words: str
) -> None:
    text = (recordings / "ask.json").read_text(encoding="utf-8")
    (tmp_path / "ask.json").write_text(text, encoding="utf-8")
    (tmp_path / "newer.json").write_text(text.replace('"format": 2', '"format": 99'), encoding="utf-8")
    code, errors = command(tmp_path, *arguments)
    assert (code, len(errors.splitlines())) == (2, 1), errors
    assert words in errors
    assert not (tmp_path / "a.json").exists()
