"""Additions of frameworks to A2A are read as events: thoughts, tool calls, citations, usage and answers."""

from typing import Any

import pytest

from babelgate.adapters.a2a.codec.marks import decode_marks
from babelgate.adapters.a2a.read.run_state import Habits
from babelgate.adapters.a2a.read.task_events import EventReader
from babelgate.adapters.a2a.read.usage import add_usage, usage_of_message, usage_of_task
from babelgate.canonical import AnnotationPart, DataPart, Event, Fault, ReasoningPart, RunStatus, TextPart
from babelgate.canonical.event import (
    Custom,
    LossNoted,
    MessageStarted,
    Native,
    PartDelta,
    RunEnded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.value import Json, JsonObject
from babelgate.conformance.contract import Transcript
from tests.adapters.a2a.recorded import recorded
from tests.adapters.a2a.replies import RUN, artifact, resumed, text, transcript_of

CITED = AnnotationPart(start=0, end=5, url="https://e.org/a", title="A")


def read(*replies: Any, reader: EventReader | None = None, in_status: bool = False) -> list[Event]:
    """Return the events of the replies, until the task stops. `in_status` is True if the server sends its answers in
    status messages. It is ignored if a `reader` is passed."""
    reader = reader or EventReader(RUN, Habits(answers_in_status=in_status))
    events: list[Event] = []
    for reply in replies:
        if not reader.is_stopped:
            events += reader.read(reply)
    return [*events, *reader.close()] if reader.replied and not reader.is_stopped else events


def fault_in(*replies: Any) -> Fault:
    """Return the fault of a run whose server sends these replies."""
    [*_, ended] = read(*replies)
    assert isinstance(ended, RunEnded) and ended.fault is not None
    return ended.fault


def thoughts(transcript: Transcript) -> list[str]:
    return [part.text for message in transcript.messages for part in message.parts if isinstance(part, ReasoningPart)]


def tools(events: list[Event]) -> list[tuple[str, Any, Any]]:
    """Return a triple for each tool event: the tool's name, `in` for a start or `out` for an end, and the arguments or
    the result."""
    uses: list[tuple[str, Any, Any]] = []
    for event in events:
        match event:
            case ToolStarted():
                uses.append((event.name, "in", event.input))
            case ToolEnded():
                uses.append((event.name, "out", event.output))
            case _:
                pass
    return uses


def texts_with_phases(transcript: Transcript) -> list[tuple[str, str]]:
    return [(message.text, message.phase) for message in transcript.messages if message.text]


def citations(transcript: Transcript) -> list[AnnotationPart]:
    return [part for message in transcript.messages for part in message.parts if isinstance(part, AnnotationPart)]


def usage(events: list[Event]) -> JsonObject:
    return next(event.usage for event in events if isinstance(event, RunEnded))


def working(
    *parts: Any, message_id: str = "m", beside: JsonObject | None = None, metadata: JsonObject | None = None
) -> JsonObject:
    message = {"messageId": message_id, "role": "ROLE_AGENT", "parts": list(parts), "metadata": metadata or {}}
    status = {"state": "TASK_STATE_WORKING", "message": message}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status, "metadata": beside or {}}}


def completed(**metadata: Any) -> JsonObject:
    status = {"state": "TASK_STATE_COMPLETED"}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status, "metadata": metadata}}


def read_in_two(replies: list[Any], cut: int) -> list[Event]:
    """Return the events of a run that breaks after `cut` replies and is resumed."""
    first = read(*replies[:cut])
    return [*first, *read(*replies[cut:], completed(), reader=resumed(first))]


# Recorded streams


WEATHER = ("weather", "in", {"city": "Rome"})
ADK_CALLS = [
    ("code_execution", "in", {"code": "print(1)", "language": "PYTHON"}),
    ("code_execution", "out", {"output": "1\n", "outcome": "OUTCOME_OK"}),
    WEATHER,
    ("weather", "out", {"temp": 21.0}),
]


@pytest.mark.parametrize(
    ("name", "answer", "calls", "cited"),
    [
        ("adk_weather", "It is sunny.", ADK_CALLS, [CITED]),
        ("adk_new_weather", "It is sunny.", ADK_CALLS, [CITED]),
        ("agentstack", "It is sunny.", [WEATHER], [CITED.replace(description="d")]),
        ("kagenti", "It is sunny.Bye.", [WEATHER], [CITED]),
        ("kagenti_streaming", "It is sunny.Bye.", [WEATHER], [CITED]),
        ("agno", "It is sunny.", [WEATHER, ("weather", "out", None)], []),
    ],
)
def test_recorded_stream_has_answer_thought_calls_and_citations(
    name: str, answer: str, calls: list[Any], cited: list[AnnotationPart]
) -> None:
    events = read(*recorded(name), in_status=name == "agentstack")
    transcript = transcript_of(events)
    assert (texts_with_phases(transcript), thoughts(transcript)) == ([(answer, "answer")], ["I should look."])
    assert (tools(events), citations(transcript)) == (calls, cited)
    if name == "agentstack":
        [message] = [message for message in transcript.messages if message.text]
        assert DataPart(data={"k": 1}) in message.parts
    if name.startswith("adk"):
        assert usage(events) == {
            "input_tokens": 22,
            "output_tokens": 14,
            "total_tokens": 42,
            "output_tokens_details": {"reasoning_tokens": 6},
        }


