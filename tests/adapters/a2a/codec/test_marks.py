"""What other frameworks say beside A2A is told as what it is: thoughts, calls of tools, citations, usage, answers."""

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
from tests.adapters.a2a.replies import RUN, artifact, heard, recalled, text

CITED = AnnotationPart(start=0, end=5, url="https://e.org/a", title="A")


def read(*replies: Any, reader: EventReader | None = None, in_status: bool = False) -> list[Event]:
    """As a client reads: until the task stops."""
    reader = reader or EventReader(RUN, Habits(answers_in_status=in_status))
    events: list[Event] = []
    for reply in replies:
        if not reader.is_stopped:
            events += reader.read(reply)
    return [*events, *reader.close()] if reader.replied and not reader.is_stopped else events


def fault_in(*replies: Any) -> Fault:
    """The fault in which a run ends."""
    [*_, ended] = read(*replies)
    assert isinstance(ended, RunEnded) and ended.fault is not None
    return ended.fault


def thoughts(transcript: Transcript) -> list[str]:
    return [part.text for message in transcript.messages for part in message.parts if isinstance(part, ReasoningPart)]


def tools(events: list[Event]) -> list[tuple[str, Any, Any]]:
    """What each was called with, or gave."""
    told: list[tuple[str, Any, Any]] = []
    for event in events:
        match event:
            case ToolStarted():
                told.append((event.name, "in", event.input))
            case ToolEnded():
                told.append((event.name, "out", event.output))
            case _:
                pass
    return told


def said(transcript: Transcript) -> list[tuple[str, str]]:
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
    """By a run that is cut off there, and taken up again."""
    first = read(*replies[:cut])
    return [*first, *read(*replies[cut:], completed(), reader=recalled(first))]


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
def test_a_recorded_stream_tells_answer_thought_calls_and_citations(
    name: str, answer: str, calls: list[Any], cited: list[AnnotationPart]
) -> None:
    events = read(*recorded(name), in_status=name == "agentstack")
    transcript = heard(events)
    assert (said(transcript), thoughts(transcript)) == ([(answer, "answer")], ["I should look."])
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


def test_the_parts_of_adk_say_no_more_than_they_did_where_the_task_is_looked_at_again() -> None:
    replies = recorded("adk_new_weather")
    artifacts = [each["artifactUpdate"]["artifact"] for each in replies if "artifactUpdate" in each]
    task: Any = {"id": replies[0]["task"]["id"], "status": {"state": "TASK_STATE_WORKING"}, "artifacts": artifacts}
    reader = EventReader(RUN)
    first = read(*replies[:-1], reader=reader)
    assert not read({"task": task}, reader=reader)
    again = recalled(heard(first).events)
    assert not [event for event in again.read({"task": task}) if isinstance(event, ToolStarted | ToolEnded)]


def test_a_tool_of_adk_that_waits_for_its_confirmation_is_told_as_one_that_was_refused() -> None:
    for name in ("adk_confirm", "adk_new_confirm"):
        events = read(*recorded(name))
        assert [each[:2] for each in tools(events)] == [("wipe", "in"), ("wipe", "out")], name
        [ended] = [event for event in events if isinstance(event, ToolEnded)]
        assert ended.fault is not None
        assert ended.fault.message.startswith("This tool call requires confirmation")


def test_an_answer_that_was_only_said_on_the_way_is_the_answer_in_the_end() -> None:
    transcript = heard(read(*recorded("agentstack")))
    assert said(transcript) == [("It is ", "progress"), ("sunny.", "progress"), ("It is sunny.", "answer")]
    assert citations(transcript) == [CITED.replace(description="d")]
    lines = heard(read(working({"text": "Looking."}), working({"text": "42"}, message_id="n"), completed()))
    assert lines.text == "Looking.\n42"
    grown = heard(read(working({"text": "4"}), working({"text": "42"}, message_id="n"), completed()))
    assert grown.text == "42"


