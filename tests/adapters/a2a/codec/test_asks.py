"""Questions of other frameworks: each has words and a schema, and is answered in the form of its framework."""

from typing import Any

import pytest

from babelgate.adapters.a2a.codec import v1_0
from babelgate.adapters.a2a.codec.asks import encode_answers
from babelgate.adapters.a2a.read.task_events import EventReader
from babelgate.adapters.a2a.request import request
from babelgate.canonical import Invocation, Message, Record
from babelgate.canonical.event import InterruptAnswered, InterruptRaised
from babelgate.canonical.message import DataPart, Part
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.value import JsonObject
from tests.adapters.a2a.recorded import recorded

RUN = "22222222-2222-4222-8222-222222222222"
FORM = "https://a2a-extensions.agentstack.beeai.dev/ui/form_request/v1"
APPROVAL = "https://a2a-extensions.agentstack.beeai.dev/interactions/approval/v1"
KAGENT = "https://kagent.dev/extensions/hitl/v1"
CONFIRMED = {"type": "object", "properties": {"confirmed": {"type": "boolean"}}, "required": ["confirmed"]}


def questions_in(*replies: Any) -> list[InterruptRaised]:
    reader = EventReader(RUN)
    return [event for reply in replies for event in reader.read(reply) if isinstance(event, InterruptRaised)]


def properties_of(question: InterruptRaised) -> Any:
    assert question.answer_schema is not None
    return question.answer_schema["properties"]


def status_asking(*parts: dict[str, Any], state: str = "TASK_STATE_INPUT_REQUIRED", **message: Any) -> dict[str, Any]:
    content = {"messageId": "m", "role": "ROLE_AGENT", "parts": list(parts), **message}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": state, "message": content}}}


async def answer_message(
    questions: list[InterruptRaised], *values: Any, parts: tuple[Part, ...] = ()
) -> dict[str, Any]:
    """Return the message that is sent to answer the questions with these values."""
    ids = [question.interrupt_id or f"i{number}" for number, question in enumerate(questions)]
    past = [
        Record(number, number, "k", RUN, 1, question.replace(interrupt_id=ids[number]))
        for number, question in enumerate(questions)
    ]
    answers = tuple(InterruptAnswered(interrupt_id=each, value=value) for each, value in zip(ids, values, strict=True))
    message = Message(role="user", parts=parts) if parts else Message.of(str(values[0]), "user")
    call = Invocation(
        agent="far",
        thread_id="h",
        task_id="k",
        run_id="r",
        answers=answers,
        input=RunInput(messages=(message,)),
        upstream={"task": "t", "context": "c"},
    )
    sent = request(call, past, v1_0.Codec("", "far"), streams=True)
    assert sent["message"]["taskId"] == "t"
    return sent["message"]


@pytest.mark.parametrize("name", ["adk_confirm", "adk_new_confirm"])
async def test_adk_confirmation_is_answered_by_a_function_response(name: str) -> None:
    [question] = questions_in(*recorded(name))
    assert (question.ask, question.answer_schema) == ("approval", CONFIRMED)
    assert question.message.text.startswith("Please approve or reject the tool call wipe()")
    assert question.message.text.endswith('\nwipe({"disk": "sda"})')
    assert question.value["originalFunctionCall"] == {"id": "c9", "name": "wipe", "args": {"disk": "sda"}}  # type: ignore[call-overload,index]
    for value, confirmed in (
        ("yes", True),
        ({"confirmed": True}, True),
        (True, True),
        ("Not now.", False),
        (None, False),
    ):
        [part] = (await answer_message([question], value))["parts"]
        assert part["metadata"] == {"adk_type": "function_response"}
        assert part["data"] == {
            "id": question.interrupt_id,
            "name": "adk_request_confirmation",
            "response": {"confirmed": confirmed},
        }


@pytest.mark.parametrize("name", ["adk_ask", "adk_new_ask"])
async def test_waiting_adk_tool_is_answered_by_its_result(name: str) -> None:
    [question] = questions_in(*recorded(name))
    assert (question.ask, question.message.text) == ("input", 'ask_boss({"question": "ok?"})')
    assert question.value == {"name": "ask_boss", "args": {"question": "ok?"}}
    for value, response in (("fine", {"result": "fine"}), ({"ok": 1}, {"ok": 1})):
        [part] = (await answer_message([question], value))["parts"]
        assert part["data"] == {"id": "c5", "name": "ask_boss", "response": response}


