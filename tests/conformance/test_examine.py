"""Whole runs of the check: detection, reports and exit code."""

import asyncio
import json
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from babelgate.conformance.baseline import apply
from babelgate.conformance.examine import RequirementSelection, SelectionError, examine
from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.report import FORMS, render
from babelgate.conformance.report.model import CheckReport
from babelgate.conformance.report.text import lines
from babelgate.conformance.requirement import load_set, set_names
from babelgate.conformance.trigger import BEHAVIOURS
from babelgate.conformance.verdict import Outcome, Verdict
from babelgate.conformance.wire.credentials import origin_of
from babelgate.conformance.wire.http import Wire
from tests.conformance.servers import a2a_1_0
from tests.conformance.servers.kit import Dead
from tests.gateway.command import babelgate, bound_socket
from tests.serving import serving

pytestmark = pytest.mark.slow

SECRET = "open-sesame-4711"


async def examined(violation: str = "", **selection: Any) -> CheckReport:
    server = a2a_1_0.SERVER
    options = ProbeOptions(
        headers={**server.options.headers, "X-Secret": SECRET},
        other_headers=server.options.other_headers,
        triggers=server.options.triggers,
        timeout=server.options.timeout,
    )
    async with serving(server.make(violation)) as url:
        return await examine(url + server.path, RequirementSelection(**selection), options)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def right() -> CheckReport:
    return await examined()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def wrong() -> CheckReport:
    """Report of an agent that breaks cancel.ended."""
    return await examined("ended tasks are cancelled")


def test_protocol_of_an_agent_is_detected(right: CheckReport) -> None:
    assert [each.set.name for each in right.sets] == ["a2a-1.0"]
    assert right.is_conformant
    assert right.sets[0].passes == right.sets[0].applicable > 0


def test_every_report_format_is_valid_and_contains_no_secret(wrong: CheckReport) -> None:
    assert not wrong.is_conformant
    forms = {form: render(wrong, form) for form in FORMS}
    for form, text in forms.items():
        assert SECRET not in text, form
    schema = json.loads((files("babelgate.conformance") / "report" / "report.schema.json").read_text(encoding="utf-8"))
    validator: Any = Draft202012Validator(schema)
    validator.validate(json.loads(forms["json"]))
    suite = ElementTree.fromstring(forms["junit"])
    assert [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None] == ["cancel.ended"]
    assert json.loads(forms["ctrf"])["results"]["summary"]["failed"] == 1
    assert "cancel.ended" in forms["markdown"]
    assert json.loads(forms["badge"])["color"] != "brightgreen"


def test_page_loads_no_resources(right: CheckReport) -> None:
    class Loads(HTMLParser):
        found: list[str]

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            attributes = dict(attrs)
            if tag in ("script", "link", "img", "iframe") or "src" in attributes:
                self.found.append(tag)

    reader = Loads()
    reader.found = []
    reader.feed(render(right, "html"))
    assert reader.found == []


def test_baseline_accepts_failures_and_reports_stale_entries(wrong: CheckReport) -> None:
    expected = apply({"a2a-1.0/cancel.ended": "known", "acp-0.2/other": "of another set"}, wrong.sets[0])
    assert expected.is_conformant
    stale = apply({"a2a-1.0/cancel.ended": "known", "a2a-1.0/send.waits": "no more"}, wrong.sets[0])
    assert stale.stale == ("a2a-1.0/send.waits",)
    assert not stale.is_conformant


def test_failed_requirement_has_its_exchanges_as_evidence(wrong: CheckReport) -> None:
    (failed,) = [each for each in wrong.sets[0].results if each.verdict is Verdict.FAIL]
    assert failed.exchange is not None and b'"CancelTask"' in failed.exchange.body
    assert failed.expected.startswith("the error TASK_NOT_CANCELABLE")
    assert any(b'"SendMessage"' in exchange.body for exchange in failed.exchanges), "the evidence includes the scene"