@pytest.mark.parametrize("is_cut", [False, True])
def test_an_answer_that_was_said_on_the_way_has_a_line_for_each_message_and_not_for_each_part(is_cut: bool) -> None:
    first = [
        working({"text": "It is "}, {"text": "sunny."}, message_id="m1"),
        working({"text": "So."}, message_id="m2"),
    ]
    events = read(*first)
    reader = EventReader(RUN)
    if is_cut:
        reader = recalled(events)
    else:
        events = read(*first, reader=reader)
    assert said(heard([*events, *reader.read(completed())]))[-1] == ("It is sunny.\nSo.", "answer")


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
def test_what_is_marked_as_progress_is_never_the_answer(answer: str, marked: JsonObject, is_cut: bool) -> None:
    before = [marked, *([working({"text": answer}, message_id="n")] if answer else [])]
    reader = EventReader(RUN)
    events = read(*before, reader=reader)
    assert said(heard(events))[0][1] == "progress"
    if is_cut:
        reader = recalled(events)
    transcript = heard([*events, *reader.read(completed())])
    assert [text for text, phase in said(transcript) if phase == "answer"] == ([answer] if answer else [])


def test_what_a_gateway_says_on_the_way_is_no_answer() -> None:
    about = {"babelgate": {"taskId": "k"}}
    assert heard(read(working({"text": "Looking."}), completed(**about))).text == ""


def test_agno_tells_its_usage_in_the_task_that_comes_after_the_end() -> None:
    *replies, end, task = recorded("agno")
    metrics = {"metrics": {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}}
    counted: Any = {**task, "history": [{**task["history"][0], "metadata": metrics}]}
    reader = EventReader(RUN)
    events = [event for reply in (*replies, end) for event in reader.read(reply)]
    assert not reader.is_stopped
    events += reader.read(counted)
    assert reader.is_stopped
    assert events[-1] == RunEnded(usage=metrics["metrics"])
    assert said(heard(events)) == [("It is sunny.", "answer")]


def test_an_agent_of_agno_whose_stream_breaks_off_after_the_end_has_ended() -> None:
    reader = EventReader(RUN)
    events = [event for reply in recorded("agno")[:-1] for event in reader.read(reply)] + reader.close()
    assert reader.is_stopped and said(heard(events)) == [("It is sunny.", "answer")]
    assert reader.close() == []


@pytest.mark.parametrize("count", range(1, 10))
def test_an_answer_in_the_status_is_taken_up_where_it_was_cut_off(count: int) -> None:
    replies = recorded("agentstack")
    first = read(*replies[:count], in_status=True)
    again = recalled(first, EventReader(RUN, Habits(answers_in_status=True)))
    history = [each["status"]["message"] for each in replies if "message" in each.get("status", {})]
    task: Any = {"id": replies[0]["taskId"], "kind": "task", "status": {"state": "working"}, "history": history}
    rest = again.read(task) + again.read(replies[-1])
    whole = heard([*first, *rest])
    assert "".join(text for text, _ in said(whole)) == "It is sunny."
    assert (thoughts(whole), len(tools([*first, *rest]))) == (["I should look."], 1)


def langgraph() -> EventReader:
    return EventReader(RUN, Habits(repeats_answer=True))


SAYS_ALL_AGAIN = ("Let me look.", "It", "It is ", "It is sunny.", "It is sunny.")


@pytest.mark.parametrize("cut", range(len(SAYS_ALL_AGAIN) + 1))
def test_langgraphs_a2a_endpoint_says_its_answer_again_with_each_token_and_is_told_token_by_token(cut: int) -> None:
    replies = [working({"text": text}, message_id=f"m{at}") for at, text in enumerate(SAYS_ALL_AGAIN)]
    first = read(*replies[:cut], reader=langgraph())
    end = artifact(text("It is sunny. So there."), name="Assistant Response", lastChunk=True)
    events = [*first, *read(*replies[cut:], end, completed(), reader=recalled(first, langgraph()))]
    assert said(heard(events)) == [("Let me look.", "answer"), ("It is sunny. So there.", "answer")]
    deltas = [event.text for event in events if isinstance(event, PartDelta)]
    assert deltas == [" is ", "sunny.", " So there."]
    assert not [event for event in events if isinstance(event, Native)]