async def test_answer_in_the_form_of_the_framework_is_unchanged() -> None:
    [question] = questions_in(*recorded("adk_ask"))
    data: JsonObject = {"id": "c5", "name": "ask_boss", "response": {"own": True}}
    spoken = DataPart(data=data, metadata={"adk_type": "function_response"})
    [part] = (await answer_message([question], data, parts=(spoken,)))["parts"]
    assert part == {"data": data, "metadata": {"adk_type": "function_response"}}


def test_adk_thought_is_not_part_of_the_question() -> None:
    thought = {"text": "I should ask.", "metadata": {"adk_thought": True}}
    [question] = questions_in(*recorded("adk_ask")[:-1], status_asking(thought, *_call_of("adk_ask")))
    assert question.message.text == 'ask_boss({"question": "ok?"})'


def _call_of(name: str) -> list[JsonObject]:
    return recorded(name)[-1]["statusUpdate"]["status"]["message"]["parts"]


async def test_adk_requests_for_input_and_credentials_are_questions() -> None:
    waiting = {"adk_type": "function_call", "adk_is_long_running": True}
    args: JsonObject = {"message": "Which city?", "response_schema": {"type": "string"}}
    data = {"id": "c1", "name": "adk_request_input", "args": args}
    [question] = questions_in(status_asking({"data": data, "metadata": waiting}))
    assert (question.message.text, question.answer_schema) == ("Which city?", {"type": "string"})
    credential: JsonObject = {"id": "c2", "name": "adk_request_credential", "args": {"authConfig": {}}}
    [login] = questions_in(status_asking({"data": credential, "metadata": waiting}, state="TASK_STATE_AUTH_REQUIRED"))
    assert login.ask == "auth"


async def test_strands_interrupts_are_answered_by_id_in_one_message() -> None:
    interrupts: list[JsonObject] = [
        {"interruptId": "v1:a", "name": "approval", "reason": "May I?"},
        {"interruptId": "v1:b", "name": "city", "reason": None},
    ]
    words = "Agent requires input:\n- approval: May I?\n- city"
    questions = questions_in(status_asking({"text": words}, {"data": {"interrupts": interrupts}}))
    assert [question.message.text for question in questions] == [words, "city"]
    parts = (await answer_message(questions, "y", {"city": "Rome"}))["parts"]
    assert [part["data"] for part in parts] == [
        {"interruptResponse": {"interruptId": "v1:a", "response": "y"}},
        {"interruptResponse": {"interruptId": "v1:b", "response": {"city": "Rome"}}},
    ]


async def test_text_fills_the_first_field_of_an_agentstack_form() -> None:
    [question] = questions_in(*recorded("agentstack_form"))
    assert question.message.text == "Who?"
    assert question.answer_schema == {
        "type": "object",
        "properties": {
            "n": {"title": "Name", "type": "string"},
            "s": {"title": "S", "type": "string", "enum": ["a"]},
        },
        "required": ["n"],
    }
    for value, values in (
        ("Ada", {"n": {"type": "text", "value": "Ada"}}),
        (
            '{"n": "Ada", "s": "A"}',
            {"n": {"type": "text", "value": "Ada"}, "s": {"type": "singleselect", "value": "a"}},
        ),
        ({"n": "Ada", "x": 1}, {"n": {"type": "text", "value": "Ada"}}),
    ):
        assert (await answer_message([question], value))["metadata"] == {FORM: {"values": values}}


async def test_agentstack_approval_is_answered_by_a_decision() -> None:
    [question] = questions_in(*recorded("agentstack_approve"))
    assert (question.ask, question.message.text) == ("approval", 'rm({"p": 1})')
    assert (await answer_message([question], "Yes."))["metadata"] == {APPROVAL: {"decision": "approve"}}
    assert (await answer_message([question], {"decision": "reject"}))["metadata"] == {APPROVAL: {"decision": "reject"}}


@pytest.mark.parametrize("origin", ["agentstack.beeai.dev", "adk.kagenti.dev", "beeai.dev"])
async def test_agentstack_tool_call_is_answered_by_an_action(origin: str) -> None:
    uri = f"https://a2a-extensions.{origin}/tools/call/v1"
    call = {"name": "rm", "title": "Remove", "description": "For good.", "input": {"p": 1}, "server": {"name": "s"}}
    [question] = questions_in(status_asking(metadata={uri: call}))
    assert (question.ask, question.message.text) == ("approval", 'Remove\nFor good.\nrm({"p": 1})')
    assert properties_of(question) == {"action": {"type": "string", "enum": ["accept", "reject"]}}
    for value, action in (("ok", "accept"), ({"action": "accept"}, "accept"), ("Why?", "reject")):
        assert (await answer_message([question], value))["metadata"] == {uri: {"action": action}}


