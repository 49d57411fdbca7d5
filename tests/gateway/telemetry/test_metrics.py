"""Metrics: labels are bounded, every report is counted, and the text is what Prometheus parses."""

import inspect
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from babelgate.gateway.observe import GatewayObserver
from babelgate.gateway.telemetry.metrics import MAX_AGENTS, Metrics

ARGUMENTS: dict[str, Any] = {
    "protocol": "a2a",
    "operation": "SendMessage",
    "status": 200,
    "seconds": 0.3,
    "reason": "total",
    "agent": "echo",
    "waited": 0.2,
    "outcome": "success",
    "kind": "input",
    "count": 3,
    "fault": "agent_failed",
    "commands": 2,
    "mistakes": 0,
    "method": "key",
    "result": "failed",
    "issuer": "corp",
    "limit": "rate",
    "currency": "EUR",
    "cost": 0.5,
    "expires_at": 1.8e9,
}


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the values of all samples by name and labels."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples
    }


@pytest.mark.parametrize("name", [name for name in vars(GatewayObserver) if name.startswith("note_")])
def test_every_report_changes_a_metric(name: str):
    metrics = Metrics("1.0")
    before = samples(metrics)
    method = getattr(metrics, name)
    method(*(ARGUMENTS[parameter] for parameter in inspect.signature(method).parameters))
    assert samples(metrics) != before


def test_all_metrics_have_the_prefix_and_no_creation_times():
    names = {name for name, _ in samples(Metrics("1.0"))}
    assert all(name.startswith("babelgate_") for name in names)
    assert not any(name.endswith("_created") for name in names)


def test_agents_beyond_the_limit_share_one_label():
    metrics = Metrics("1.0")
    for number in range(MAX_AGENTS + 50):
        metrics.note_run_ended(f"agent-{number}", "acp", "success", None)
    found = {labels: value for (name, labels), value in samples(metrics).items() if name == "babelgate_runs_total"}
    assert len(found) == MAX_AGENTS + 1
    assert found[("agent", "other"), ("outcome", "success"), ("protocol", "acp")] == 50


def test_configured_agents_get_the_first_labels():
    metrics = Metrics("1.0", ["last"])
    for number in range(MAX_AGENTS):
        metrics.label_of(f"agent-{number}")
    assert metrics.label_of("last") == "last"


def test_gauges_of_removed_labels_become_zero():
    metrics = Metrics("1.0")
    metrics.runs_open.set_all({("echo", "running"): 2})
    metrics.runs_open.set_all({("stream", "running"): 1})
    values = {
        labels[0][1]: value for (name, labels), value in samples(metrics).items() if name == "babelgate_runs_open"
    }
    assert values == {"echo": 0, "stream": 1}


def test_start_of_a_run_arms_the_watchdog():
    calls: list[str] = []
    metrics = Metrics("1.0", on_run=lambda: calls.append("armed"))
    metrics.note_run_started("echo", None)
    assert calls == ["armed"]