def test_an_answer_of_langgraph_that_is_another_one_in_the_end_is_told_too() -> None:
    end = artifact(text("It rains."), lastChunk=True)
    events = read(working({"text": "It is sunny."}), end, completed(), reader=langgraph())
    assert said(heard(events)) == [("It is sunny.", "answer"), ("It rains.", "answer")]


# Marks of which there is no recording


@pytest.mark.parametrize("kind", ["workflow_step", "loop_execution", "parallel_execution", "router_execution"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_steps_of_agnos_workflows_begin_and_end(kind: str, is_cut: bool) -> None:
    def step(what: str) -> JsonObject:
        beside = {"agno_event_type": f"{kind}_{what}", "step_name": "look"}
        status = {"state": "TASK_STATE_WORKING"}
        return {"statusUpdate": {"taskId": "t", "status": status, "metadata": beside}}

    reader = EventReader(RUN)
    events = read(step("started"), reader=reader)
    if is_cut:
        reader = recalled(events)
    events += read(step("error"), step("completed"), reader=reader)
    assert steps(events) == ["look", "/look"]
    heard(events)


def test_gemini_cli_says_by_its_kind_what_a_status_is() -> None:
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
    transcript = heard(events)
    assert said(transcript) == [("There is one.", "answer")]
    assert citations(transcript) == [
        AnnotationPart(url="https://e.org/a", title="A page"),
        AnnotationPart(url="https://e.org/b"),
    ]
    assert thoughts(transcript) == ["Look: There may be files."]
    assert tools(events) == [("ls", "in", {"p": "."}), ("ls", "out", {"files": 1})]
    assert usage(events) == {"input_tokens": 3, "output_tokens": 2}


def test_blocks_of_opencode_are_told_by_their_type() -> None:
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
    transcript = heard(events)
    assert (said(transcript), thoughts(transcript)) == ([("Hi", "answer")], ["Hm."])
    assert tools(events) == [("ls", "in", {}), ("ls", "out", None)]
    assert usage(events) == {"input_tokens": 1, "total_tokens": 2}


def test_a_thought_that_comes_in_pieces_and_then_whole_is_told_once() -> None:
    def thought(words: str, **more: Any) -> JsonObject:
        return {"text": words, "metadata": {"adk_thought": True, **more}}

    events = read(
        artifact(thought("I should "), append=False),
        artifact(thought("look.", adk_thought_signature="AQI="), append=True),
        artifact(text("Sun"), append=True),
        artifact(thought("I should look."), text("Sunny."), append=False, lastChunk=True),
        completed(),
    )
    transcript = heard(events)
    assert (said(transcript), thoughts(transcript)) == ([("Sunny.", "answer")], ["I should look."])


def test_the_thinking_of_fasta2a_stands_in_the_history_and_is_no_answer() -> None:
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
    transcript = heard(read({"task": task}))
    assert (said(transcript), thoughts(transcript)) == ([("Hi", "answer")], ["Hm."])


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


@pytest.mark.parametrize(("part", "metadata", "told"), _USES)
def test_calls_are_recognised_by_their_marks(part: JsonObject, metadata: JsonObject, told: tuple[Any, ...]) -> None:
    [use] = decode_marks([DataPart(data=part, metadata=metadata)], "s").tools
    assert (use.name, use.ended, use.value, use.error) == told


@pytest.mark.parametrize(
    "mark",
    [{"adk_thought": True}, {"kagent_thought": True}, {"thought": True}, {"type": "thinking"}, {"type": "reasoning"}],
)
@pytest.mark.parametrize("beside", [{}, {"adk_thought_signature": "AQI="}, {"thinking_id": "t", "signature": "s"}])
def test_text_is_thought_by_its_marks_and_keeps_its_signature(mark: JsonObject, beside: JsonObject) -> None:
    [part] = decode_marks([TextPart(text="Hm.", metadata={**mark, **beside})], "s").parts
    assert part == ReasoningPart(text="Hm.", metadata=beside)


@pytest.mark.parametrize(
    "mark",
    [{"adk_thought": False}, {"kagent_thought": "no"}, {"thought": "yes"}, {"type": "text"}, {"x_thought": True}],
)
def test_text_that_no_mark_makes_a_thought_is_none(mark: JsonObject) -> None:
    part = TextPart(text="Hm.", metadata=mark)
    assert decode_marks([part], "s").parts == [part]


TRACE = "github.com/a2aproject/a2a-samples/extensions/traceability/v1/traceability"


@pytest.mark.parametrize("key", [TRACE, f"https://{TRACE.removesuffix('/traceability')}"])
def test_the_steps_of_a_trace_are_calls_of_tools_and_agents_and_their_tokens_the_usage(key: str) -> None:
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
    assert said(heard(events)) == [("Soup.", "answer")]
    assert usage(events) == {"total_tokens": 8}
    [begun] = [event for event in events if isinstance(event, MessageStarted)]
    assert begun.metadata == answer["metadata"]


def test_a_trace_is_not_told_beside_the_calls_that_it_is_of_and_counts_least() -> None:
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
    """A name begins its step, and ends it with a slash before it."""
    return [
        event.name if isinstance(event, StepStarted) else f"/{event.name}"
        for event in events
        if isinstance(event, StepStarted | StepEnded)
    ]


def author(name: str, at: int, branch: str | None = None, *, in_artifact: bool = False) -> JsonObject:
    """An event of google-adk 2.13.0, by its newer executor or its older one."""
    told: JsonObject = {"adk_author": name, "adk_branch": branch} if branch else {"adk_author": name}
    app: JsonObject = {"adk_app_name": "demo"}
    if not in_artifact:
        return working({"text": f"By {name}."}, message_id=f"m{at}", beside={**app, **told, "adk_event_id": f"e{at}"})
    update = artifact(text(f"By {name}."), artifact_id=f"a{at}", metadata=told, lastChunk=True)
    update["artifactUpdate"]["metadata"] = app
    return update


@pytest.mark.parametrize("in_artifact", [False, True])
@pytest.mark.parametrize("cut", range(6))
def test_what_each_agent_within_one_of_adk_does_is_a_step(in_artifact: bool, cut: int) -> None:
    names = ["demo", "cook", "cook", "waiter", "demo", "cook"]
    replies = [author(name, at, in_artifact=in_artifact) for at, name in enumerate(names)]
    events = read_in_two(replies, cut)
    assert steps(events) == ["cook", "/cook", "waiter", "/waiter", "cook"]
    ids = [event.step_id for event in events if isinstance(event, StepStarted)]
    assert len({*ids}) == 3
    heard(events)


def test_agents_of_adk_that_work_side_by_side_are_steps_at_the_same_time() -> None:
    branches = [("plan", None), ("a", "both.a"), ("b", "both.b"), ("a", "both.a"), ("c", "both.a.c"), ("demo", None)]
    events = read(*(author(name, at, branch, in_artifact=True) for at, (name, branch) in enumerate(branches)))
    assert steps(events) == ["plan", "/plan", "a", "b", "/a", "c", "/b", "/c"]


def test_an_agent_of_adk_that_is_alone_has_no_steps() -> None:
    for name in ("adk_weather", "adk_new_weather"):
        assert steps(read(*recorded(name))) == []
    assert steps(read(author("user", 1), {"statusUpdate": {"taskId": "t", "status": {"state": "working"}}})) == []


def test_steps_that_a_gateway_has_read_are_told_by_its_events_alone() -> None:
    task: JsonObject = {"id": "t", "status": {"state": "working"}, "metadata": {"babelgate": {"taskId": "k"}}}
    begun: JsonObject = {"event": {"kind": "step_started", "step_id": "s", "name": "cook"}}
    status = {"state": "TASK_STATE_WORKING"}
    told = {"statusUpdate": {"taskId": "t", "status": status, "metadata": {"babelgate": begun}}}
    beside: JsonObject = {"agno_event_type": "loop_execution_started", "step_name": "look"}
    agno = {"statusUpdate": {"taskId": "t", "status": status, "metadata": beside}}
    group: JsonObject = {"title": "Plan", "content": "Look", "group_id": "g"}
    grouped = working(message_id="g", metadata={TRAJECTORY: group})
    assert steps(read({"task": task}, author("cook", 1), told, agno, grouped)) == ["cook"]


@pytest.mark.parametrize("cut", range(4))
def test_trajectories_of_one_group_are_in_one_step(cut: int) -> None:
    told = [("Planning", "Look", "g1"), ("Planning", "it up", "g1"), ("", "Other", "g2"), ("thought", "Hm.", "g3")]
    replies = [
        working(message_id=f"m{at}", metadata={TRAJECTORY: {"title": title, "content": content, "group_id": group}})
        for at, (title, content, group) in enumerate(told)
    ]
    events = read_in_two(replies, cut)
    assert steps(events) == ["Planning", "g2"]
    assert [text for text, _ in said(heard(events))] == ["Planning: Look", "Planning: it up", "Other"]


def test_the_tools_of_protolabs_and_beeai_are_read_from_the_messages_metadata() -> None:
    key = "https://proto-labs.ai/a2a/ext/tool-call-v1"
    events = read(
        working(metadata={key: {"toolCallId": "c", "name": "f", "phase": "start", "args": {"a": 1}}}),
        working(message_id="n", metadata={key: {"toolCallId": "c", "name": "f", "phase": "end", "result": 2}}),
    )
    assert tools(events) == [("f", "in", {"a": 1}), ("f", "out", 2)]
    path = "https://a2a-extensions.beeai.dev/ui/trajectory/v1"
    titles = ["--> g (request)", "<-- g (error)", "Planning"]
    steps = [
        working(message_id=str(at), metadata={path: {"title": each, "content": "x"}}) for at, each in enumerate(titles)
    ]
    told = read(*steps)
    assert tools(told) == [("g", "in", "x"), ("g", "out", None)]
    assert said(heard(told)) == [("Planning: x", "progress")]


def test_places_in_bytes_become_places_in_characters_of_the_whole_message() -> None:
    segment = {"startIndex": 3.0, "endIndex": 8.0, "partIndex": 1}
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://e.org/a", "title": "A"}}],
        "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0.0, 7]}, {"segment": {"partIndex": 9}}],
    }
    texts = [TextPart(text="äö "), TextPart(text="é sunny")]
    [place] = decode_marks(texts, "s", {"adk_grounding_metadata": grounding}).citations
    assert (place.start, place.end) == (5, 10)
    assert "äö é sunny"[5:10] == "sunny"


def test_the_citations_of_adk_are_read_where_no_grounding_says_the_same_again() -> None:
    cited: JsonObject = {"startIndex": 0.0, "endIndex": 5.0, "uri": "https://e.org/a", "title": "A", "license": "MIT"}
    told = decode_marks([TextPart(text="It is sunny.")], "s", {"adk_citation_metadata": {"citations": [cited, 7]}})
    assert told.citations == [CITED]


def test_usage_of_the_task_counts_before_the_sum_of_its_messages() -> None:
    told = {"https://kagent.dev/extensions/usage/v1": {"inputTokens": 11.0, "outputTokens": 7, "cachedInputTokens": 2}}
    expected = {"input_tokens": 11, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 2}}
    assert usage_of_task(told) == expected
    cost = {"https://proto-labs.ai/a2a/ext/cost-v1": {"usage": {"input_tokens": 1, "output_tokens": 2}, "costUsd": 1}}
    assert usage_of_task(cost) == {"input_tokens": 1, "output_tokens": 2}
    for key in ("adk_usage_metadata", "kagent.dev/a2a/usage", "kagent_usage_metadata"):
        assert usage_of_message({key: {"promptTokenCount": 1.0, "thoughtsTokenCount": 2}}) == {
            "input_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 2},
        }
    assert add_usage(expected, expected)["input_tokens_details"] == {"cached_tokens": 4}
    adk = {"adk_usage_metadata": {"promptTokenCount": 5}}
    events = read(working({"text": "x"}, metadata=adk), completed(**told))
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
def test_marks_of_another_form_are_passed_over(metadata: JsonObject) -> None:
    told = decode_marks([TextPart(text="x"), DataPart(data={"n": 1}, metadata={"adk_type": 7})], "s", metadata)
    assert (told.tools, told.says, len(told.parts)) == ([], None, 2)


