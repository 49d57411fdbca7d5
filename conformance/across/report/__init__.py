"""The picture of what protocols make of the same, for people and for programs."""

from collections.abc import Callable, Mapping
from typing import Final

from conformance.across.report.document import document
from conformance.across.report.html import html
from conformance.across.report.markdown import markdown
from conformance.across.verdict import Verdict

__all__ = ("FORMS",)

FORMS: Final[Mapping[str, Callable[[Verdict], str]]] = {"json": document, "markdown": markdown, "html": html}
"""Every form that it can be written in."""
