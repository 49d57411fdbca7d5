"""Setting of traces without the packages that it needs."""

from pathlib import Path

import pytest

from babelgate.gateway.settings import traces
from babelgate.gateway.settings.load import ConfigError, load


def test_traces_without_the_sdk_name_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "babelgate.yaml"
    file.write_text("telemetry: {traces: otlp}\n", encoding="utf-8")
    assert load(file, {}).telemetry.traces == "otlp"
    monkeypatch.setattr(traces, "_EXPORTER", "opentelemetry_of_nobody.exporter")
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    assert "run pip install 'babelgate[otel]'" in "\n".join(raised.value.problems)
    assert "telemetry.traces" in "\n".join(raised.value.problems)