def test_polled_adk_task_repeats_no_tool_calls() -> None:
    replies = recorded("adk_new_weather")
    artifacts = [each["artifactUpdate"]["artifact"] for each in replies if "artifactUpdate" in each]
    task: Any = {"id": replies[0]["task"]["id"], "status": {"state": "TASK_STATE_WORKING"}, "artifacts": artifacts}
    reader = EventReader(RUN)
    first = read(*replies[:-1], reader=reader)
    assert not read({"task": task}, reader=reader)
    again = resumed(transcript_of(first).events)
    assert not [event for event in again.read({"task": task}) if isinstance(event, ToolStarted | ToolEnded)]


def test_unconfirmed_adk_tool_is_a_refused_call() -> None:
    for name in ("adk_confirm", "adk_new_confirm"):
        events = read(*recorded(name))
        assert [each[:2] for each in tools(events)] == [("wipe", "in"), ("wipe", "out")], name
        [ended] = [event for event in events if isinstance(event, ToolEnded)]
        assert ended.fault is not None
        assert ended.fault.message.startswith("This tool call requires confirmation")


def test_progress_is_the_answer_of_a_task_without_one() -> None:
    transcript = transcript_of(read(*recorded("agentstack")))
    assert texts_with_phases(transcript) == [("It is ", "progress"), ("sunny.", "progress"), ("It is sunny.", "answer")]
    assert citations(transcript) == [CITED.replace(description="d")]
    lines = transcript_of(read(working({"text": "Looking."}), working({"text": "42"}, message_id="n"), completed()))
    assert lines.text == "Looking.\n42"
    grown = transcript_of(read(working({"text": "4"}), working({"text": "42"}, message_id="n"), completed()))
    assert grown.text == "42"


@pytest.mark.parametrize("is_cut", [False, True])
def test_answer_from_progress_has_one_line_per_message(is_cut: bool) -> None:
    first = [
        working({"text": "It is "}, {"text": "sunny."}, message_id="m1"),
        working({"text": "So."}, message_id="m2"),
    ]
    events = read(*first)
    reader = EventReader(RUN)
    if is_cut:
        reader = resumed(events)
    else:
        events = read(*first, reader=reader)
    assert texts_with_phases(transcript_of([*events, *reader.read(completed())]))[-1] == ("It is sunny.\nSo.", "answer")


TRAJECTORY = "https://a2a-extensions.agentstack.beeai.dev/ui/trajectory/v1"


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize(
    "marked",
    [
        working(message_id="p", metadata={TRAJECTORY: {"title": "plan", "content": "Look it up."}}),
        working({"text": "Waiting."}, message_id="p", beside={"coderAgent": {"kind": "state-change"}}),
    ],
)
@pytest.mark.parametrize("answer", ["", "42"])
def test_declared_progress_is_never_the_answer(answer: str, marked: JsonObject, is_cut: bool) -> None:
    before = [marked, *([working({"text": answer}, message_id="n")] if answer else [])]
    reader = EventReader(RUN)
    events = read(*before, reader=reader)
    assert texts_with_phases(transcript_of(events))[0][1] == "progress"
    if is_cut:
        reader = resumed(events)
    transcript = transcript_of([*events, *reader.read(completed())])
    assert [text for text, phase in texts_with_phases(transcript) if phase == "answer"] == ([answer] if answer else [])


def test_progress_of_a_gateway_is_not_the_answer() -> None:
    about = {"babelgate": {"taskId": "k"}}
    assert transcript_of(read(working({"text": "Looking."}), completed(**about))).text == ""


def test_agno_usage_is_read_after_the_final_status() -> None:
    *replies, end, task = recorded("agno")
    metrics = {"metrics": {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}}
    counted: Any = {**task, "history": [{**task["history"][0], "metadata": metrics}]}
    reader = EventReader(RUN)
    events = [event for reply in (*replies, end) for event in reader.read(reply)]
    assert not reader.is_stopped
    events += reader.read(counted)
    assert reader.is_stopped
    assert events[-1] == RunEnded(usage=metrics["metrics"])
    assert texts_with_phases(transcript_of(events)) == [("It is sunny.", "answer")]


def test_agno_stream_may_break_after_the_final_status() -> None:
    reader = EventReader(RUN)
    events = [event for reply in recorded("agno")[:-1] for event in reader.read(reply)] + reader.close()
    assert reader.is_stopped and texts_with_phases(transcript_of(events)) == [("It is sunny.", "answer")]
    assert reader.close() == []