ERROR = "https://a2a-extensions.agentstack.beeai.dev/ui/error/v1"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"error": {"title": "ValueError", "message": "No such city"}}, "ValueError: No such city"),
        ({"error": {"message": "Two", "errors": [{"message": "one"}, {"message": "two"}]}}, "Two: one: two"),
        ("no error", "The agent failed and did not say why."),
    ],
)
def test_agentstack_tells_a_failure_in_metadata(told: Any, words: str) -> None:
    message: JsonObject = {"messageId": "e", "role": "agent", "parts": [], "metadata": {ERROR: told}}
    update = {"kind": "status-update", "taskId": "t", "contextId": "c"}
    assert fault_in({**update, "status": {"state": "failed", "message": message}}).message == words


def test_the_code_of_an_error_of_adk_is_kept_with_its_words() -> None:
    message = {"messageId": "e", "role": "agent", "parts": [{"kind": "text", "text": "Blocked."}]}
    update = {"kind": "status-update", "taskId": "t", "contextId": "c", "metadata": {"adk_error_code": "SAFETY"}}
    fault = fault_in({**update, "status": {"state": "failed", "message": message}})
    assert (fault.message, fault.details) == ("Blocked.", {"error_code": "SAFETY"})


def test_the_metrics_of_agno_stand_in_the_message_of_the_task() -> None:
    metrics = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5, "duration": 0.5}
    message = {"messageId": "a", "role": "agent", "parts": [{"kind": "text", "text": "Sunny."}]}
    history = [{**message, "metadata": {"metrics": metrics}}]
    task = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}, "history": history}
    assert usage(read(task)) == {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}