async def test_server_without_a_supported_protocol_is_not_judged() -> None:
    async with serving(Dead()) as url:
        report = await examine(url, RequirementSelection(), ProbeOptions())
    assert not report.sets and not report.is_conformant
    assert "there is no agent card" in report.refused["a2a-1.0"]


async def test_patterns_select_requirements_and_unknown_patterns_are_refused() -> None:
    report = await examined(only=("stream.*", "a2a-1.0/card.well-known"))
    names = {result.requirement.group for result in report.sets[0].results}
    assert names == {"stream", "card"}
    with pytest.raises(SelectionError, match="no requirement is called nonsense"):
        await examined(only=("nonsense",))


@pytest.mark.parametrize(
    ("violation", "baseline", "code"),
    [
        ("", "", 0),
        ("ended tasks are cancelled", "", 1),
        ("ended tasks are cancelled", "a2a-1.0/cancel.ended: it is a toy", 0),
        ("", "a2a-1.0/cancel.ended: it was a toy", 1),
    ],
)
async def test_exit_code_reports_whether_the_agent_conforms(
    tmp_path: Path, violation: str, baseline: str, code: int
) -> None:
    server, baseline_file = a2a_1_0.SERVER, tmp_path / "known.yaml"
    baseline_file.write_text(baseline or "{}", encoding="utf-8")
    triggers_of_server = server.options.triggers.by_behaviour.items()
    triggers = [
        part for name, each in triggers_of_server if not each.is_never for part in ("--trigger", f"{name}={each.text}")
    ]
    headers = [part for name, value in server.options.headers.items() for part in ("--header", f"{name}: {value}")]
    async with serving(server.make(violation)) as url:
        only = ("--protocol", "a2a", "--version", "1.0", "--only", "cancel.ended", "--only", "card.well-known")
        arguments = ("check", url + server.path, *only, "--baseline", str(baseline_file), *triggers, *headers)
        done = await asyncio.to_thread(babelgate, tmp_path, *arguments)
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ((), 3, "1 about questions: what makes your agent ask? --ask 'Book a flight', or --never question"),
        (("--strict",), 1, "no violation found"),
        (("--verbose",), 3, "a2a-1.0/question.state (must): needs an input"),
        (("--never", "question"), 0, "conformant: 1 of 1 mandatory requirements met"),
    ],
)
async def test_unobserved_requirement_is_no_violation(
    tmp_path: Path, more: tuple[str, ...], code: int, words: str
) -> None:
    server = a2a_1_0.SERVER
    headers = [part for name, value in server.options.headers.items() for part in ("--header", f"{name}: {value}")]
    async with serving(server.make("")) as url:
        only = ("--protocol", "a2a", "--version", "1.0", "--only", "question.state", "--only", "card.well-known")
        done = await asyncio.to_thread(babelgate, tmp_path, "check", url + server.path, *only, *headers, *more)
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stdout
    assert "not spoken" not in done.stdout


async def test_headers_are_sent_only_to_the_named_host() -> None:
    received: list[dict[str, str]] = []

    class Elsewhere(Dead):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                received.append({name.decode(): value.decode() for name, value in scope["headers"]})
            await super().__call__(scope, receive, send)

    private = {"Authorization": "Bearer secret-of-mine", "X-Tenant": "mine"}
    second = {"Authorization": "Bearer of-another"}
    async with (
        serving(Elsewhere()) as other,
        serving(Elsewhere()) as url,
        Wire(headers=private, other_headers=second, urls=[url]) as wire,
    ):
        for target in (url, url.replace("127.0.0.1", "localhost"), other):
            await wire.request("GET", target, sends=None, receives=None)
        await wire.request("GET", other, sends=None, receives=None, headers=second)
        assert list(wire.withheld) == [origin_of(other)]
    assert [each.get("authorization") for each in received] == ["Bearer secret-of-mine"] * 2 + [None] * 2
    assert [each.get("x-tenant") for each in received] == ["mine"] * 2 + [None] * 2