@pytest.mark.parametrize("count", range(1, 10))
def test_answer_in_the_status_is_resumed_after_a_break(count: int) -> None:
    replies = recorded("agentstack")
    first = read(*replies[:count], in_status=True)
    again = resumed(first, EventReader(RUN, Habits(answers_in_status=True)))
    history = [each["status"]["message"] for each in replies if "message" in each.get("status", {})]
    task: Any = {"id": replies[0]["taskId"], "kind": "task", "status": {"state": "working"}, "history": history}
    rest = again.read(task) + again.read(replies[-1])
    whole = transcript_of([*first, *rest])
    assert "".join(text for text, _ in texts_with_phases(whole)) == "It is sunny."
    assert (thoughts(whole), len(tools([*first, *rest]))) == (["I should look."], 1)


def langgraph() -> EventReader:
    return EventReader(RUN, Habits(repeats_answer=True))


GROWING_ANSWER = ("Let me look.", "It", "It is ", "It is sunny.", "It is sunny.")


@pytest.mark.parametrize("cut", range(len(GROWING_ANSWER) + 1))
def test_repeated_langgraph_answer_is_read_as_tokens(cut: int) -> None:
    replies = [working({"text": text}, message_id=f"m{at}") for at, text in enumerate(GROWING_ANSWER)]
    first = read(*replies[:cut], reader=langgraph())
    end = artifact(text("It is sunny. So there."), name="Assistant Response", lastChunk=True)
    events = [*first, *read(*replies[cut:], end, completed(), reader=resumed(first, langgraph()))]
    assert texts_with_phases(transcript_of(events)) == [
        ("Let me look.", "answer"),
        ("It is sunny. So there.", "answer"),
    ]
    deltas = [event.text for event in events if isinstance(event, PartDelta)]
    assert deltas == [" is ", "sunny.", " So there."]
    assert not [event for event in events if isinstance(event, Native)]


def test_different_final_langgraph_answer_is_a_second_answer() -> None:
    end = artifact(text("It rains."), lastChunk=True)
    events = read(working({"text": "It is sunny."}), end, completed(), reader=langgraph())
    assert texts_with_phases(transcript_of(events)) == [("It is sunny.", "answer"), ("It rains.", "answer")]


# Marks without a recording