async def test_form_fields_have_schemas_and_typed_answers() -> None:
    uri = "https://a2a-extensions.beeai.dev/ui/form/v1"  # beeai-sdk 0.3.7
    options: list[JsonObject] = [{"id": "a", "label": "A"}, {"id": "b", "label": "B"}]
    fields: list[JsonObject] = [
        {"id": "t", "label": "T", "type": "text", "required": True},
        {"id": "d", "label": "", "type": "date"},
        {"id": "f", "label": "", "type": "file"},
        {"id": "m", "label": "", "type": "multiselect", "options": options},
        {"id": "c", "label": "", "type": "checkbox"},
        {"id": "g", "label": "", "type": "checkbox_group", "fields": [{"id": "x"}]},
    ]
    [question] = questions_in(status_asking(metadata={uri: {"title": "All", "fields": fields}}))
    assert properties_of(question) == {
        "t": {"title": "T", "type": "string"},
        "d": {"type": "string", "format": "date"},
        "f": {"type": "string", "format": "uri"},
        "m": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        "c": {"type": "boolean"},
        "g": {"type": "object", "properties": {"x": {"type": "boolean"}}},
    }
    values = {"t": "x", "d": "2026-01-01", "m": ["a"], "c": True, "g": {"x": True}}
    sent = (await answer_message([question], values))["metadata"][uri]["values"]
    kinds = {"t": "text", "d": "date", "m": "multiselect", "c": "checkbox", "g": "checkbox_group"}
    assert sent == {name: {"type": kind, "value": values[name]} for name, kind in kinds.items()}


def test_question_uses_the_metadata_if_the_message_only_announces_it() -> None:
    form: JsonObject = {"title": "Who?", "description": "For the ticket.", "fields": []}
    call: JsonObject = {"title": "Wipe a disk", "name": "wipe", "input": {"disk": "sda"}}
    for message, metadata, words in (
        ("Who?", {FORM: form}, "Who?\nFor the ticket."),
        ("Tell me who.", {FORM: form}, "Tell me who."),
        ("Approval requested", {APPROVAL: call}, 'Wipe a disk\nwipe({"disk": "sda"})'),
        ("Shall I?", {APPROVAL: call}, "Shall I?"),
    ):
        [question] = questions_in(status_asking({"text": message}, metadata=metadata))
        assert question.message.text == words


async def test_kagent_approvals_are_answered_in_one_message() -> None:
    tools: list[JsonObject] = [
        {"id": "1", "call_id": "c1", "name": "rm", "args": {}},
        {"id": "2", "call_id": "c2", "name": "ls", "args": {}},
    ]
    request: JsonObject = {"type": "tool_approval_request", "tools": tools}
    questions = questions_in(status_asking(metadata={KAGENT: request}, extensions=[KAGENT]))
    assert [question.message.text for question in questions] == ["rm({})", "ls({})"]
    sent = await answer_message(questions, "Too dangerous.", {"approved": True})
    assert sent["extensions"] == [KAGENT]
    assert sent["metadata"][KAGENT] == {
        "type": "tool_approval_response",
        "approvals": [
            {"id": "1", "approved": False, "rejection_reason": "Too dangerous."},
            {"id": "2", "approved": True},
        ],
    }


async def test_kagent_questions_are_answered_in_order() -> None:
    entries: list[JsonObject] = [
        {"question": "Which?", "choices": ["a", "b"], "multiple": True},
        {"question": "Why?", "choices": []},
    ]
    request: JsonObject = {"type": "ask_user_request", "id": "q", "questions": entries}
    first, second = questions = questions_in(status_asking(metadata={KAGENT: request}))
    assert first.answer_schema == {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    assert second.answer_schema is None
    assert (await answer_message(questions, ["a", "b"], "So."))["metadata"][KAGENT] == {
        "type": "ask_user_response",
        "id": "q",
        "answers": [{"answer": ["a", "b"]}, {"answer": ["So."]}],
    }


def test_kagent_question_includes_calls_of_subagents() -> None:
    nested = {"subagent_name": "cleaner", "task_id": "t2", "tools": [{"id": "9", "name": "rm", "args": {"p": "a"}}]}
    tools: list[JsonObject] = [{"id": "1", "call_id": "c1", "name": "delegate", "args": {}}]
    request: JsonObject = {"type": "tool_approval_request", "tools": tools, "nested": nested}
    [question] = questions_in(status_asking(metadata={KAGENT: request}))
    assert question.message.text == 'delegate({})\ncleaner: rm({"p": "a"})'
    request = {"type": "ask_user_request", "id": "q", "questions": [{"question": "Which?"}], "nested": nested}
    [question] = questions_in(status_asking(metadata={KAGENT: request}))
    assert question.message.text == "cleaner: Which?"


def interrupt(**members: Any) -> dict[str, Any]:
    """Return a question of opencode-a2a: an update without a message."""
    status = {"state": "TASK_STATE_INPUT_REQUIRED"}
    metadata = {"shared": {"interrupt": {"request_id": "r1", "phase": "asked", **members}}}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status, "metadata": metadata}}


