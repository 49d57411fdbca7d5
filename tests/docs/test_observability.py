"""Commands of docs/observability.md print what the page shows, and its tables match metrics, alerts and log lines."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from babelgate.gateway.telemetry.metrics import Metrics
from tests.docs.test_check import pattern
from tests.gateway.command import BOUND, ROOT, served
from tests.gateway.telemetry.scrape import Metered

PAGE: Final = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
TRACE: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table whose first column has a heading."""
    table = re.search(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]


@pytest.mark.timeout(120)
def test_examples_print_what_the_page_shows(tmp_path: Path) -> None:
    settings, *_ = blocks("yaml")
    (tmp_path / "babelgate.yaml").write_text(settings.replace(":9464", ":0"), encoding="utf-8")
    (tmp_path / "agents.py").write_text(blocks("python")[0], encoding="utf-8")
    with served(tmp_path) as gateway:
        metered = Metered(gateway)
        for block in blocks("console"):
            for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                actual = command.replace("http://127.0.0.1:8000", gateway.url)
                actual = actual.replace("http://127.0.0.1:9464/metrics", metered.url)
                actual = actual.replace("curl -s", f"curl -s --noproxy '*' -H 'traceparent: {TRACE}'")
                output = subprocess.run(
                    ["bash", "-c", actual], capture_output=True, text=True, timeout=BOUND, check=True
                ).stdout
                assert re.fullmatch(pattern(expected.strip()), output.strip()), output
        metered.close()
        log = gateway.stop()
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.splitlines()]
    for example in map(json.loads, blocks("json")):
        assert any(is_like(line, example) for line in lines), f"{example}\n{log}"


def is_like(line: dict[str, Any], example: dict[str, Any]) -> bool:
    """Return True if a line has the fields of the example, and the values that do not differ from run to run."""
    varying = {"time", "request_id", "duration_ms", "thread", "task", "run", "message", "stack"}
    if line.keys() != example.keys() or any(line[name] != example[name] for name in line.keys() - varying):
        return False
    ids = example.get("request_id", ""), r"[0-9.]+ms"
    text = re.sub(r"[0-9.]+ms", "…", example["message"].replace(ids[0], "…") if ids[0] else example["message"])
    stack = example.get("stack", "")
    return re.fullmatch(pattern(text), line["message"]) is not None and line.get("stack", "").endswith(
        stack.removeprefix("…")
    )


def test_table_of_metrics_is_complete() -> None:
    families = {each.name: each for each in text_string_to_metric_families(Metrics("1.0").render().decode())}
    listed = {cells[0].strip("`").removesuffix("_total"): cells for cells in rows("metric")}
    assert listed.keys() == families.keys()
    for name, (_, kind, _, meaning) in listed.items():
        assert (kind, meaning) == (families[name].type, families[name].documentation)


def test_table_of_alerts_is_complete() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text(encoding="utf-8"))
    alerts = [(rule["alert"], rule["labels"]["severity"]) for group in rules["groups"] for rule in group["rules"]]
    assert [(cells[0].strip("`"), cells[1]) for cells in rows("alert")] == alerts


def test_scrape_configuration_is_that_of_the_file() -> None:
    text = (ROOT / "deploy/prometheus/prometheus.yaml").read_text(encoding="utf-8")
    assert text.endswith(blocks("yaml")[1])
