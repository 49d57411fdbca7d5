"""A badge, in the JSON that shields.io draws from an endpoint: https://shields.io/badges/endpoint-badge"""

import json

from babelgate.conformance.report.model import Report


def badge(report: Report) -> str:
    passed = sum(each.passes for each in report.sets)
    applicable = sum(each.applicable for each in report.sets)
    label = " + ".join(each.set.title for each in report.sets) or "conformance"
    message = f"conformant ({passed})" if report.is_conformant else f"{passed} of {applicable}"
    colour = "brightgreen" if report.is_conformant else "red" if passed * 2 < applicable else "orange"
    return json.dumps({"schemaVersion": 1, "label": label, "message": message, "color": colour}) + "\n"
