"""Settings with addresses of further listeners, apart from the port of callers, such as `telemetry.metrics.listen`."""

from collections.abc import Mapping
from typing import Final

from babelgate.gateway.settings.model import Settings

METRICS: Final = "telemetry.metrics.listen"
ADMIN: Final = "admin.listen"
GRPC: Final = "grpc.listen"


def listens_of(settings: Settings) -> Mapping[str, str | None]:
    """Return the address of each further listener by the name of its setting, that of the metrics first.

    The address is None if the setting has no value."""
    return {METRICS: settings.telemetry.metrics.listen, ADMIN: settings.admin.listen, GRPC: settings.grpc.listen}


def with_port(settings: Settings, name: str, port: int) -> Settings:
    """Return a copy of the settings in which the listener with the setting `name` has another port.

    If the port is 0, the system selects one, and all worker processes then use this port."""
    host = (listens_of(settings)[name] or "").rpartition(":")[0]
    change = {"listen": f"{host}:{port}"}
    if name == ADMIN:
        return settings.model_copy(update={"admin": settings.admin.model_copy(update=change)})
    if name == GRPC:
        return settings.model_copy(update={"grpc": settings.grpc.model_copy(update=change)})
    metrics = settings.telemetry.metrics.model_copy(update=change)
    return settings.model_copy(update={"telemetry": settings.telemetry.model_copy(update={"metrics": metrics})})
