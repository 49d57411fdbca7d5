"""Report of a check as JUnit XML: each requirement is a test case, and each requirement set a test suite."""

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from babelgate.conformance.report.model import CheckReport, SetReport
from babelgate.conformance.verdict import Result, Verdict
from babelgate.conformance.wire.exchange import Redactor


def junit(report: CheckReport) -> str:
    redactor = Redactor(report.secrets)
    root = Element("testsuites", name="babelgate check", time=f"{report.seconds:.3f}")
    for each in report.sets:
        _suite(root, each, redactor)
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(root: Element, report: SetReport, redactor: Redactor) -> None:
    against = {result.requirement.id for result in report.broken()}
    suite = SubElement(
        root,
        "testsuite",
        name=report.set.name,
        tests=str(len(report.results) + len(report.stale)),
        failures=str(len(against) + len(report.stale)),
        time=f"{report.seconds:.3f}",
    )
    for result in report.results:
        case = SubElement(
            suite, "testcase", classname=report.set.name, name=result.requirement.name, time=f"{result.seconds:.3f}"
        )
        text = _failure_text(result, redactor)
        if result.requirement.id in against:
            SubElement(
                case, "failure", message=_legal(redactor.text(result.expected)), type=str(result.verdict)
            ).text = text
        elif result.verdict is not Verdict.PASS:
            reason = report.expected.get(result.requirement.id, "")
            SubElement(case, "skipped", message=_legal(f"{result.verdict}: {reason or redactor.text(result.expected)}"))
    for id in report.stale:
        case = SubElement(suite, "testcase", classname=report.set.name, name=f"baseline {id}", time="0")
        SubElement(
            case, "failure", message="expected to be broken but is met; remove it from the baseline", type="stale"
        )


def _failure_text(result: Result, redactor: Redactor) -> str:
    requirement = result.requirement
    lines = [requirement.text, requirement.source, f"expected: {redactor.text(result.expected)}"]
    if result.actual is not None:
        lines.append(f"got: {redactor.value(result.actual)}")
    if result.exchange is not None:
        lines.append(redactor.text(str(result.exchange)))
    lines.append(f"change: {requirement.hint}")
    return _legal("\n".join(lines))


def _legal(text: str) -> str:
    """Return the text with each character that XML cannot represent replaced by U+FFFD."""
    return "".join(each if each in "\t\n" or " " <= each not in "\ufffe\uffff" else "\ufffd" for each in text)
