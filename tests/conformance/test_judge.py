"""Consistency of every set of requirements, and its judge against a conforming, a dead and a deviating server."""

from dataclasses import replace
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from babelgate import conformance
from babelgate.conformance.judge import is_about, suite_of
from babelgate.conformance.requirement import RequirementSet, load_set, set_names
from babelgate.conformance.trigger import BEHAVIOURS, Triggers
from babelgate.conformance.verdict import Outcome, Verdict
from babelgate.conformance.wire.schema import load_schemas
from tests.conformance.mutation import assert_caught, groups_of, judged
from tests.conformance.servers.kit import Dead, Server

pytestmark = pytest.mark.slow

SERVERS: dict[str, Server] = {
    server.set: server
    for path in sorted((Path(__file__).parent / "servers").glob("*.py"))
    if path.stem not in ("__init__", "kit")
    and (server := getattr(import_module(f"tests.conformance.servers.{path.stem}"), "SERVER", None)) is not None
}

SMALL = {
    name: server
    for name, server in SERVERS.items()
    if not (Path(__file__).parent / f"test_{name.replace('-', '_').replace('.', '_')}.py").exists()
}
"""Servers with so few violations that their mutation tests need no separate file, and so no separate test process."""

WHOLE_PAGES = {
    "cwe.mitre.org",
    "docs.langchain.com/langsmith/add-human-in-the-loop",
    "docs.langchain.com/langsmith/double-texting",
    "docs.langchain.com/langsmith/human-in-the-loop-time-travel",
    "docs.langchain.com/langsmith/streaming",
    "docs.langchain.com/langsmith/use-webhooks",
    "platform.openai.com/docs/guides/background",
    "www.openresponses.org",
    "modelcontextprotocol.io/seps/",
    "modelcontextprotocol.io/specification/2026-07-28/basic/utilities/mrtr",
    "modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching",
}
"""Beginnings of URLs that a requirement may have as its source without a `#` fragment. Each is a page about one
subject, or one without stable anchors."""

every_set = pytest.mark.parametrize("chosen", [load_set(name) for name in set_names()], ids=lambda each: each.name)
every_server = pytest.mark.parametrize("server", SERVERS.values(), ids=lambda each: each.set)


@every_set
def test_probes_and_requirements_match(chosen: RequirementSet) -> None:
    probes = suite_of(chosen).probes
    named = [requirement.probe for requirement in chosen.requirements if requirement.probe]
    assert set(named) == set(probes.names)
    assert len(named) == len(set(named)), "two requirements share a probe"


@every_set
def test_requirements_cover_every_definition_of_a_schema(chosen: RequirementSet) -> None:
    """Test the definitions that validate messages of the agent."""
    schemas = load_schemas(chosen.name)
    patterns = [pattern for requirement in chosen.requirements for pattern in requirement.schemas]
    used = {inner for name in schemas.names for inner in schemas.uses(name) if inner != name}
    roots = [name for name in schemas.names - used if not name.endswith((".request", ".params"))]
    for root in roots:
        for name in schemas.uses(root):
            covered = any(is_about(requirement, name) for requirement in chosen.requirements)
            assert covered, f"no requirement covers {name}, which is part of {root}"
    for pattern in patterns:
        assert any(fnmatchcase(name, pattern) for name in schemas.names), f"{pattern} matches nothing"


@every_set
def test_texts_of_requirements_are_unique(chosen: RequirementSet) -> None:
    texts = [requirement.text for requirement in chosen.requirements]
    assert len(texts) == len(set(texts))
    for requirement in chosen.requirements:
        assert requirement.text.endswith("."), requirement.id
        assert requirement.hint.endswith("."), requirement.id


@every_set
def test_every_source_links_to_a_section(chosen: RequirementSet) -> None:
    wide = {
        requirement.id: requirement.source
        for requirement in chosen.requirements
        if "#" not in requirement.source
        and not requirement.source.removeprefix("https://").startswith(tuple(WHOLE_PAGES))
    }
    assert not wide


@every_set
def test_every_section_is_the_source_of_a_requirement(chosen: RequirementSet) -> None:
    path = Path(conformance.__file__).parent / "requirements" / f"{chosen.name}.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {str(name) for name in document["sections"]} == {each.section for each in chosen.requirements}


@every_set
def test_every_set_has_a_scripted_server(chosen: RequirementSet) -> None:
    assert chosen.name in SERVERS


@every_server
async def test_conforming_server_passes_every_requirement(server: Server) -> None:
    for variant in ("", *server.variants):
        report = await judged(server, server.make(variant))
        wrong = [
            f"{result.requirement.id}: {result.verdict}: {result.expected} {result.actual}"
            for result in report.results
            if result.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)
        ]
        assert not wrong, "\n".join(wrong)
        assert report.is_conformant


@every_server
async def test_behaviours_the_agent_never_shows_are_not_applicable(server: Server) -> None:
    triggers = server.options.triggers.without(set(BEHAVIOURS) - {"plain"})
    report = await judged(server, server.make(""), options=replace(server.options, triggers=triggers))
    assert report.outcome is not Outcome.NOT_CONFORMANT
    not_shown = [each for each in report.results if each.requirement.probe and each.verdict is Verdict.NOT_OBSERVED]
    assert [f"{each.requirement.id}: {each.expected}" for each in not_shown] == []


@every_server
@pytest.mark.timeout(300)
async def test_trigger_without_effect_fails_no_requirement(server: Server) -> None:
    """Test an agent that gives a plain answer to every input."""
    triggers = server.options.triggers
    plain = Triggers(dict.fromkeys(BEHAVIOURS, triggers["plain"]))
    report = await judged(server, server.make(""), options=replace(server.options, triggers=plain))
    wrong = [
        f"{result.requirement.id}: {result.verdict}: {result.expected} {result.actual}"
        for result in report.results
        if result.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE, Verdict.NOT_OBSERVED)
    ]
    assert not wrong, "\n".join(wrong)
    assert report.outcome is not Outcome.NOT_CONFORMANT


@every_server
@pytest.mark.timeout(300)
async def test_dead_server_passes_no_requirement(server: Server) -> None:
    report = await judged(server, Dead())
    assert [each.requirement.id for each in report.results if each.verdict is Verdict.PASS] == []
    assert not report.is_conformant


@pytest.mark.parametrize(
    ("server", "group"),
    [
        pytest.param(server, group, id=f"{name}-{group}")
        for name, server in SMALL.items()
        for group in groups_of(server)
    ],
)
@pytest.mark.timeout(300)
async def test_violations_are_caught(server: Server, group: str, request: pytest.FixtureRequest) -> None:
    await assert_caught(server, group, request)


@every_server
def test_every_requirement_is_broken_by_a_violation(server: Server) -> None:
    chosen = load_set(server.set)
    broken = {violation.breaks for violation in server.violations if not violation.is_hidden}
    for requirement in chosen.requirements:
        if requirement.reason:
            continue
        is_shown = requirement.name in broken or requirement.name in server.unbroken
        assert is_shown, f"no violation breaks {requirement.name}"
    names = {requirement.name for requirement in chosen.requirements}
    assert broken | set(server.unbroken) <= names, (broken | set(server.unbroken)) - names
