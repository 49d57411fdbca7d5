"""The client: a scripted coding agent in processes, and what the gateway reads from it and does for it."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from babelgate.adapters.agent_client.read.tools import diff_text
from babelgate.canonical import Ask, FaultCode, FaultError, Message, RunEnded, RunStatus
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    LossNoted,
    MessageStarted,
    Native,
    PartAdded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from tests import loopback
from tests.adapters.agent_client.coder import DECLINED, Coder, coding, file_message, of_kind, settings_of, text_of
from tests.adapters.agent_client.editor import RpcError, choose, editing
from tests.adapters.agent_client.socket_host import socket_client
from tests.gateway.agents.processes.test_agent import gone
from tests.gateway.command import PROGRAM, ROOT, served_in_loop
from tests.gateway.hubs import eventually
from tests.gateway.talk import within
from tests.pairs.a2a import JsonRpc10
from tests.running import running

PRIVATE = "a-secret-of-the-model"


async def test_every_kind_of_update_is_read(tmp_path: Path) -> None:
    async with coding(tmp_path) as coder:
        events = await coder.say("work")
    kinds = [each.part.kind for each in of_kind(PartAdded, events)]
    assert (kinds, text_of(events)) == (["reasoning", "text"], "Hm.Done.")
    assert [each.name for each in of_kind(StepStarted, events)] == ["read", "write"]
    assert len(of_kind(StepEnded, events)) == 2
    edit, tests = of_kind(ToolStarted, events)
    assert (edit.name, edit.input, tests.name) == ("Edit a.py", {"path": "a.py"}, "Run tests")
    edited, failed = of_kind(ToolEnded, events)
    assert edited.output == {"ok": True} and failed.fault.message == "1 failed"
    (diff,) = of_kind(ArtifactAdded, events)
    assert diff.name == "/w/a.py" and diff.part.text.splitlines()[2:] == ["@@ -1,2 +1,2 @@", " one", "-two", "+2"]
    names = {each.name for each in of_kind(Custom, events)}
    assert names == {"available_commands", "plan", "usage"}
    assert [each.event for each in of_kind(Native, events)] == ["unheard_of"]
    (ended,) = of_kind(RunEnded, events)
    assert ended.usage["total_tokens"] == 7 and ended.usage["output_tokens_details"] == {"reasoning_tokens": 1}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, "a\n", ["--- /dev/null", "+++ f", "@@ -0,0 +1,1 @@", "+a"]),
        ("a\n", "", ["--- f", "+++ f", "@@ -1,1 +0,0 @@", "-a"]),
        ("a", "a\nb", ["--- f", "+++ f", "@@ -1,1 +1,2 @@", "-a", "\\ No newline at end of file"]),
        ("1\n2\n3\n4\n5\n6\n", "1\n2\n3\n4\n5\nx\n", ["--- f", "+++ f", "@@ -3,4 +3,4 @@", " 3", " 4", " 5", "-6"]),
    ],
)
def test_a_change_is_a_unified_diff(old: str | None, new: str, expected: list[str]) -> None:
    assert diff_text("f", old, new).splitlines()[: len(expected)] == expected


@pytest.mark.parametrize(
    ("text", "value", "chosen"),
    [
        ("ask", True, "yes"),
        ("ask", False, "no"),
        ("ask", DECLINED, "no"),
        ("ask3", "always", "always"),
        ("ask3", "yes", "yes"),
        ("ask3", DECLINED, "no"),
    ],
)
async def test_a_permission_is_a_question(tmp_path: Path, text: str, value: Any, chosen: str) -> None:
    async with coding(tmp_path) as coder:
        paused = await coder.say(text)
        (question,) = of_kind(InterruptRaised, paused)
        answered = await coder.answer([question], value)
    assert question.ask == "approval" and question.message.text.startswith("Allow ")
    assert question.answer_schema == ({"type": "boolean"} if text == "ask" else {"enum": ["always", "yes", "no"]})
    assert not of_kind(RunEnded, paused) and text_of(answered) == f"chosen {chosen}"
    for events in (paused, answered):
        assert len(of_kind(ToolStarted, events)) == len(of_kind(ToolEnded, events))


async def test_concurrent_questions_are_answered_together(tmp_path: Path) -> None:
    async with coding(tmp_path) as coder:
        questions = of_kind(InterruptRaised, await coder.say("ask_two"))
        while True:  # the second request may come after the run has paused
            events = await coder.answer(questions, *([True] * len(questions)))
            if not (questions := of_kind(InterruptRaised, events)):
                break
    assert text_of(events) == "chosen yes yes"


@pytest.mark.parametrize(("value", "action"), [({"name": "Ada"}, "accept"), (DECLINED, "decline")])
async def test_a_form_is_a_question(tmp_path: Path, value: Any, action: str) -> None:
    async with coding(tmp_path) as coder:
        (question,) = of_kind(InterruptRaised, await coder.say("form"))
        answered = json.loads(text_of(await coder.answer([question], value)))
    assert question.message.text == "Who?" and question.answer_schema["required"] == ["name"]
    assert answered == ({"action": action, "content": value} if action == "accept" else {"action": action})


@pytest.mark.parametrize(("permissions", "chosen"), [("allow", "yes"), ("reject", "no")])
async def test_settings_can_decide_all_permissions(tmp_path: Path, permissions: str, chosen: str) -> None:
    async with coding(tmp_path, coding={"permissions": permissions}) as coder:
        for text in ("ask", "ask3"):
            assert text_of(await coder.say(text)) == f"chosen {chosen}"


async def test_a_new_input_supersedes_an_open_question(tmp_path: Path) -> None:
    async with coding(tmp_path) as coder:
        await coder.say("ask")
        assert text_of(await coder.say("echo on")) == "on"
        await coder.say("ask")
        coder.client.forget("default", coder.tasks["t"])
        assert text_of(await coder.say("where")).startswith("{")


async def test_a_cancelled_turn_ends_and_its_session_continues(tmp_path: Path) -> None:
    async with coding(tmp_path) as coder:
        pid = json.loads(text_of(await coder.say("where")))["pid"]
        run = coder.run(coder.call("hang"))
        async for event in run:
            if text_of([event]) == "working":
                break
        await run.aclose()
        assert json.loads(text_of(await coder.say("where")))["pid"] == pid


async def test_a_process_that_ignores_a_cancel_is_ended(tmp_path: Path) -> None:
    async with coding(tmp_path) as coder:
        pid = json.loads(text_of(await coder.say("where")))["pid"]
        run = coder.run(coder.call("deaf"))
        async for event in run:
            if text_of([event]) == "working":
                break
        await run.aclose()
        await within(gone(pid))
        assert text_of(await coder.say("echo on")) == "on"


async def test_a_crash_fails_its_run_alone(tmp_path: Path) -> None:
    async with coding(tmp_path / "{thread}") as coder:
        other = coder.run(coder.call("ask", "other"))
        paused = [event async for event in other]
        with pytest.raises(FaultError, match="was killed by SIGABRT during the run") as caught:
            await coder.say("crash")
        assert caught.value.fault.code is FaultCode.AGENT_FAILED
        assert json.loads(text_of(await coder.say("prompts"))) == ["crash", "prompts"], "the session is loaded again"
        assert text_of(await coder.answer(of_kind(InterruptRaised, paused), True, thread="other")) == "chosen yes"


async def test_a_question_is_lost_with_its_process(tmp_path: Path) -> None:
    async with coding(tmp_path) as coder:
        pid = json.loads(text_of(await coder.say("where")))["pid"]
        (question,) = of_kind(InterruptRaised, await coder.say("ask"))
        sessions = getattr(coder.client, "_sessions")  # noqa: B009  private: nothing reports that its output has ended
        os.kill(pid, signal.SIGKILL)
        await within(gone(pid))
        await within(eventually(lambda: not any(each.is_alive for each in sessions.values())))
        with pytest.raises(FaultError, match="Send a new message, which continues its session") as caught:
            await coder.answer([question], True)
        assert caught.value.fault.code is FaultCode.AGENT_NOT_REPLAYABLE
        assert text_of(await coder.say("echo on")) == "on"


async def test_callers_learn_how_to_continue_after_a_lost_question(tmp_path: Path) -> None:
    configured = {"coder": settings_of(tmp_path / "{thread}")}
    async with running(tmp_path, configured=configured) as gateway, editing(gateway.url, "coder") as editor:
        await editor.initialize()
        session_id = await editor.new_session()
        await editor.prompt(session_id, "ask")  # the editor dismisses the request, so the question stays open
        before = JsonRpc10(gateway.http, "coder")
        paused = await before.send("ask")
    async with (
        running(tmp_path, configured=configured) as gateway,
        editing(gateway.url, "coder", choose("yes")) as editor,
    ):
        await editor.initialize()
        with pytest.raises(RpcError, match=r"The question is void, .* Send a new message"):
            await editor.call("_babelgate/attach", sessionId=session_id)  # asks the question again
        editor.messages.clear()
        await editor.prompt(session_id, "prompts")
        after = JsonRpc10(gateway.http, "coder")
        after.context_id = before.context_id
        failed = await after.answer(paused, "yes")
        continued = await after.send("prompts")
    assert failed.state == "failed" and "Send a new message, which continues its session" in failed.fault
    assert json.loads(continued.text) == json.loads(editor.text) == ["ask", "prompts"]


async def test_earlier_messages_are_in_the_prompt_of_a_new_session(tmp_path: Path) -> None:
    history = (Message.of("One", "user"), Message.of("Two"))
    async with coding(tmp_path) as coder:
        events = await coder.say("prompts", history=history)
    (prompt,) = json.loads(text_of(events))
    assert "User: One" in prompt and "Assistant: Two" in prompt and prompt.endswith("prompts")
    assert [each.feature for each in of_kind(LossNoted, events)] == ["history"]


async def test_an_idle_process_is_ended_and_its_session_loaded(tmp_path: Path) -> None:
    async with coding(tmp_path / "{thread}", coding={"processes": 1}) as coder:
        pid = json.loads(text_of(await coder.say("where")))["pid"]
        await coder.say("echo", "other")
        await within(gone(pid))
        assert json.loads(text_of(await coder.say("prompts"))) == ["where", "prompts"]
        await coder.say("ask", "other")
        with pytest.raises(FaultError, match="All 1 processes of agent coder are in use"):
            await coder.say("echo")


@pytest.mark.parametrize(
    ("arguments", "settings", "code", "words"),
    [
        (["login"], {}, FaultCode.AGENT_FAILED, "requires a login. .* Log in with an account"),
        (["exit"], {}, FaultCode.AGENT_UNREACHABLE, "ended with status 3 before its session was open"),
        (["silent"], {"start_timeout": 0.5}, FaultCode.AGENT_TIMEOUT, "has not opened a session within 0.5 s"),
        (["v2"], {}, FaultCode.AGENT_INVALID, "speaks version 2"),
        ([], {"coding": {"mode": "swim"}}, FaultCode.AGENT_FAILED, "no mode 'swim'. It has: code, plan"),
    ],
)
async def test_an_agent_that_opens_no_session_is_reported(
    tmp_path: Path, arguments: list[str], settings: dict[str, Any], code: FaultCode, words: str
) -> None:
    async with coding(tmp_path, *arguments, **settings) as coder:
        with pytest.raises(FaultError, match=words) as caught:
            await coder.say("echo")
    assert caught.value.fault.code is code


async def test_the_mode_of_the_settings_is_set(tmp_path: Path) -> None:
    async with coding(tmp_path, coding={"mode": "plan"}) as coder:
        assert json.loads(text_of(await coder.say("where")))["mode"] == "plan"


async def test_silence_ends_a_run(tmp_path: Path) -> None:
    async with coding(tmp_path, timeout={"read": 2}) as coder:
        with pytest.raises(FaultError, match="has been silent for 2 s"):
            await coder.say("hang")


async def test_an_error_hides_the_secrets_of_the_agent(tmp_path: Path) -> None:
    async with coding(tmp_path, env={"MODEL_KEY": PRIVATE}) as coder:
        with pytest.raises(FaultError) as caught:
            await coder.say("refuse")
        assert (await coder.say("limit"))[-1] is not None
    assert caught.value.fault.message == "no model: ***"


async def test_the_environment_is_the_list_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BABELGATE_TEST_SECRET", "hidden")
    async with coding(tmp_path / "{thread}", env={"MODEL_KEY": PRIVATE}) as coder:
        found = json.loads(text_of(await coder.say("where")))
    assert found["env"]["MODEL_KEY"] == PRIVATE and "BABELGATE_TEST_SECRET" not in found["env"]
    assert Path(found["cwd"]).parent == tmp_path and found["permissions"] == "700"


# Another gateway


async def both(text: str) -> AsyncGenerator[Any, Any]:
    """Ask two questions at once: one that is a permission request, and one that only a prompt can answer."""
    allowed, key = yield [Ask("May I?", kind="approval"), Ask("Which key?", kind="auth")]
    yield f"{allowed} {key}"


@pytest.mark.parametrize("is_lost", [False, True])
async def test_answers_without_a_request_are_sent_by_a_prompt(tmp_path: Path, is_lost: bool) -> None:
    async with running(tmp_path, {"both": both}) as gateway:
        client = socket_client(gateway.url, "both")
        coder = Coder(client)
        questions = of_kind(InterruptRaised, await coder.say("go"))
        if is_lost:
            await client.aclose()
        events = await coder.answer(questions, True, "k1")
        await client.aclose()
    assert len(questions) == 2 and text_of(events) == "True k1" and not of_kind(InterruptRaised, events)


async def test_an_agent_of_another_gateway_is_a_program(tmp_path: Path) -> None:
    async with running(tmp_path, {"both": both}) as gateway:
        command = [*PROGRAM, "acp", "both", "--url", gateway.url]
        async with coding(tmp_path, command=command, env={"PYTHONPATH": str(ROOT)}) as coder:
            questions = of_kind(InterruptRaised, await coder.say("go"))
            events = await coder.answer(questions, True, "k1")
    assert text_of(events) == "True k1"


# Files and terminals


@pytest.mark.parametrize(
    ("files", "terminals", "offered", "refused"),
    [
        ("none", False, {}, ["read a.txt", "write b.txt", "run true"]),
        ("read", False, {"fs": {"readTextFile": True, "writeTextFile": False}}, ["write b.txt", "run true"]),
        ("write", True, {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}, []),
    ],
)
async def test_files_and_terminals_are_refused_unless_allowed(
    tmp_path: Path, files: str, terminals: bool, offered: dict[str, Any], refused: list[str]
) -> None:
    async with coding(tmp_path, coding={"files": files, "terminals": terminals}) as coder:
        capabilities = json.loads(text_of(await coder.say("offered")))
        answers = [text_of(await coder.say(text)) for text in refused]
    assert {name: value for name, value in capabilities.items() if name in ("fs", "terminal")} == offered
    assert all(answer.startswith("error -32601") for answer in answers) and not (tmp_path / "b.txt").exists()


async def test_files_are_read_and_written_within_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "deep").mkdir(parents=True)
    outside = tmp_path / "outside.txt"
    outside.write_text("private")
    (folder / "a.txt").write_text("inside")
    (folder / "link").symlink_to(tmp_path)
    (folder / "link.txt").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    (folder / "big").write_bytes(b"x" * (8 * 2**20 + 1))
    (folder / "binary").write_bytes(b"\xff")
    paths = (f"{tmp_path}/outside.txt", "../outside.txt", "link/outside.txt", "link.txt", "deep/../../outside.txt")
    async with coding(folder, coding={"files": "write"}) as coder:
        assert text_of(await coder.say(f"read {folder}/a.txt")) == "inside"
        assert text_of(await coder.say("write new/b.txt")) == "done"
        for path in paths:
            for word in ("read", "write"):
                assert "is not in the folder of the agent" in text_of(await coder.say(f"{word} {path}"))
        for path, words in (
            ("none", "There is no file"),
            ("pipe", "is not a file"),
            ("big", "larger than"),
            ("binary", "UTF-8"),
        ):
            assert words in text_of(await coder.say(f"read {path}"))
    assert (folder / "new" / "b.txt").read_text() == "written" and outside.read_text() == "private"


async def test_terminals_are_limited_and_end_with_the_process(tmp_path: Path) -> None:
    async with coding(tmp_path, coding={"terminals": True}) as coder:
        events = await coder.say("run echo 0123456789; exit 3")
        assert json.loads(text_of(events)) == [{"exitCode": 3}, "3456789\n", True]
        assert of_kind(ToolEnded, events)[0].output == "3456789\n"
        pid = int(text_of(await coder.say("sleep")))
        await asyncio.wait_for(asyncio.to_thread(os.kill, pid, 0), 5)
    await within(gone(pid))


async def test_files_of_a_caller_are_blocks_or_losses(tmp_path: Path) -> None:
    async with coding(tmp_path) as coder:
        image = await coder.say(file_message("a.png", "image/png", b"\x89PNG"))
        text = await coder.say(file_message("a.txt", "text/plain", b"hello"))
        audio = await coder.say(file_message("a.wav", "audio/wav", b"RIFF"))
    assert text_of(image) == "<image>" and text_of(text) == "<resource>"
    assert [each.feature for each in of_kind(LossNoted, audio)] == ["file-bytes"]


async def test_a_message_longer_than_a_buffer_arrives(tmp_path: Path) -> None:
    async with coding(tmp_path) as coder:
        events = await coder.say(f"big {3 * 2**20}")
    assert len(text_of(events)) == 3 * 2**20 and len(of_kind(MessageStarted, events)) == 1


async def test_a_limited_answer_is_marked(tmp_path: Path) -> None:
    async with coding(tmp_path) as coder:
        assert not any(each.status is RunStatus.ERROR for each in of_kind(RunEnded, await coder.say("limit")))


# An editor in front


async def test_an_editor_sees_commands_and_unknown_updates_of_the_agent(tmp_path: Path) -> None:
    async with (
        running(tmp_path, configured={"coder": settings_of(tmp_path / "{thread}")}) as gateway,
        editing(gateway.url, "coder") as editor,
    ):
        await editor.initialize()
        await editor.prompt(await editor.new_session(), "work")
    updates = {each["sessionUpdate"]: each for each in editor.updates}
    assert updates["available_commands_update"]["availableCommands"][0]["name"] == "review"
    assert updates["usage_update"]["size"] == 100 and updates["unheard_of"] == {"sessionUpdate": "unheard_of", "a": 1}


# A killed gateway


@pytest.mark.slow
async def test_processes_end_with_a_killed_gateway(tmp_path: Path) -> None:
    """Kill a gateway in the middle of a run. Its process ends, and the next gateway continues the session."""
    agents = {"coder": settings_of(tmp_path / "{thread}")}
    (tmp_path / "babelgate.yaml").write_text(json.dumps({"agents": agents, "database": f"sqlite:///{tmp_path}/db"}))
    thread = str(uuid4())
    async with served_in_loop(tmp_path) as gateway:
        async with loopback.client(base_url=gateway.url, timeout=30) as http:
            pid = json.loads(await wait_for_text(http, thread, "where"))["pid"]
            body = run_body("hang")
            async with http.stream("POST", f"/threads/{thread}/runs/stream", json=body) as response:
                async for line in response.aiter_lines():
                    if "working" in line:
                        break
                gateway.process.kill()
        await within(gone(pid))
    async with served_in_loop(tmp_path) as gateway, loopback.client(base_url=gateway.url, timeout=30) as http:
        assert json.loads(await wait_for_text(http, thread, "prompts")) == ["where", "hang", "prompts"]


def run_body(text: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {
        "assistant_id": "coder",
        "input": {"messages": messages},
        "if_not_exists": "create",
        "stream_mode": "messages",
    }


async def wait_for_text(http: httpx.AsyncClient, thread: str, text: str) -> str:
    """Return the answer of the agent on a thread."""
    response = await http.post(f"/threads/{thread}/runs/wait", json=run_body(text))
    return response.json()["messages"][-1]["content"]