@pytest.mark.parametrize("kind", ["workflow_step", "loop_execution", "parallel_execution", "router_execution"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_agno_workflow_steps_start_and_end(kind: str, is_cut: bool) -> None:
    def step(what: str) -> JsonObject:
        beside = {"agno_event_type": f"{kind}_{what}", "step_name": "look"}
        status = {"state": "TASK_STATE_WORKING"}
        return {"statusUpdate": {"taskId": "t", "status": status, "metadata": beside}}

    reader = EventReader(RUN)
    events = read(step("started"), reader=reader)
    if is_cut:
        reader = resumed(events)
    events += read(step("error"), step("completed"), reader=reader)
    assert steps(events) == ["look", "/look"]
    transcript_of(events)


def test_gemini_cli_status_is_read_by_its_kind() -> None:
    call = {"request": {"callId": "c1", "name": "ls", "args": {"p": "."}}, "status": "executing"}
    done = {**call, "status": "success", "response": {"files": 1}}

    def of(kind: str, part: JsonObject, at: int) -> JsonObject:
        return working(part, message_id=f"m{at}", beside={"coderAgent": {"kind": kind}})

    events = read(
        of("thought", {"data": {"subject": "Look", "description": "There may be files."}}, 1),
        of("tool-call-update", {"data": call}, 2),
        of("tool-call-update", {"data": done}, 3),
        of("text-content", {"text": "There is "}, 4),
        of("text-content", {"text": "one."}, 5),
        of("citation", {"text": "Citations:\n(A page) https://e.org/a\nhttps://e.org/b"}, 6),
        completed(coderAgent={"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2}}),
    )
    transcript = transcript_of(events)
    assert texts_with_phases(transcript) == [("There is one.", "answer")]
    assert citations(transcript) == [
        AnnotationPart(url="https://e.org/a", title="A page"),
        AnnotationPart(url="https://e.org/b"),
    ]
    assert thoughts(transcript) == ["Look: There may be files."]
    assert tools(events) == [("ls", "in", {"p": "."}), ("ls", "out", {"files": 1})]
    assert usage(events) == {"input_tokens": 3, "output_tokens": 2}


def test_opencode_blocks_are_read_by_their_type() -> None:
    def block(kind: str, part: JsonObject) -> JsonObject:
        return artifact(part, artifact_id=kind, metadata={"shared": {"stream": {"block_type": kind}}})

    call: JsonObject = {"call_id": "c", "tool": "ls", "status": "running", "input": {}}
    events = read(
        block("reasoning", {"text": "Hm."}),
        block("tool_call", {"data": call}),
        block("tool_call", {"data": {**call, "status": "error", "error": "no"}}),
        block("text", {"text": "Hi"}),
        completed(shared={"usage": {"input_tokens": 1, "total_tokens": 2}}),
    )
    transcript = transcript_of(events)
    assert (texts_with_phases(transcript), thoughts(transcript)) == ([("Hi", "answer")], ["Hm."])
    assert tools(events) == [("ls", "in", {}), ("ls", "out", None)]
    assert usage(events) == {"input_tokens": 1, "total_tokens": 2}


def test_thought_in_pieces_is_not_repeated_by_the_whole() -> None:
    def thought(words: str, **more: Any) -> JsonObject:
        return {"text": words, "metadata": {"adk_thought": True, **more}}

    events = read(
        artifact(thought("I should "), append=False),
        artifact(thought("look.", adk_thought_signature="AQI="), append=True),
        artifact(text("Sun"), append=True),
        artifact(thought("I should look."), text("Sunny."), append=False, lastChunk=True),
        completed(),
    )
    transcript = transcript_of(events)
    assert (texts_with_phases(transcript), thoughts(transcript)) == ([("Sunny.", "answer")], ["I should look."])


def test_fasta2a_thinking_in_the_history_is_a_thought() -> None:
    history = [
        {"messageId": "1", "role": "user", "parts": [{"text": "Hi"}]},
        {
            "messageId": "2",
            "role": "agent",
            "parts": [{"text": "Hm.", "metadata": {"type": "thinking"}}, {"text": "Hi"}],
        },
    ]
    artifacts = [{"artifactId": "a", "parts": [{"text": "Hi"}]}]
    task = {"id": "t", "status": {"state": "completed"}, "history": history, "artifacts": artifacts}
    transcript = transcript_of(read({"task": task}))
    assert (texts_with_phases(transcript), thoughts(transcript)) == ([("Hi", "answer")], ["Hm."])


KAGENT_PART = "kagent.dev/a2a/part-type"
NO = {"isError": True, "result": "no"}
FAILED = {"outcome": "OUTCOME_FAILED", "output": ""}
_USES: Any = [
    ({"type": "tool-call", "id": "c", "name": "f", "arguments": {}}, {}, ("f", False, {}, None)),
    ({"type": "tool-result", "toolCallId": "c", "payload": 1}, {}, ("", True, 1, None)),
    (
        {"tool_results": [{"toolCallId": "c", "name": "f", "content": "x", "status": "error"}]},
        {},
        ("f", True, "x", "x"),
    ),
    ({"id": "c", "name": "f", "args": {}}, {"kagent_type": "function_call"}, ("f", False, {}, None)),
    ({"id": "c", "tool_type": "web", "args": {}}, {"adk_type": "tool_call"}, ("web", False, {}, None)),
    (
        {"id": "c", "tool_type": "web", "response": {"n": 1}},
        {"adk_type": "tool_response"},
        ("web", True, {"n": 1}, None),
    ),
    (
        {"id": "c", "name": "f", "response": {"error": "no"}},
        {"adk_type": "function_response"},
        ("f", True, {"error": "no"}, "no"),
    ),
    (FAILED, {"adk_type": "code_execution_result"}, ("code_execution", True, FAILED, "OUTCOME_FAILED")),
    ({"id": "c", "name": "f", "response": NO}, {KAGENT_PART: "function_response"}, ("f", True, NO, "no")),
]


@pytest.mark.parametrize(("part", "metadata", "expected"), _USES)
def test_tool_calls_are_recognized_by_their_marks(
    part: JsonObject, metadata: JsonObject, expected: tuple[Any, ...]
) -> None:
    [use] = decode_marks([DataPart(data=part, metadata=metadata)], "s").tools
    assert (use.name, use.ended, use.value, use.error) == expected


@pytest.mark.parametrize(
    "mark",
    [{"adk_thought": True}, {"kagent_thought": True}, {"thought": True}, {"type": "thinking"}, {"type": "reasoning"}],
)
@pytest.mark.parametrize("beside", [{}, {"adk_thought_signature": "AQI="}, {"thinking_id": "t", "signature": "s"}])
def test_marked_text_is_a_thought_with_its_signature(mark: JsonObject, beside: JsonObject) -> None:
    [part] = decode_marks([TextPart(text="Hm.", metadata={**mark, **beside})], "s").parts
    assert part == ReasoningPart(text="Hm.", metadata=beside)


@pytest.mark.parametrize(
    "mark",
    [{"adk_thought": False}, {"kagent_thought": "no"}, {"thought": "yes"}, {"type": "text"}, {"x_thought": True}],
)
def test_text_with_other_marks_is_not_a_thought(mark: JsonObject) -> None:
    part = TextPart(text="Hm.", metadata=mark)
    assert decode_marks([part], "s").parts == [part]


TRACE = "github.com/a2aproject/a2a-samples/extensions/traceability/v1/traceability"


@pytest.mark.parametrize("key", [TRACE, f"https://{TRACE.removesuffix('/traceability')}"])
def test_trace_steps_are_tool_calls_with_usage(key: str) -> None:
    def step(number: int, kind: str, action: JsonObject, **more: Any) -> JsonObject:
        ids = {"step_id": f"s{number}", "trace_id": "t", "parent_step_id": None}
        return {**ids, "call_type": kind, "step_action": action, "total_tokens": 4.0, "end_time": "2026-01-01", **more}

    agent: JsonObject = {"agent_name": "cook", "agent_url": "https://e.org", "requests": {"dish": "soup"}}
    steps: list[Json] = [
        step(1, "TOOL", {"tool_invocation": {"tool_name": "f", "parameters": {"a": 1}}}),
        step(2, "AGENT", {"agent_invocation": agent}, end_time=None),
        step(3, "TOOL", {"tool_invocation": {}}, total_tokens="many"),
        7,
    ]
    answer = {
        "messageId": "m",
        "role": "agent",
        "parts": [{"text": "Soup."}],
        "metadata": {key: {"trace_id": "t", "steps": steps}},
    }
    status = {"state": "completed", "message": answer}
    events = read({"kind": "status-update", "taskId": "t", "contextId": "c", "status": status})
    assert tools(events) == [("f", "in", {"a": 1}), ("f", "out", None), ("cook", "in", agent)]
    assert texts_with_phases(transcript_of(events)) == [("Soup.", "answer")]
    assert usage(events) == {"total_tokens": 8}
    [begun] = [event for event in events if isinstance(event, MessageStarted)]
    assert begun.metadata == answer["metadata"]


def test_trace_is_ignored_if_calls_and_usage_are_marked() -> None:
    step: JsonObject = {
        "step_id": "s",
        "step_action": {"tool_invocation": {"tool_name": "f", "parameters": {}}},
        "total_tokens": 4,
    }
    call: JsonObject = {"data": {"id": "c", "name": "f", "args": {}}, "metadata": {"adk_type": "function_call"}}
    metadata: JsonObject = {TRACE: {"steps": [step]}, "adk_usage_metadata": {"promptTokenCount": 3}}
    events = read(working(call, metadata=metadata), completed())
    assert tools(events) == [("f", "in", {})]
    assert usage(events) == {"input_tokens": 3}


def steps(events: list[Event]) -> list[str]:
    """Return the names of started steps, and those of ended steps after a slash."""
    return [
        event.name if isinstance(event, StepStarted) else f"/{event.name}"
        for event in events
        if isinstance(event, StepStarted | StepEnded)
    ]


def author(name: str, number: int, branch: str | None = None, *, in_artifact: bool = False) -> JsonObject:
    """Return a reply in which the inner agent `name` of google-adk 2.13.0 writes. It is a status of the older executor
    or, with `in_artifact`, an artifact update of the newer one."""
    names: JsonObject = {"adk_author": name, "adk_branch": branch} if branch else {"adk_author": name}
    app: JsonObject = {"adk_app_name": "demo"}
    if not in_artifact:
        return working(
            {"text": f"By {name}."}, message_id=f"m{number}", beside={**app, **names, "adk_event_id": f"e{number}"}
        )
    update = artifact(text(f"By {name}."), artifact_id=f"a{number}", metadata=names, lastChunk=True)
    update["artifactUpdate"]["metadata"] = app
    return update


@pytest.mark.parametrize("in_artifact", [False, True])
@pytest.mark.parametrize("cut", range(6))
def test_each_inner_adk_agent_is_a_step(in_artifact: bool, cut: int) -> None:
    names = ["demo", "cook", "cook", "waiter", "demo", "cook"]
    replies = [author(name, at, in_artifact=in_artifact) for at, name in enumerate(names)]
    events = read_in_two(replies, cut)
    assert steps(events) == ["cook", "/cook", "waiter", "/waiter", "cook"]
    ids = [event.step_id for event in events if isinstance(event, StepStarted)]
    assert len({*ids}) == 3
    transcript_of(events)


def test_parallel_adk_agents_are_concurrent_steps() -> None:
    branches = [("plan", None), ("a", "both.a"), ("b", "both.b"), ("a", "both.a"), ("c", "both.a.c"), ("demo", None)]
    events = read(*(author(name, at, branch, in_artifact=True) for at, (name, branch) in enumerate(branches)))
    assert steps(events) == ["plan", "/plan", "a", "b", "/a", "c", "/b", "/c"]


def test_single_adk_agent_has_no_steps() -> None:
    for name in ("adk_weather", "adk_new_weather"):
        assert steps(read(*recorded(name))) == []
    assert steps(read(author("user", 1), {"statusUpdate": {"taskId": "t", "status": {"state": "working"}}})) == []


def test_steps_of_a_gateway_come_only_from_its_events() -> None:
    task: JsonObject = {"id": "t", "status": {"state": "working"}, "metadata": {"babelgate": {"taskId": "k"}}}
    event: JsonObject = {"event": {"kind": "step_started", "step_id": "s", "name": "cook"}}
    status = {"state": "TASK_STATE_WORKING"}
    update = {"statusUpdate": {"taskId": "t", "status": status, "metadata": {"babelgate": event}}}
    metadata: JsonObject = {"agno_event_type": "loop_execution_started", "step_name": "look"}
    agno = {"statusUpdate": {"taskId": "t", "status": status, "metadata": metadata}}
    group: JsonObject = {"title": "Plan", "content": "Look", "group_id": "g"}
    grouped = working(message_id="g", metadata={TRAJECTORY: group})
    assert steps(read({"task": task}, author("cook", 1), update, agno, grouped)) == ["cook"]


@pytest.mark.parametrize("cut", range(4))
def test_trajectories_of_one_group_are_in_one_step(cut: int) -> None:
    entries = [("Planning", "Look", "g1"), ("Planning", "it up", "g1"), ("", "Other", "g2"), ("thought", "Hm.", "g3")]
    replies = [
        working(message_id=f"m{number}", metadata={TRAJECTORY: {"title": title, "content": content, "group_id": group}})
        for number, (title, content, group) in enumerate(entries)
    ]
    events = read_in_two(replies, cut)
    assert steps(events) == ["Planning", "g2"]
    assert [text for text, _ in texts_with_phases(transcript_of(events))] == [
        "Planning: Look",
        "Planning: it up",
        "Other",
    ]


def test_protolabs_and_beeai_tools_are_read_from_metadata() -> None:
    key = "https://proto-labs.ai/a2a/ext/tool-call-v1"
    events = read(
        working(metadata={key: {"toolCallId": "c", "name": "f", "phase": "start", "args": {"a": 1}}}),
        working(message_id="n", metadata={key: {"toolCallId": "c", "name": "f", "phase": "end", "result": 2}}),
    )
    assert tools(events) == [("f", "in", {"a": 1}), ("f", "out", 2)]
    path = "https://a2a-extensions.beeai.dev/ui/trajectory/v1"
    titles = ["--> g (request)", "<-- g (error)", "Planning"]
    steps = [
        working(message_id=str(number), metadata={path: {"title": each, "content": "x"}})
        for number, each in enumerate(titles)
    ]
    beeai_events = read(*steps)
    assert tools(beeai_events) == [("g", "in", "x"), ("g", "out", None)]
    assert texts_with_phases(transcript_of(beeai_events)) == [("Planning: x", "progress")]


def test_byte_offsets_become_character_offsets_of_the_message() -> None:
    segment = {"startIndex": 3.0, "endIndex": 8.0, "partIndex": 1}
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://e.org/a", "title": "A"}}],
        "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0.0, 7]}, {"segment": {"partIndex": 9}}],
    }
    texts = [TextPart(text="äö "), TextPart(text="é sunny")]
    [place] = decode_marks(texts, "s", {"adk_grounding_metadata": grounding}).citations
    assert (place.start, place.end) == (5, 10)
    assert "äö é sunny"[5:10] == "sunny"


def test_adk_citations_are_read_without_a_grounding() -> None:
    cited: JsonObject = {"startIndex": 0.0, "endIndex": 5.0, "uri": "https://e.org/a", "title": "A", "license": "MIT"}
    decoded = decode_marks([TextPart(text="It is sunny.")], "s", {"adk_citation_metadata": {"citations": [cited, 7]}})
    assert decoded.citations == [CITED]


def test_usage_of_the_task_overrides_that_of_messages() -> None:
    metadata = {
        "https://kagent.dev/extensions/usage/v1": {"inputTokens": 11.0, "outputTokens": 7, "cachedInputTokens": 2}
    }
    expected = {"input_tokens": 11, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 2}}
    assert usage_of_task(metadata) == expected
    cost = {"https://proto-labs.ai/a2a/ext/cost-v1": {"usage": {"input_tokens": 1, "output_tokens": 2}, "costUsd": 1}}
    assert usage_of_task(cost) == {"input_tokens": 1, "output_tokens": 2}
    for key in ("adk_usage_metadata", "kagent.dev/a2a/usage", "kagent_usage_metadata"):
        assert usage_of_message({key: {"promptTokenCount": 1.0, "thoughtsTokenCount": 2}}) == {
            "input_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 2},
        }
    assert add_usage(expected, expected)["input_tokens_details"] == {"cached_tokens": 4}
    adk = {"adk_usage_metadata": {"promptTokenCount": 5}}
    events = read(working({"text": "x"}, metadata=adk), completed(**metadata))
    assert usage(events) == expected
    assert usage_of_message({"adk_usage_metadata": {"promptTokenCount": "5", "totalTokenCount": -1}}) == {}


@pytest.mark.parametrize(
    "metadata",
    [
        {"adk_grounding_metadata": 7, "adk_citation_metadata": [1]},
        {"coderAgent": "x", "shared": {"stream": 7}, "agno_event_type": 7, "agno_content_category": {}},
        {"https://x/ui/trajectory/v1": "x", "https://x/ui/citation/v1": {"citations": [{"start_index": "x"}]}},
        {"https://proto-labs.ai/a2a/ext/tool-call-v1": {"toolCallId": 1}},
    ],
)
def test_malformed_marks_are_ignored(metadata: JsonObject) -> None:
    decoded = decode_marks([TextPart(text="x"), DataPart(data={"n": 1}, metadata={"adk_type": 7})], "s", metadata)
    assert (decoded.tools, decoded.says, len(decoded.parts)) == ([], None, 2)


ERROR = "https://a2a-extensions.agentstack.beeai.dev/ui/error/v1"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"error": {"title": "ValueError", "message": "No such city"}}, "ValueError: No such city"),
        ({"error": {"message": "Two", "errors": [{"message": "one"}, {"message": "two"}]}}, "Two: one: two"),
        ("no error", "The agent failed and did not say why."),
    ],
)
def test_agentstack_failure_is_read_from_metadata(error: Any, words: str) -> None:
    message: JsonObject = {"messageId": "e", "role": "agent", "parts": [], "metadata": {ERROR: error}}
    update = {"kind": "status-update", "taskId": "t", "contextId": "c"}
    assert fault_in({**update, "status": {"state": "failed", "message": message}}).message == words


