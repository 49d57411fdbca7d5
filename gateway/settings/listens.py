"""Settings with addresses of listeners besides the port of callers, such as `telemetry.metrics.listen`."""

from collections.abc import Mapping
from typing import Final

from babelgate.gateway.settings.model import Settings

METRICS: Final = "telemetry.metrics.listen"
ADMIN: Final = "admin.listen"


def listens_of(settings: Settings) -> Mapping[str, str | None]:
    """Return the address of each listener by the name of its setting, that of the metrics first."""
    return {METRICS: settings.telemetry.metrics.listen, ADMIN: settings.admin.listen}


def with_port(settings: Settings, name: str, port: int) -> Settings:
    """Return settings with another port of a listener. Workers share one that the system has selected."""
    host = (listens_of(settings)[name] or "").rpartition(":")[0]
    change = {"listen": f"{host}:{port}"}
    if name == ADMIN:
        return settings.model_copy(update={"admin": settings.admin.model_copy(update=change)})
    metrics = settings.telemetry.metrics.model_copy(update=change)
    return settings.model_copy(update={"telemetry": settings.telemetry.model_copy(update={"metrics": metrics})})