def test_usage_without_a_mark_is_the_tasks_at_its_end_and_adds_up_in_messages() -> None:
    bare = {"usage": {"prompt_tokens": 3.0, "completion_tokens": 2}}
    assert usage(read(completed(**bare))) == {"input_tokens": 3, "output_tokens": 2}
    said = [working({"text": "x"}, message_id=name, metadata=bare) for name in ("m", "m", "n")]
    assert usage(read(*said, completed())) == {"input_tokens": 6, "output_tokens": 4}
    assert usage(read(*said, completed(usage={"input_tokens": 9}))) == {"input_tokens": 9}
    updates = [working({"text": "x"}, message_id=str(at), beside={"usage": {"total_tokens": at}}) for at in (4, 7)]
    assert usage(read(*updates, completed())) == {"total_tokens": 7}
    last = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Hi"}], "metadata": bare}
    status = {"state": "TASK_STATE_COMPLETED", "message": last}
    task = {"task": {"id": "t", "contextId": "c", "status": status, "history": [last]}}
    assert usage(read(task)) == {"input_tokens": 3, "output_tokens": 2}
    assert usage(read({"message": last})) == {"input_tokens": 3, "output_tokens": 2}


def test_usage_of_another_form_does_not_hide_what_is_told_beside_it() -> None:
    told = {"usage": "much", "https://kagent.dev/extensions/usage/v1": {"inputTokens": 1}}
    assert usage_of_task(told) == {"input_tokens": 1}
    assert usage_of_message({"usage": {"cost": 1}, "adk_usage_metadata": {"promptTokenCount": 2}}) == {
        "input_tokens": 2
    }