def test_adk_failure_keeps_its_error_code() -> None:
    message = {"messageId": "e", "role": "agent", "parts": [{"kind": "text", "text": "Blocked."}]}
    update = {"kind": "status-update", "taskId": "t", "contextId": "c", "metadata": {"adk_error_code": "SAFETY"}}
    fault = fault_in({**update, "status": {"state": "failed", "message": message}})
    assert (fault.message, fault.details) == ("Blocked.", {"error_code": "SAFETY"})


def test_agno_metrics_are_read_from_the_history() -> None:
    metrics = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5, "duration": 0.5}
    message = {"messageId": "a", "role": "agent", "parts": [{"kind": "text", "text": "Sunny."}]}
    history = [{**message, "metadata": {"metrics": metrics}}]
    task = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}, "history": history}
    assert usage(read(task)) == {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}


def test_unmarked_usage_is_read_from_tasks_and_messages() -> None:
    metadata = {"usage": {"prompt_tokens": 3.0, "completion_tokens": 2}}
    assert usage(read(completed(**metadata))) == {"input_tokens": 3, "output_tokens": 2}
    messages = [working({"text": "x"}, message_id=name, metadata=metadata) for name in ("m", "m", "n")]
    assert usage(read(*messages, completed())) == {"input_tokens": 6, "output_tokens": 4}
    assert usage(read(*messages, completed(usage={"input_tokens": 9}))) == {"input_tokens": 9}
    updates = [
        working({"text": "x"}, message_id=str(total), beside={"usage": {"total_tokens": total}}) for total in (4, 7)
    ]
    assert usage(read(*updates, completed())) == {"total_tokens": 7}
    last = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Hi"}], "metadata": metadata}
    status = {"state": "TASK_STATE_COMPLETED", "message": last}
    task = {"task": {"id": "t", "contextId": "c", "status": status, "history": [last]}}
    assert usage(read(task)) == {"input_tokens": 3, "output_tokens": 2}
    assert usage(read({"message": last})) == {"input_tokens": 3, "output_tokens": 2}


