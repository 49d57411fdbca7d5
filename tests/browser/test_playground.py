"""Conversations with agents in the playground: questions, files, tools of the caller, cancels and forks."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Tab, expect


def send(tab: Tab, agent: str, text: str) -> None:
    tab.open(f"agents/{agent}/try")
    tab.message.fill(text)
    tab.button("Send").click()


def answer(tab: Tab) -> Any:
    """Return the form of the open question."""
    return tab.page.locator("[data-answered=no]")


def fill_text(tab: Tab) -> str:
    answer(tab).get_by_label("Answer").last.fill("Ada")
    return "Ada"


def fill_approval(tab: Tab) -> dict[str, Any]:
    tab.see("alice@example.com")
    form = answer(tab)
    form.get_by_label("note").fill("far too long for this note")
    form.get_by_label("yes").check()
    tab.button("Answer").click()
    expect(form.get_by_role("alert")).to_contain_text("note")
    form.get_by_label("note").fill("go on")
    return {"approved": True, "note": "go on"}


def fill_choice(tab: Tab) -> str:
    answer(tab).get_by_label("green").check()
    return "green"


def fill_number(tab: Tab) -> int:
    form = answer(tab)
    form.get_by_label("Answer").last.fill("10")
    tab.button("Answer").click()
    expect(form.get_by_role("alert")).to_contain_text("9")
    form.get_by_label("Answer").last.fill("7")
    return 7


def fill_object(tab: Tab) -> dict[str, Any]:
    form = answer(tab)
    form.get_by_label("Street").fill("Main St 1")
    form.get_by_label("France").check()
    tab.button("Add Lines").or_(tab.button("Add Line")).first.click()
    form.get_by_label("Line 1").fill("second floor")
    return {"street": "Main St 1", "country": "fr", "lines": ["second floor"]}


def fill_json(tab: Tab) -> dict[str, Any]:
    editor = answer(tab).locator("textarea")
    editor.fill('{"x-a":')
    tab.button("Answer").click()
    expect(editor).to_have_attribute("aria-invalid", "true")
    editor.fill('{"x-a": 1}')
    return {"x-a": 1}


@pytest.mark.parametrize("kind", ["text", "approval", "choice", "number", "object", "json"])
def test_question_of_each_kind_is_answered(tab: Tab, kind: str) -> None:
    send(tab, "question", kind)
    expected = globals()[f"fill_{kind}"](tab)
    tab.button("Answer").click()
    tab.see(f"Answer: {json.dumps(expected, sort_keys=True)}")
    expect(tab.page.locator("[data-answered=answer]")).to_be_visible()
    expect(tab.page.locator("[data-announcer]")).to_have_text("done")


def test_declined_question_ends_the_run(tab: Tab) -> None:
    send(tab, "question", "text")
    tab.button("Decline").click()
    tab.see('Answer: "declined"')
    expect(tab.page.locator("[data-answered=decline]")).to_be_visible()


def test_two_questions_are_answered_one_after_the_other(tab: Tab) -> None:
    send(tab, "approve", "Go")
    for number in range(2):
        question = tab.page.locator("[data-question]").nth(number)
        question.get_by_label("yes").check()
        question.get_by_role("button", name="Answer").click()
        expect(question).to_have_attribute("data-answered", "answer")
    tab.see("write: approved")
    tab.see("send: approved")
    expect(tab.page.locator("[data-answered=answer]")).to_have_count(2)


def test_files_are_sent_and_downloaded(tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "map.txt").write_text("a map")
    tab.open("agents/files/try")
    tab.page.locator("input[type=file]").set_input_files(tmp_path / "map.txt")
    tab.see("map.txt")
    tab.message.fill("the report")
    tab.button("Send").click()
    for name, content in {"report.txt": "the report", "map.txt": "a map"}.items():
        with tab.page.expect_download() as download:
            tab.button(f"Download {name}").last.click()
        assert download.value.suggested_filename == name
        assert Path(download.value.path()).read_text() == content


def test_tool_of_the_caller_returns_its_result(tab: Tab) -> None:
    tab.open("agents/tool/try")
    tab.button("Options").click()
    tab.field("Tools").fill('[{"name": "weather", "parameters": {"type": "object"}}]')
    tab.message.fill("Paris")
    tab.button("Send").click()
    tab.see("calls your tool")
    tab.see("Paris")
    answer(tab).get_by_label("Result").fill("sunny")
    tab.button("Send the result").click()
    tab.see("It is sunny.")


def test_cancel_ends_an_active_run(tab: Tab) -> None:
    send(tab, "halting", "never")
    tab.see("w19")
    tab.button("Cancel run").click()
    expect(tab.page.locator("[data-run-status=cancelled]")).to_be_visible()
    expect(tab.button("Cancel run")).to_have_count(0)


def test_fork_continues_from_an_earlier_revision(tab: Tab) -> None:
    send(tab, "echo", "first")
    expect(tab.page.locator("[data-run-status=success]")).to_have_count(1)
    tab.message.fill("second")
    tab.button("Send").click()
    expect(tab.page.locator("[data-run-status=success]")).to_have_count(2)
    tab.button("Fork").click()
    dialog = tab.page.get_by_role("dialog")
    expect(dialog.locator("[data-revision]")).to_have_count(4)  # two of each run: its input, and its end
    dialog.get_by_role("button", name="Fork from here").nth(1).click()
    tab.see("The next message forks from revision")
    tab.message.fill("other")
    tab.button("Send").click()
    expect(tab.page.locator("[data-run-status=success]")).to_have_count(3)
    tab.page.locator("main a[href^='#/threads/']").click()
    tab.wait_ready()
    tab.page.get_by_role("tab", name="Revisions").click()
    expect(tab.page.locator("[data-revision]")).to_have_count(6)
    expect(tab.page.locator(".depth-1").first).to_be_visible()
