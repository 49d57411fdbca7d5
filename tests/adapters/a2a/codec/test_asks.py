"""Questions of other frameworks: each is asked in words and with a schema, and answered in the form that it takes."""

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


def asked(*replies: Any) -> list[InterruptRaised]:
    reader = EventReader(RUN)
    return [event for reply in replies for event in reader.read(reply) if isinstance(event, InterruptRaised)]


def properties_of(question: InterruptRaised) -> Any:
    assert question.answer_schema is not None
    return question.answer_schema["properties"]


def asking(*parts: dict[str, Any], state: str = "TASK_STATE_INPUT_REQUIRED", **message: Any) -> dict[str, Any]:
    said = {"messageId": "m", "role": "ROLE_AGENT", "parts": list(parts), **message}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": state, "message": said}}}


async def answered(questions: list[InterruptRaised], *values: Any, said: tuple[Part, ...] = ()) -> dict[str, Any]:
    """The message in which the values go out."""
    ids = [question.interrupt_id or f"i{at}" for at, question in enumerate(questions)]
    past = [
        Record(at, at, "k", RUN, 1, question.replace(interrupt_id=ids[at])) for at, question in enumerate(questions)
    ]
    answers = tuple(InterruptAnswered(interrupt_id=each, value=value) for each, value in zip(ids, values, strict=True))
    words = Message(role="user", parts=said) if said else Message.of(str(values[0]), "user")
    call = Invocation(
        agent="far",
        thread_id="h",
        task_id="k",
        run_id="r",
        answers=answers,
        input=RunInput(messages=(words,)),
        upstream={"task": "t", "context": "c"},
    )
    sent = request(call, past, v1_0.Codec("", "far"), streams=True)
    assert sent["message"]["taskId"] == "t"
    return sent["message"]


@pytest.mark.parametrize("name", ["adk_confirm", "adk_new_confirm"])
async def test_a_confirmation_of_adk_is_an_approval_and_answered_by_a_function_response(name: str) -> None:
    [question] = asked(*recorded(name))
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
        [part] = (await answered([question], value))["parts"]
        assert part["metadata"] == {"adk_type": "function_response"}
        assert part["data"] == {
            "id": question.interrupt_id,
            "name": "adk_request_confirmation",
            "response": {"confirmed": confirmed},
        }


@pytest.mark.parametrize("name", ["adk_ask", "adk_new_ask"])
async def test_a_tool_of_adk_that_waits_is_a_question_and_its_result_the_answer(name: str) -> None:
    [question] = asked(*recorded(name))
    assert (question.ask, question.message.text) == ("input", 'ask_boss({"question": "ok?"})')
    assert question.value == {"name": "ask_boss", "args": {"question": "ok?"}}
    for value, response in (("fine", {"result": "fine"}), ({"ok": 1}, {"ok": 1})):
        [part] = (await answered([question], value))["parts"]
        assert part["data"] == {"id": "c5", "name": "ask_boss", "response": response}


async def test_a_caller_who_speaks_the_askers_form_is_not_translated() -> None:
    [question] = asked(*recorded("adk_ask"))
    data: JsonObject = {"id": "c5", "name": "ask_boss", "response": {"own": True}}
    spoken = DataPart(data=data, metadata={"adk_type": "function_response"})
    [part] = (await answered([question], data, said=(spoken,)))["parts"]
    assert part == {"data": data, "metadata": {"adk_type": "function_response"}}


def test_a_thought_of_adk_beside_its_question_is_not_asked() -> None:
    thought = {"text": "I should ask.", "metadata": {"adk_thought": True}}
    [question] = asked(*recorded("adk_ask")[:-1], asking(thought, *_call_of("adk_ask")))
    assert question.message.text == 'ask_boss({"question": "ok?"})'


def _call_of(name: str) -> list[JsonObject]:
    return recorded(name)[-1]["statusUpdate"]["status"]["message"]["parts"]


async def test_adk_asks_for_input_with_a_schema_and_for_credentials() -> None:
    waiting = {"adk_type": "function_call", "adk_is_long_running": True}
    args: JsonObject = {"message": "Which city?", "response_schema": {"type": "string"}}
    data = {"id": "c1", "name": "adk_request_input", "args": args}
    [question] = asked(asking({"data": data, "metadata": waiting}))
    assert (question.message.text, question.answer_schema) == ("Which city?", {"type": "string"})
    credential: JsonObject = {"id": "c2", "name": "adk_request_credential", "args": {"authConfig": {}}}
    [wanted] = asked(asking({"data": credential, "metadata": waiting}, state="TASK_STATE_AUTH_REQUIRED"))
    assert wanted.ask == "auth"


async def test_an_interrupt_of_strands_is_answered_by_its_id_and_several_in_one_message() -> None:
    told: list[JsonObject] = [
        {"interruptId": "v1:a", "name": "approval", "reason": "May I?"},
        {"interruptId": "v1:b", "name": "city", "reason": None},
    ]
    words = "Agent requires input:\n- approval: May I?\n- city"
    questions = asked(asking({"text": words}, {"data": {"interrupts": told}}))
    assert [question.message.text for question in questions] == [words, "city"]
    parts = (await answered(questions, "y", {"city": "Rome"}))["parts"]
    assert [part["data"] for part in parts] == [
        {"interruptResponse": {"interruptId": "v1:a", "response": "y"}},
        {"interruptResponse": {"interruptId": "v1:b", "response": {"city": "Rome"}}},
    ]