def test_the_usage_at_artifacts_of_opencode_is_that_of_the_task_so_far() -> None:
    def block(artifact_id: str, total: int) -> JsonObject:
        return artifact(text("Hi"), artifact_id=artifact_id, metadata={"shared": {"usage": {"total_tokens": total}}})

    assert usage(read(block("x:reasoning", 3), block("x:text", 5), completed())) == {"total_tokens": 5}


def test_an_artifact_that_is_named_as_the_reasoning_of_opencode_is_thought() -> None:
    transcript = heard(read(artifact(text("Hm."), artifact_id="x:reasoning"), completed()))
    assert (said(transcript), thoughts(transcript)) == ([], ["Hm."])


@pytest.mark.parametrize(
    ("progress", "words"),
    [("Reading", "Reading"), ({"type": "step-start", "status": "running"}, "step-start: running")],
)
def test_progress_of_opencode_is_progress(progress: Json, words: str) -> None:
    events = read(working(beside={"shared": {"progress": progress}}), completed())
    assert said(heard(events)) == [(words, "progress")]
    assert said(heard(read(working(beside={"shared": {"progress": {"status": 7}}}), completed()))) == []


@pytest.mark.parametrize(
    ("phase", "more", "error"), [("completed", {}, None), ("failed", {}, "f failed"), ("end", {"error": "No."}, "No.")]
)
def test_a_call_of_protolabs_ends_by_its_phase(phase: str, more: JsonObject, error: str | None) -> None:
    key = "https://proto-labs.ai/a2a/ext/tool-call-v1"
    call = {"toolCallId": "c", "name": "f"}
    [use] = decode_marks([], "s", {key: {**call, "phase": phase, **more}}).tools
    assert (use.ended, use.error) == (True, error)
    assert decode_marks([], "s", {key: {**call, "phase": "progress"}}).tools == []


