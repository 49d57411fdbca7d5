"""Report of a comparison across protocols, for people and programs."""

from collections.abc import Callable, Mapping
from typing import Final

from babelgate.conformance.across.report.document import document
from babelgate.conformance.across.report.html import html
from babelgate.conformance.across.report.markdown import markdown
from babelgate.conformance.across.verdict import AcrossVerdict

__all__ = ("FORMS",)

FORMS: Final[Mapping[str, Callable[[AcrossVerdict], str]]] = {"json": document, "markdown": markdown, "html": html}
"""Functions that render a verdict as text, by the name of the format."""
