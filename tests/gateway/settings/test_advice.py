"""Tests of advice about settings that are valid but probably not intended."""

from pathlib import Path

import pytest

from babelgate.gateway.settings.load import ConfigError, advise, check_files


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "babelgate.yaml"


def doubts(file: Path, text: str) -> list[str]:
    file.write_text(text, encoding="utf-8")
    return [line.removeprefix(f"{file}: ") for line in advise(file)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("keys: {a: x}", "keys: the key of entry 1 has 1 character and can be guessed: take 16 or more"),
        (f"keys: {{a: {'k' * 16}, b: short}}", "keys: the key of entry 2 has 5 characters and can be guessed"),
        (
            "{retention: {threads: 30}, webhooks: {retries: 5s}}",
            "retention.threads: 30 without a unit is 30 seconds: write 30d for days",
        ),
        (
            '{retention: {threads: "7"}, webhooks: {retries: 5s}}',
            "retention.threads: 7 without a unit is 7 seconds: write 7d for days",
        ),
        ("limits: {rate: [{per: key, runs: 9, agent: 'dev-*'}]}", "limits.rate.0: no agent matches dev-*"),
        ("budgets: {month: {per: key, runs: 9, agent: 'dev-*'}}", "budgets.month: no agent matches dev-*"),
        (
            "budgets: {month: {per: key, cost: 9, currency: EUR}}",
            "budgets.month: no agent that it counts has a price in EUR",
        ),
        ("retention: {webhooks: 365}", "retention.webhooks: 365 without a unit is 365 seconds: write 365d for days"),
        (
            "retention: {threads: 24h}",
            "retention.threads: a webhook is erased with its thread, 86400 seconds after the last event, but "
            "webhooks.retries repeats a failed delivery for up to 119166 seconds",
        ),
    ],
)
def test_a_doubtful_value_gives_a_line_with_advice(file: Path, text: str, line: str) -> None:
    (doubt,) = doubts(file, text)
    assert doubt.startswith(line)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        f"keys: {{a: {'k' * 16}}}",
        "retention: {threads: 30d}",
        "{retention: {threads: 30s}, webhooks: {retries: 5s}}",
        "retention: {threads: 172800, unfinished: 172800.0}",
        "limits: {run: 30}",
    ],
)
def test_clear_settings_give_no_advice(file: Path, text: str) -> None:
    assert doubts(file, text) == []


def test_advice_about_a_variable_names_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BABELGATE_RETENTION__THREADS", "30")
    monkeypatch.setenv("BABELGATE_WEBHOOKS__RETRIES", "5s")
    (doubt,) = advise()
    assert doubt.startswith("BABELGATE_RETENTION__THREADS: 30 without a unit")


def test_a_missing_graph_file_is_an_error(file: Path) -> None:
    file.write_text("agents: {a: {graph: ./graphs.py:graph}, b: {graph: module:graph}}", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        check_files(file)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{file}: agents.a.graph: there is no file {file.parent / 'graphs.py'}: correct the path")
    (file.parent / "graphs.py").touch()
    check_files(file)