async def test_a_form_of_agentstack_is_a_schema_and_text_fills_its_first_field() -> None:
    [question] = asked(*recorded("agentstack_form"))
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
        assert (await answered([question], value))["metadata"] == {FORM: {"values": values}}


async def test_an_approval_of_agentstack_is_answered_by_a_decision() -> None:
    [question] = asked(*recorded("agentstack_approve"))
    assert (question.ask, question.message.text) == ("approval", 'rm({"p": 1})')
    assert (await answered([question], "Yes."))["metadata"] == {APPROVAL: {"decision": "approve"}}
    assert (await answered([question], {"decision": "reject"}))["metadata"] == {APPROVAL: {"decision": "reject"}}


@pytest.mark.parametrize("origin", ["agentstack.beeai.dev", "adk.kagenti.dev", "beeai.dev"])
async def test_a_call_that_agentstack_wants_accepted_is_answered_by_an_action(origin: str) -> None:
    uri = f"https://a2a-extensions.{origin}/tools/call/v1"
    call = {"name": "rm", "title": "Remove", "description": "For good.", "input": {"p": 1}, "server": {"name": "s"}}
    [question] = asked(asking(metadata={uri: call}))
    assert (question.ask, question.message.text) == ("approval", 'Remove\nFor good.\nrm({"p": 1})')
    assert properties_of(question) == {"action": {"type": "string", "enum": ["accept", "reject"]}}
    for value, action in (("ok", "accept"), ({"action": "accept"}, "accept"), ("Why?", "reject")):
        assert (await answered([question], value))["metadata"] == {uri: {"action": action}}


async def test_every_field_of_a_form_has_a_schema_and_its_answer_the_type_of_the_field() -> None:
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
    [question] = asked(asking(metadata={uri: {"title": "All", "fields": fields}}))
    assert properties_of(question) == {
        "t": {"title": "T", "type": "string"},
        "d": {"type": "string", "format": "date"},
        "f": {"type": "string", "format": "uri"},
        "m": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        "c": {"type": "boolean"},
        "g": {"type": "object", "properties": {"x": {"type": "boolean"}}},
    }
    told = {"t": "x", "d": "2026-01-01", "m": ["a"], "c": True, "g": {"x": True}}
    sent = (await answered([question], told))["metadata"][uri]["values"]
    kinds = {"t": "text", "d": "date", "m": "multiselect", "c": "checkbox", "g": "checkbox_group"}
    assert sent == {name: {"type": kind, "value": told[name]} for name, kind in kinds.items()}


def test_what_is_asked_for_is_told_where_the_message_says_its_title_alone_or_nothing_of_it() -> None:
    form: JsonObject = {"title": "Who?", "description": "For the ticket.", "fields": []}
    call: JsonObject = {"title": "Wipe a disk", "name": "wipe", "input": {"disk": "sda"}}
    for message, told, words in (
        ("Who?", {FORM: form}, "Who?\nFor the ticket."),
        ("Tell me who.", {FORM: form}, "Tell me who."),
        ("Approval requested", {APPROVAL: call}, 'Wipe a disk\nwipe({"disk": "sda"})'),
        ("Shall I?", {APPROVAL: call}, "Shall I?"),
    ):
        [question] = asked(asking({"text": message}, metadata=told))
        assert question.message.text == words


async def test_the_calls_that_kagent_wants_approved_are_answered_in_one_message() -> None:
    tools: list[JsonObject] = [
        {"id": "1", "call_id": "c1", "name": "rm", "args": {}},
        {"id": "2", "call_id": "c2", "name": "ls", "args": {}},
    ]
    asks: JsonObject = {"type": "tool_approval_request", "tools": tools}
    questions = asked(asking(metadata={KAGENT: asks}, extensions=[KAGENT]))
    assert [question.message.text for question in questions] == ["rm({})", "ls({})"]
    sent = await answered(questions, "Too dangerous.", {"approved": True})
    assert sent["extensions"] == [KAGENT]
    assert sent["metadata"][KAGENT] == {
        "type": "tool_approval_response",
        "approvals": [
            {"id": "1", "approved": False, "rejection_reason": "Too dangerous."},
            {"id": "2", "approved": True},
        ],
    }