async def test_timeout_report_suggests_a_longer_timeout() -> None:
    """Test an agent that serves its card and never answers a call."""
    server = a2a_1_0.SERVER
    inner = server.make("")

    async def late(scope: Any, receive: Any, send: Any) -> None:
        while scope["type"] == "http" and scope["method"] == "POST":
            if (await receive())["type"] == "http.disconnect":
                return
        await inner(scope, receive, send)

    options = ProbeOptions(headers=server.options.headers, triggers=server.options.triggers, timeout=0.2)
    async with serving(late) as url:
        report = await examine(url + server.path, RequirementSelection("a2a", "1.0", ("cancel.ended",)), options)
    report_text = "\n".join(lines(report))
    assert "got no answer in time. If your agent needs longer, pass --timeout 60." in report_text


def test_page_starts_with_failures_and_filters_by_verdict(wrong: CheckReport) -> None:
    page = render(wrong, "html")
    (judged,) = wrong.sets
    heads = [part.partition("</code>")[0] for part in page.split("<details class=")[1:] if "<summary><b>" in part]
    assert heads[0].startswith('"fail" open') and heads[0].endswith(judged.broken()[0].requirement.id)
    assert len(heads) == len(judged.results), "each requirement once"
    for verdict, number in judged.counts().items():
        kind = verdict.replace(" ", "-")
        assert (f'id="show-{kind}"' in page) is (number > 0)
        assert f"body:has(#show-{kind}:not(:checked)) details.{kind}" in page


async def test_consequences_of_a_failure_are_not_counted() -> None:
    (judged,) = (await examined("ended tasks are cancelled", only=("cancel.*",))).sets
    caused, alone = (replace(each, is_prerequisite=True, verdict=Verdict.FAIL) for each in judged.results[:2])
    several = replace(judged, results=[*judged.results, caused])
    assert [each.requirement.name for each in several.broken()] == ["cancel.ended"]
    assert several.consequences() == [caused]
    assert several.outcome is Outcome.NOT_CONFORMANT
    only_caused = replace(judged, results=[alone])
    assert only_caused.broken() == [alone], "the cause is in another level, or was not selected"


def test_help_lists_behaviours_and_versions(tmp_path: Path) -> None:
    help_text = " ".join(babelgate(tmp_path, "check", "--help").stdout.replace("│", " ").split())
    assert f"Behaviours for --trigger and --never: {', '.join(BEHAVIOURS)}." in help_text
    versions = ", ".join(f"{each.protocol} {each.version}" for each in map(load_set, set_names()))
    assert f"Protocols and versions: {versions}." in help_text


def test_exit_code_of_a_usage_error_is_two(tmp_path: Path) -> None:
    with bound_socket() as unused:
        silent = f"http://127.0.0.1:{unused.getsockname()[1]}"
        for arguments in (
            ("check",),
            ("check", "echo"),
            ("check", silent),
            ("check", silent, "--protocol", "smoke-signals"),
            ("check", silent, "--triggers", "nowhere.yaml"),
            ("check", silent, "--trigger", "dance=now"),
            ("check", silent, "--baseline", "nowhere.yaml"),
        ):
            done = babelgate(tmp_path, *arguments)
            assert done.returncode == 2, (arguments, done.stdout, done.stderr)
            assert done.stderr.startswith("babelgate: ")
            assert "Traceback" not in done.stderr


def test_requirements_are_listed_with_their_links(tmp_path: Path) -> None:
    done = babelgate(tmp_path, "check", "--list", "--only", "stream.*")
    assert done.returncode == 0, done.stderr
    assert "a2a-1.0/stream.begins (must, 3.1.2) [streaming]" in done.stdout
    assert "https://a2a-protocol.org/v1.0.0/specification/#312-send-streaming-message" in done.stdout
