"""Type of the setting `telemetry.traces`, which checks that the packages for traces are installed."""

from importlib.util import find_spec
from typing import Annotated, Final, Literal

from pydantic import AfterValidator

_EXPORTER: Final = "opentelemetry.exporter.otlp.proto.http"
_HINT: Final = (
    "traces need the OpenTelemetry SDK, which is not installed: run pip install 'babelgate[otel]', or remove this key"
)


def _check_installed(value: str | None) -> str | None:
    """Return the value of the setting unchanged. Raises ValueError if it is set and the OpenTelemetry SDK is not
    installed."""
    if value is not None and not _is_installed():
        raise ValueError(_HINT)
    return value


def _is_installed() -> bool:
    try:
        return find_spec(_EXPORTER) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


TraceProtocol = Annotated[Literal["otlp"] | None, AfterValidator(_check_installed)]