def test_a_run_of_agno_that_is_cancelled_waits_for_no_task_after_its_end() -> None:
    status = {"state": "TASK_STATE_CANCELED"}
    beside = {"agno_event_type": "run_cancelled", "reason": "enough"}
    [*_, ended] = read({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status, "metadata": beside}})
    assert isinstance(ended, RunEnded) and ended.status is RunStatus.CANCELLED


def test_a_call_of_agno_that_fails_ends_with_what_went_wrong() -> None:
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
def test_a_failure_without_a_message_has_the_words_that_stand_beside_it(beside: JsonObject) -> None:
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
def test_a_change_of_an_agents_state_is_told_once(metadata: JsonObject, name: str, value: Json, is_cut: bool) -> None:
    reader = EventReader(RUN)
    message: JsonObject = {"messageId": "m", "role": "ROLE_AGENT", "parts": [], "metadata": metadata}
    artifact: JsonObject = {"artifactId": "a", "parts": [{"text": "Hi"}], "metadata": metadata}
    events = read(
        working(message_id="m", metadata=metadata),
        {"artifactUpdate": {"taskId": "t", "artifact": artifact}},
        reader=reader,
    )
    if is_cut:
        reader = recalled(events)
    done = {"state": "TASK_STATE_COMPLETED"}
    task: JsonObject = {"id": "t", "contextId": "c", "status": done, "history": [message], "artifacts": [artifact]}
    events += read({"task": task}, reader=reader)
    assert states(events) == [(name, value), (name, value)]
    assert said(heard(events)) == [("Hi", "answer")]


def test_a_state_in_which_nothing_changed_is_not_told() -> None:
    assert states(read(working(metadata={"adk_actions": {"stateDelta": {}}, "ag2.context_update": {}}))) == []


def test_a_change_of_state_at_the_end_or_with_a_question_is_told_and_one_that_is_too_large_is_a_loss() -> None:
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
    ("told", "data", "output"),
    [
        (typed({"result": 7}, json_schema={"type": "integer"}), 7, 7),
        (typed({"city": "Rome"}, "result_t"), {"city": "Rome"}, {"city": "Rome"}),
        (typed({"result": 7}), {"result": 7}, None),
        (typed({"result": 7, "n": 1}, json_schema={}), {"result": 7, "n": 1}, None),
        (typed({"city": "Rome"}, "result_other"), {"city": "Rome"}, None),
    ],
)
def test_a_structured_output_is_known_by_its_schema_or_name(told: JsonObject, data: Json, output: Json) -> None:
    events = read(told, completed())
    [message] = heard(events).messages
    assert [part.data for part in message.parts if isinstance(part, DataPart)] == [data]
    assert [event.output for event in events if isinstance(event, RunEnded)] == ([] if output is None else [output])