def test_opencode_permission_lists_the_possible_replies() -> None:
    [question] = questions_in(interrupt(type="permission", details={"permission": "bash", "patterns": ["rm *", "ls"]}))
    assert (question.ask, question.message.text, question.interrupt_id) == ("approval", "bash: rm *, ls", "r1")
    assert properties_of(question) == {"reply": {"type": "string", "enum": ["once", "always", "reject"]}}


def test_several_opencode_questions_are_answered_by_a_list() -> None:
    options = [{"label": "a", "description": "The first."}, {"value": "b"}]
    entries = [{"question": "Which?", "options": options}, {"header": "Why?"}]
    [question] = questions_in(interrupt(type="question", details={"questions": entries}))
    assert (question.ask, question.message.text) == ("input", "Which? (a, b)\nWhy?")
    answers = {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}
    assert properties_of(question) == {"answers": answers}


def test_resolved_opencode_interrupt_is_not_repeated() -> None:
    [question] = questions_in(interrupt(type="permission", phase="resolved", resolution="replied"))
    assert (question.ask, question.message.text, question.answer_schema) == ("input", "", None)


async def test_gemini_cli_confirmation_is_answered_by_an_outcome() -> None:
    call = {"callId": "c1", "name": "shell", "args": {"command": "ls"}}
    data = {"request": call, "status": "awaiting_approval", "confirmationDetails": {"type": "exec"}}
    [question] = questions_in(status_asking({"data": data}))
    assert (question.ask, question.message.text) == ("approval", 'shell({"command": "ls"})')
    always = {"outcome": "proceed_always"}
    for value, outcome in (("yes", "proceed_once"), ("no", "cancel"), (always, "proceed_always")):
        assert (await answer_message([question], value))["parts"] == [{"data": {"callId": "c1", "outcome": outcome}}]


async def test_agentstack_secrets_and_authorizations_are_auth_questions() -> None:
    base = "https://a2a-extensions.agentstack.beeai.dev/auth"
    demands = {"secret_demands": {"k": {"name": "Key", "description": "A key"}}}
    [question] = questions_in(status_asking(metadata={f"{base}/secrets/v1": demands}, state="TASK_STATE_AUTH_REQUIRED"))
    assert question.ask == "auth"
    fulfilled = {f"{base}/secrets/v1": {"secret_fulfillments": {"k": {"secret": "s"}}}}
    assert (await answer_message([question], "s"))["metadata"] == fulfilled
    url = {"authorization_endpoint_url": "https://e.org/login"}
    [question] = questions_in(status_asking(metadata={f"{base}/oauth/v1": url}, state="TASK_STATE_AUTH_REQUIRED"))
    assert question.message.text == "https://e.org/login"
    assert (await answer_message([question], "https://e.org/back"))["metadata"] == {
        f"{base}/oauth/v1": {"redirect_uri": "https://e.org/back"}
    }


async def test_langgraph_question_keeps_its_schema_and_plain_answer() -> None:
    schema = {"type": "string"}
    [question] = questions_in(status_asking({"data": {"id": "1", "value": "Name?", "response_schema": schema}}))
    assert (question.interrupt_id, question.answer_schema) == ("1", schema)
    assert (await answer_message([question], "Ada"))["parts"] == [{"text": "Ada"}]


@pytest.mark.parametrize(
    "part",
    [
        {"data": {"interrupts": [{"interruptId": 7}]}},
        {
            "data": {"id": "", "name": "x", "args": 7},
            "metadata": {"adk_type": "function_call", "adk_is_long_running": True},
        },
        {"data": {"request": 7, "status": "awaiting_approval", "confirmationDetails": {}}},
        {"data": [1]},
        {"text": "Name?", "metadata": {"adk_type": "function_call"}},
    ],
)
def test_malformed_form_is_a_plain_question(part: dict[str, Any]) -> None:
    [question] = questions_in(status_asking(part))
    assert question.extra == {"a2a": {"messageId": "m"}}


def test_declined_approval_is_rejected() -> None:
    form = {"as": "decision", "uri": APPROVAL}
    declined = InterruptAnswered(interrupt_id="i", action="decline", value="yes")
    assert encode_answers([(form, declined)]).metadata == {APPROVAL: {"decision": "reject"}}