def test_malformed_usage_does_not_hide_other_usage() -> None:
    metadata = {"usage": "much", "https://kagent.dev/extensions/usage/v1": {"inputTokens": 1}}
    assert usage_of_task(metadata) == {"input_tokens": 1}
    assert usage_of_message({"usage": {"cost": 1}, "adk_usage_metadata": {"promptTokenCount": 2}}) == {
        "input_tokens": 2
    }


def test_usage_of_opencode_artifacts_is_cumulative() -> None:
    def block(artifact_id: str, total: int) -> JsonObject:
        return artifact(text("Hi"), artifact_id=artifact_id, metadata={"shared": {"usage": {"total_tokens": total}}})

    assert usage(read(block("x:reasoning", 3), block("x:text", 5), completed())) == {"total_tokens": 5}


def test_opencode_reasoning_artifact_is_a_thought() -> None:
    transcript = transcript_of(read(artifact(text("Hm."), artifact_id="x:reasoning"), completed()))
    assert (texts_with_phases(transcript), thoughts(transcript)) == ([], ["Hm."])


@pytest.mark.parametrize(
    ("progress", "words"),
    [("Reading", "Reading"), ({"type": "step-start", "status": "running"}, "step-start: running")],
)
def test_opencode_progress_is_progress(progress: Json, words: str) -> None:
    events = read(working(beside={"shared": {"progress": progress}}), completed())
    assert texts_with_phases(transcript_of(events)) == [(words, "progress")]
    assert (
        texts_with_phases(transcript_of(read(working(beside={"shared": {"progress": {"status": 7}}}), completed())))
        == []
    )


