"""`pytest --babelgate-url URL`: one test for each requirement of the protocols that the agent at URL speaks.

The agent is judged once, before the first of these tests. Each test reports the result of one requirement. Modules that
parsing the options does not need are imported later, because pytest loads plugins at every start.
"""

from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from babelgate.conformance.report.model import CheckReport, SetReport
    from babelgate.conformance.verdict import Result

_OPTIONS: Final = ("protocol", "version", "only", "header", "triggers", "baseline", "timeout")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("babelgate", "judge an agent: every requirement of the protocols it speaks is a test")
    group.addoption("--babelgate-url", metavar="URL", help="URL of the agent")
    group.addoption("--babelgate-protocol", metavar="NAME", default="", help="judge by this protocol only")
    group.addoption("--babelgate-version", metavar="VERSION", default="", help="judge by this version of the protocol")
    group.addoption(
        "--babelgate-only", metavar="GLOB", action="append", default=[], help="judge only these requirements"
    )
    group.addoption(
        "--babelgate-header", metavar="'NAME: VALUE'", action="append", default=[], help="header of every request"
    )
    group.addoption(
        "--babelgate-triggers", metavar="FILE|PRESET", help="inputs that make the agent show each behaviour"
    )
    group.addoption("--babelgate-baseline", metavar="FILE", help="file of known failures, with reasons")
    group.addoption(
        "--babelgate-timeout", metavar="SECONDS", type=float, default=10.0, help="seconds to wait for each answer"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers `babelgate_must`, `babelgate_should` and `babelgate_may`. Raises pytest.UsageError if a URL
    is set and pytest runs in several processes."""
    for level in ("must", "should", "may"):
        config.addinivalue_line("markers", f"babelgate_{level}: a requirement of level {level} (babelgate)")
    if config.getoption("--babelgate-url") and config.getoption("numprocesses", None):
        # Each worker would judge the agent, all at the same time.
        raise pytest.UsageError("--babelgate-url already runs its probes concurrently; omit -n")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    url = config.getoption("--babelgate-url")
    if not url:
        return
    report = _judge_url(config, url)
    for each in report.sets:
        collector: Any = _Set
        folder = collector.from_parent(session, name=each.set.name, nodeid=f"babelgate::{each.set.name}")
        for result in each.results:
            kind: Any = RequirementItem
            item: RequirementItem = kind.from_parent(folder, name=result.requirement.name)
            item.set_result(result, each, report)
            items.append(item)


def pytest_exception_interact(call: pytest.CallInfo[Any], report: pytest.TestReport | pytest.CollectReport) -> None:
    """Add a hint to the report of a test that failed because it imports a former name of Babelgate's API: the new
    name."""
    from babelgate._renamed import hint_for

    if call.excinfo is not None and (hint := hint_for(call.excinfo.value)):
        report.sections.append(("babelgate", hint))


def _judge_url(config: pytest.Config, url: str) -> "CheckReport":
    import asyncio
    from pathlib import Path

    from babelgate.conformance.baseline import BaselineError, read_baseline
    from babelgate.conformance.examine import RequirementSelection, SelectionError, examine
    from babelgate.conformance.probe import ProbeOptions
    from babelgate.conformance.trigger import TriggerError, read_triggers
    from babelgate.conformance.wire.http import Unanswered

    options_by_name: Any = {name: config.getoption(f"--babelgate-{name}") for name in _OPTIONS}
    headers = dict(each.split(":", 1) for each in options_by_name["header"])
    selection = RequirementSelection(
        options_by_name["protocol"], options_by_name["version"], tuple(options_by_name["only"])
    )
    try:
        options = ProbeOptions(
            headers={name.strip(): value.strip() for name, value in headers.items()},
            triggers=read_triggers(options_by_name["triggers"]),
            timeout=options_by_name["timeout"],
        )
        baseline = read_baseline(Path(options_by_name["baseline"])) if options_by_name["baseline"] else None
        report = asyncio.run(examine(url, selection, options, baseline=baseline))
    except (SelectionError, TriggerError, BaselineError) as error:
        raise pytest.UsageError(str(error)) from None
    except Unanswered as error:
        raise pytest.UsageError(f"{url}: no server answers there: {error}") from None
    if not report.sets:
        refused = "; ".join(f"{name}: {why}" for name, why in report.refused.items())
        raise pytest.UsageError(f"{url}: no protocol found that can be judged: {refused}")
    return report


class _Set(pytest.Collector):
    """Parent of the tests for one requirement set. It collects nothing itself: the tests are created after the agent
    has been judged."""

    def collect(self) -> list[pytest.Item]:
        return []


class NotKept(Exception):
    """Exception that fails the test of a requirement; its text is the report."""


class RequirementItem(pytest.Item):
    _result: "Result"
    _set: "SetReport"
    _report: "CheckReport"

    def set_result(self, result: "Result", of: "SetReport", report: "CheckReport") -> None:
        self._result, self._set, self._report = result, of, report
        self.add_marker(f"babelgate_{result.requirement.level}")

    def runtest(self) -> None:
        """Report the result of the requirement to pytest: return if it is met, else skip the test or mark it as an
        expected failure.

        Raises NotKept for a requirement that is broken, and for one that is met although the baseline lists it.
        """
        from babelgate.conformance.report.text import failure
        from babelgate.conformance.verdict import Verdict
        from babelgate.conformance.wire.exchange import Redactor

        requirement = self._result.requirement
        reason = self._set.expected.get(requirement.id)
        if reason is not None:
            pytest.xfail(reason)
        if requirement.id in self._set.stale:
            raise NotKept("the requirement is met now: remove it from the baseline")
        if requirement.id in {each.requirement.id for each in self._set.broken()}:
            raise NotKept("\n".join(failure(self._result, self._set, Redactor(self._report.secrets))))
        if self._result.verdict is not Verdict.PASS:
            pytest.skip(f"{self._result.verdict}: {self._result.expected}")

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, NotKept):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, int | None, str]:
        return "babelgate", None, f"{self._set.set.name}: {self._result.requirement.text}"
