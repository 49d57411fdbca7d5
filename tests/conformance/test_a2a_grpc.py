"""Judge of A2A 1.0 over gRPC: a conforming server, its violations, and an installation without gRPC."""

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from babelgate.conformance.examine import RequirementSelection, examine
from babelgate.conformance.report.document import as_json
from babelgate.conformance.report.model import CheckReport
from babelgate.conformance.report.text import lines
from babelgate.conformance.verdict import Outcome, Verdict
from babelgate.conformance.wire import rpc
from tests.conformance.mutation import judged, violation_test
from tests.conformance.servers.a2a_grpc import RPC_SERVER, Agent
from tests.serving import serving

pytestmark = pytest.mark.slow

NOT_FOUND: Final = "get.unknown"


async def examined(violation: str, *only: str, **options: Any) -> CheckReport:
    app = RPC_SERVER.make(violation)
    async with app.listening(), serving(app) as url:
        selection = RequirementSelection("a2a", "1.0", only)
        return await examine(url + RPC_SERVER.path, selection, replace(RPC_SERVER.options, **options))


@pytest.mark.parametrize("variant", ["", "bare"])
async def test_conforming_grpc_server_passes_every_requirement(variant: str) -> None:
    report = await judged(RPC_SERVER, RPC_SERVER.make(variant))
    wrong = [
        f"{result.requirement.id}: {result.verdict}: {result.expected} {result.actual}"
        for result in report.results
        if result.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)
    ]
    assert not wrong, "\n".join(wrong)
    assert report.is_conformant


test_violations_of_grpc_are_caught = violation_test(RPC_SERVER)


async def test_calls_are_in_the_report_as_json() -> None:
    report = await examined("not found is an invalid argument", "grpc.not-found", "stream.one-end")
    document = as_json(report)
    schema = files("babelgate.conformance.report").joinpath("report.schema.json").read_text(encoding="utf-8")
    Draft202012Validator(json.loads(schema)).validate(document)  # pyright: ignore[reportUnknownMemberType]
    streamed, refused = (each["exchanges"][-1] for each in document["sets"][0]["results"])
    assert json.loads(refused["request"]["body"]).keys() == {"tenant", "id"}
    assert ["a2a-version", "1.0"] in refused["request"]["headers"]
    assert ["x-api-key", "[redacted]"] in refused["request"]["headers"]
    assert (refused["response"]["grpcStatus"], refused["response"]["status"]) == ("INVALID_ARGUMENT", 400)
    [info] = json.loads(refused["response"]["body"])["details"]
    assert info["reason"] == "TASK_NOT_FOUND"
    assert ["grpc-message", "Task not found"] in refused["response"]["headers"]
    assert streamed["response"]["grpcStatus"] == "OK"
    assert "task" in json.loads(streamed["response"]["events"][0]["text"])
    text = "\n".join(lines(report))
    assert "/lf.a2a.v1.A2AService/GetTask\n" in text
    assert "    answered  INVALID_ARGUMENT\n" in text


def without_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the check find no gRPC package, as in an installation without the extra."""

    def find_nothing(name: str) -> None: ...

    monkeypatch.setattr(rpc, "find_spec", find_nothing)


async def test_grpc_requirements_have_no_verdict_without_grpcio(monkeypatch: pytest.MonkeyPatch) -> None:
    without_grpc(monkeypatch)
    report = await examined("", "grpc.*", "form.grpc-error", "binding.grpc-to-http", NOT_FOUND)
    [found] = report.sets
    by_verdict: dict[Verdict, set[str]] = {}
    for result in found.results:
        by_verdict.setdefault(result.verdict, set()).add(result.requirement.name)
    assert by_verdict[Verdict.PASS] == {NOT_FOUND}
    assert by_verdict[Verdict.NOT_APPLICABLE] == {"grpc.push-status"}
    assert by_verdict[Verdict.NOT_OBSERVED] >= {"grpc.not-found", "form.grpc-error", "binding.grpc-to-http"}
    assert found.outcome is Outcome.NO_VIOLATION
    assert "run pip install 'babelgate[grpc]'" in found.evidence
    assert any("gRPC is not checked" in line and "pip install 'babelgate[grpc]'" in line for line in lines(report))


async def test_card_with_only_grpc_names_the_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    without_grpc(monkeypatch)
    report = await examined("another task is returned", NOT_FOUND)
    assert not report.sets
    assert "the card offers only gRPC, and gRPC is not checked" in report.refused["a2a-1.0"]
    assert "pip install 'babelgate[grpc]'" in report.refused["a2a-1.0"]


async def test_server_that_does_not_listen_answers_nothing() -> None:
    app = RPC_SERVER.make("another task is returned")
    assert isinstance(app, Agent)
    app.address = "127.0.0.1:9"
    selection = RequirementSelection("a2a", "1.0", ("send.succeeds", NOT_FOUND, "grpc.not-found"))
    async with serving(app) as url:
        report = await examine(url + RPC_SERVER.path, selection, RPC_SERVER.options)
    assert [each.verdict for found in report.sets for each in found.results] == [Verdict.FAIL] * 3