@pytest.mark.parametrize(
    ("phase", "more", "error"), [("completed", {}, None), ("failed", {}, "f failed"), ("end", {"error": "No."}, "No.")]
)
def test_protolabs_call_ends_by_its_phase(phase: str, more: JsonObject, error: str | None) -> None:
    key = "https://proto-labs.ai/a2a/ext/tool-call-v1"
    call = {"toolCallId": "c", "name": "f"}
    [use] = decode_marks([], "s", {key: {**call, "phase": phase, **more}}).tools
    assert (use.ended, use.error) == (True, error)
    assert decode_marks([], "s", {key: {**call, "phase": "progress"}}).tools == []


def test_cancelled_agno_run_ends_without_a_final_task() -> None:
    status = {"state": "TASK_STATE_CANCELED"}
    beside = {"agno_event_type": "run_cancelled", "reason": "enough"}
    [*_, ended] = read({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status, "metadata": beside}})
    assert isinstance(ended, RunEnded) and ended.status is RunStatus.CANCELLED


def test_failed_agno_call_has_its_error() -> None:
    call = {"agno_event_type": "tool_call_error", "tool_name": "f", "tool_call_id": "c"}
    errors = [decode_marks([], "s", {**call, **more}).tools[0].error for more in ({"error": "No."}, {})]
    assert errors == ["No.", "f failed"]


