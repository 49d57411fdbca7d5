"""Report as a badge: JSON that shields.io renders as an image, https://shields.io/badges/endpoint-badge"""

import json
from typing import Final

from babelgate.conformance.report.model import CheckReport
from babelgate.conformance.verdict import Outcome

_COLOURS: Final = {Outcome.CONFORMANT: "brightgreen", Outcome.NO_VIOLATION: "yellow", Outcome.NOT_CONFORMANT: "red"}


def badge(report: CheckReport) -> str:
    passed = sum(each.passes for each in report.sets)
    applicable = sum(each.applicable for each in report.sets)
    label = " + ".join(each.set.title for each in report.sets) or "conformance"
    message = f"conformant ({passed})" if report.is_conformant else f"{passed} of {applicable}"
    colour = _COLOURS[report.outcome]
    return json.dumps({"schemaVersion": 1, "label": label, "message": message, "color": colour}) + "\n"
