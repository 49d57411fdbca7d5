"""Scrapes of a gateway's metrics, for tests."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.command import Served

Labels = frozenset[tuple[str, str]]


class Scrape:
    """Samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[tuple[str, Labels], float] = {}
        self.labels: dict[str, set[str]] = {}
        """Names of labels by name of the sample. Metrics without samples have none."""
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.samples[sample.name, frozenset(sample.labels.items())] = sample.value
                self.labels.setdefault(sample.name, set()).update(sample.labels)

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the metric's samples that have all of these labels. They may have further labels."""
        wanted = set(labels.items())
        return sum(
            value for (each, found), value in self.samples.items() if each == f"babelgate_{name}" and wanted <= found
        )

    def counters(self, *names: str) -> dict[str, float]:
        """Return the values of all samples of the metrics `names`, by name and labels such as
        `calls_total{agent=echo}`. The names have no prefix `babelgate_`."""
        return {
            f"{name.removeprefix('babelgate_')}{_written(dict(labels))}": value
            for (name, labels), value in self.samples.items()
            if name.removeprefix("babelgate_") in names
        }


def _written(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return f"{{{pairs}}}" if labels else ""


class Metered:
    """A served gateway with metrics."""

    def __init__(self, gateway: Served) -> None:
        """Find the port of the metrics in the log."""
        found = re.search(r"metrics served url=(http\S+?)[\"\s]", gateway.logged("metrics served"))
        assert found is not None
        self.gateway = gateway
        self.url = found[1]
        self.http = httpx.Client(base_url=gateway.url, timeout=30, trust_env=False)

    def scrape(self) -> Scrape:
        return Scrape(httpx.get(self.url, timeout=30, trust_env=False).raise_for_status().text)

    def await_scrape(self, holds: Callable[[Scrape], Any]) -> Scrape:
        """Read the metrics until a condition holds. Each scrape makes the gateway update its gauges."""
        found = self.scrape()
        for _ in range(1000):
            if holds(found):
                return found
            found = self.scrape()
        raise AssertionError(found.text)

    def close(self) -> None:
        self.http.close()
