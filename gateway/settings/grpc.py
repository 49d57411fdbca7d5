"""Settings of the gRPC server. They are refused if the packages for gRPC are not installed."""

from importlib.util import find_spec
from typing import Annotated, Final

from pydantic import AfterValidator, model_validator

from babelgate.gateway.settings.fields import Listen, SettingsSection

_HINT: Final = "gRPC needs grpcio, which is not installed: run pip install 'babelgate[grpc]', or remove this key"


def _check_installed(value: str | None) -> str | None:
    """Return the value of the setting unchanged. Raises ValueError if it is set and gRPC is not installed."""
    if value is not None and not is_installed():
        raise ValueError(_HINT)
    return value


def is_installed() -> bool:
    """Return True if the packages of `babelgate[grpc]` are installed."""
    return find_spec("grpc") is not None and find_spec("google.protobuf") is not None


class GrpcSettings(SettingsSection):
    """gRPC binding of A2A 1.0, on a separate port with the TLS of `tls`."""

    listen: Annotated[Listen, AfterValidator(_check_installed)] | None = None
    """Address and port of the gRPC server, such as `127.0.0.1:50051`; without it there is none. Needs
    `babelgate[grpc]`."""
    address: Listen | None = None
    """Host and port at which callers reach the gRPC server, such as `grpc.example.com:443`. Cards show it. By default
    the host at which callers reach the gateway, and the port of `listen`."""

    @model_validator(mode="after")
    def _consistent(self) -> "GrpcSettings":
        if self.address is not None and self.listen is None:
            raise ValueError("address needs listen, the address and port of the gRPC server")
        return self