@pytest.mark.parametrize(
    "beside",
    [
        {"coderAgent": {"kind": "state-change", "error": "No quota."}},
        {"shared": {"error": {"message": "No quota."}}},
        {"agno_event_type": "run_error", "error": "No quota."},
    ],
)
def test_failure_without_a_message_uses_the_metadata(beside: JsonObject) -> None:
    update = {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_FAILED"}, "metadata": beside}
    assert fault_in({"statusUpdate": update}).message == "No quota."


WORLD = "https://proto-labs.ai/a2a/ext/worldstate-delta-v1"


def states(events: list[Event]) -> list[tuple[str, Json]]:
    return [(event.name, event.value) for event in events if isinstance(event, Custom)]


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize(
    ("metadata", "name", "value"),
    [
        ({"ag2.context_update": {"n": 1}}, "ag2.context_update", {"n": 1}),
        ({"adk_actions": {"stateDelta": {"n": 1}, "escalate": True}}, "adk_actions.stateDelta", {"n": 1}),
        ({WORLD: {"added": ["a"]}}, WORLD, {"added": ["a"]}),
    ],
)
def test_state_change_is_not_repeated_by_the_whole_task(
    metadata: JsonObject, name: str, value: Json, is_cut: bool
) -> None:
    reader = EventReader(RUN)
    message: JsonObject = {"messageId": "m", "role": "ROLE_AGENT", "parts": [], "metadata": metadata}
    artifact: JsonObject = {"artifactId": "a", "parts": [{"text": "Hi"}], "metadata": metadata}
    events = read(
        working(message_id="m", metadata=metadata),
        {"artifactUpdate": {"taskId": "t", "artifact": artifact}},
        reader=reader,
    )
    if is_cut:
        reader = resumed(events)
    done = {"state": "TASK_STATE_COMPLETED"}
    task: JsonObject = {"id": "t", "contextId": "c", "status": done, "history": [message], "artifacts": [artifact]}
    events += read({"task": task}, reader=reader)
    assert states(events) == [(name, value), (name, value)]
    assert texts_with_phases(transcript_of(events)) == [("Hi", "answer")]


def test_empty_state_change_is_ignored() -> None:
    assert states(read(working(metadata={"adk_actions": {"stateDelta": {}}, "ag2.context_update": {}}))) == []


def test_final_state_change_is_read_unless_too_large() -> None:
    status = {"state": "TASK_STATE_COMPLETED"}
    end = {"taskId": "t", "contextId": "c", "status": status, "metadata": {"ag2.context_update": {"n": 1}}}
    asks = {**end, "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}
    for stop in (end, asks):
        assert states(read({"statusUpdate": stop})) == [("ag2.context_update", {"n": 1})]
    events = read(working(metadata={"ag2.context_update": {"n": "x" * 300_000}}))
    assert states(events) == []
    assert [event.feature for event in events if isinstance(event, LossNoted)] == ["custom", "custom"]


def typed(value: Json, artifact_id: str = "a", **metadata: Any) -> JsonObject:
    return artifact({"data": value, "metadata": metadata}, artifact_id=artifact_id, lastChunk=True)


@pytest.mark.parametrize(
    ("reply", "data", "output"),
    [
        (typed({"result": 7}, json_schema={"type": "integer"}), 7, 7),
        (typed({"city": "Rome"}, "result_t"), {"city": "Rome"}, {"city": "Rome"}),
        (typed({"result": 7}), {"result": 7}, None),
        (typed({"result": 7, "n": 1}, json_schema={}), {"result": 7, "n": 1}, None),
        (typed({"city": "Rome"}, "result_other"), {"city": "Rome"}, None),
    ],
)
def test_structured_output_is_recognized_by_schema_or_name(reply: JsonObject, data: Json, output: Json) -> None:
    events = read(reply, completed())
    [message] = transcript_of(events).messages
    assert [part.data for part in message.parts if isinstance(part, DataPart)] == [data]
    assert [event.output for event in events if isinstance(event, RunEnded)] == ([] if output is None else [output])