async def test_kagents_questions_to_the_user_are_answered_in_their_order() -> None:
    told: list[JsonObject] = [
        {"question": "Which?", "choices": ["a", "b"], "multiple": True},
        {"question": "Why?", "choices": []},
    ]
    asks: JsonObject = {"type": "ask_user_request", "id": "q", "questions": told}
    first, second = questions = asked(asking(metadata={KAGENT: asks}))
    assert first.answer_schema == {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    assert second.answer_schema is None
    assert (await answered(questions, ["a", "b"], "So."))["metadata"][KAGENT] == {
        "type": "ask_user_response",
        "id": "q",
        "answers": [{"answer": ["a", "b"]}, {"answer": ["So."]}],
    }


def test_what_an_agent_within_one_of_kagent_would_call_is_told_with_the_question() -> None:
    nested = {"subagent_name": "cleaner", "task_id": "t2", "tools": [{"id": "9", "name": "rm", "args": {"p": "a"}}]}
    tools: list[JsonObject] = [{"id": "1", "call_id": "c1", "name": "delegate", "args": {}}]
    asks: JsonObject = {"type": "tool_approval_request", "tools": tools, "nested": nested}
    [question] = asked(asking(metadata={KAGENT: asks}))
    assert question.message.text == 'delegate({})\ncleaner: rm({"p": "a"})'
    asks = {"type": "ask_user_request", "id": "q", "questions": [{"question": "Which?"}], "nested": nested}
    [question] = asked(asking(metadata={KAGENT: asks}))
    assert question.message.text == "cleaner: Which?"


def interrupt(**told: Any) -> dict[str, Any]:
    """As opencode-a2a asks: in an update without a message."""
    status = {"state": "TASK_STATE_INPUT_REQUIRED"}
    beside = {"shared": {"interrupt": {"request_id": "r1", "phase": "asked", **told}}}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status, "metadata": beside}}


def test_opencode_asks_for_a_permission_with_the_replies_that_there_are() -> None:
    [question] = asked(interrupt(type="permission", details={"permission": "bash", "patterns": ["rm *", "ls"]}))
    assert (question.ask, question.message.text, question.interrupt_id) == ("approval", "bash: rm *, ls", "r1")
    assert properties_of(question) == {"reply": {"type": "string", "enum": ["once", "always", "reject"]}}


def test_opencode_asks_several_questions_at_once_and_a_list_answers_each() -> None:
    options = [{"label": "a", "description": "The first."}, {"value": "b"}]
    told = [{"question": "Which?", "options": options}, {"header": "Why?"}]
    [question] = asked(interrupt(type="question", details={"questions": told}))
    assert (question.ask, question.message.text) == ("input", "Which? (a, b)\nWhy?")
    answers = {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}
    assert properties_of(question) == {"answers": answers}


def test_what_was_settled_with_opencode_is_not_asked_again() -> None:
    [question] = asked(interrupt(type="permission", phase="resolved", resolution="replied"))
    assert (question.ask, question.message.text, question.answer_schema) == ("input", "", None)


async def test_a_confirmation_of_gemini_cli_is_answered_by_an_outcome() -> None:
    call = {"callId": "c1", "name": "shell", "args": {"command": "ls"}}
    data = {"request": call, "status": "awaiting_approval", "confirmationDetails": {"type": "exec"}}
    [question] = asked(asking({"data": data}))
    assert (question.ask, question.message.text) == ("approval", 'shell({"command": "ls"})')
    always = {"outcome": "proceed_always"}
    for value, outcome in (("yes", "proceed_once"), ("no", "cancel"), (always, "proceed_always")):
        assert (await answered([question], value))["parts"] == [{"data": {"callId": "c1", "outcome": outcome}}]


async def test_secrets_and_authorizations_of_agentstack_are_asked_as_such() -> None:
    base = "https://a2a-extensions.agentstack.beeai.dev/auth"
    demands = {"secret_demands": {"k": {"name": "Key", "description": "A key"}}}
    [question] = asked(asking(metadata={f"{base}/secrets/v1": demands}, state="TASK_STATE_AUTH_REQUIRED"))
    assert question.ask == "auth"
    fulfilled = {f"{base}/secrets/v1": {"secret_fulfillments": {"k": {"secret": "s"}}}}
    assert (await answered([question], "s"))["metadata"] == fulfilled
    url = {"authorization_endpoint_url": "https://e.org/login"}
    [question] = asked(asking(metadata={f"{base}/oauth/v1": url}, state="TASK_STATE_AUTH_REQUIRED"))
    assert question.message.text == "https://e.org/login"
    assert (await answered([question], "https://e.org/back"))["metadata"] == {
        f"{base}/oauth/v1": {"redirect_uri": "https://e.org/back"}
    }


async def test_the_schema_of_langgraph_is_a_schema_and_the_answer_stays_plain() -> None:
    schema = {"type": "string"}
    [question] = asked(asking({"data": {"id": "1", "value": "Name?", "response_schema": schema}}))
    assert (question.interrupt_id, question.answer_schema) == ("1", schema)
    assert (await answered([question], "Ada"))["parts"] == [{"text": "Ada"}]


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
def test_what_only_looks_like_a_form_is_the_plain_question_that_it_was(part: dict[str, Any]) -> None:
    [question] = asked(asking(part))
    assert question.extra == {"a2a": {"messageId": "m"}}


def test_what_is_declined_is_answered_by_a_no() -> None:
    form = {"as": "decision", "uri": APPROVAL}
    declined = InterruptAnswered(interrupt_id="i", action="decline", value="yes")
    assert encode_answers([(form, declined)]).metadata == {APPROVAL: {"decision": "reject"}}
