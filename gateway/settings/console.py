"""Settings of the web console."""

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from babelgate.gateway.settings.fields import SettingsSection


def _read_off(value: object) -> object:
    return "off" if value is False else value  # what YAML 1.1 reads in `wire: off`


class ConsoleSettings(SettingsSection):
    """Web console below `/console/`. `console: false` is short for `console: {enabled: false}`."""

    enabled: bool = True
    """True if the gateway serves the console. Without it, `/docs` and all paths below `/console` are 404."""
    jobs: bool = True
    """True if operators can start checks and benchmarks in the console."""
    wire: Annotated[Literal["off", "failures", "all"], BeforeValidator(_read_off)] = "failures"
    """Runs whose exchanges with the servers of their agents the console shows: `off` for none, `failures` for those
    that failed, `all` for all. Exchanges are in memory only, without the values of secret headers."""


_SWITCHES: Final = {"true": True, "false": False}


def _expand(value: object) -> object:
    """Convert true and false to a section with this value of `enabled`. A variable may have them as text."""
    if isinstance(value, str):
        value = _SWITCHES.get(value.strip().lower(), value)
    return {"enabled": value} if isinstance(value, bool) else value


class _Switchable:
    """JSON schema of a section that may be replaced by true or false."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "boolean"}, handler(core)]}


ConsoleSetting = Annotated[ConsoleSettings, BeforeValidator(_expand), _Switchable()]
"""Type of the setting `console`: a section, or true or false as a short form of a section with this `enabled`."""
