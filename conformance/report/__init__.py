"""Reports of a check, for people and programs: `model` holds the results, and each format has its own module."""

from collections.abc import Callable, Mapping
from typing import Final

from babelgate.conformance.report.badge import badge
from babelgate.conformance.report.ctrf import ctrf
from babelgate.conformance.report.document import document
from babelgate.conformance.report.html import html
from babelgate.conformance.report.junit import junit
from babelgate.conformance.report.markdown import markdown
from babelgate.conformance.report.model import CheckReport

__all__ = ("FORMS", "render")

FORMS: Final[Mapping[str, Callable[[CheckReport], str]]] = {
    "json": document,
    "junit": junit,
    "ctrf": ctrf,
    "markdown": markdown,
    "html": html,
    "badge": badge,
}
"""Functions that render the report of a check as text, by the name of the format."""


def render(report: CheckReport, form: str) -> str:
    return FORMS[form](report)
