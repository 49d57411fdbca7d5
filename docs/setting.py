"""Tables of docs/configuration.md: every key of the settings with its default and its meaning."""

from collections.abc import Iterator
from typing import Any, Final, cast

from babelgate.gateway.settings.model import schema

_SIZES: Final = ("body", "artifact", "event", "output", "thread", "input", "metadata", "inline", "head")
"""Names of keys whose value can be a size in bytes, which is shown as KB or MB. One of them, `thread`, is also the name
of a key with a number of runs: values below 1024 are shown as numbers."""


def tables() -> str:
    """Return the table of the keys of the file, and the table of the keys of one agent."""
    settings = schema()
    sections = settings["$defs"]
    agent = sections["AgentSettings"]
    return "\n".join(
        (
            *_table(_rows(settings, sections, "")),
            "",
            "### One agent",
            "",
            *_table(_rows(agent, sections, "")),
        )
    )


def _table(rows: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for key, default, meaning in rows:
        yield f"| `{key}` | {default} | {' '.join(meaning.split()).replace('|', chr(92) + '|')} |"


def _rows(section: dict[str, Any], sections: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, each in section["properties"].items():
        # A section that true, false or null can replace is an alternative without a description.
        kinds = [each] if "description" in each else each.get("anyOf", [each])
        choice = next((kind for kind in kinds if "$ref" in kind), kinds[-1])
        inner = sections.get(choice.get("$ref", "").rpartition("/")[2])
        if inner is not None:
            yield from _rows(inner, sections, f"{prefix}{name}.")
            continue
        yield f"{prefix}{name}", _default(name, each), each["description"]


def _default(name: str, each: dict[str, Any]) -> str:
    default = each.get("default")
    if isinstance(default, bool):
        return str(default).lower()
    if name in _SIZES and isinstance(default, int) and default >= 2**10:
        return f"{default // 2**20}MB" if default >= 2**20 else f"{default // 2**10}KB"
    if isinstance(default, float):
        return f"{default:g}" if default % 1 else f"`{_period(default)}`"
    if isinstance(default, list) and default:
        return f"`[{', '.join(map(_period, cast('list[float]', default)))}]`"
    return f"`{default}`" if isinstance(default, str) else str(default) if isinstance(default, int) else ""


def _period(seconds: float) -> str:
    unit, size = next(
        (unit, size) for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)) if seconds % size == 0
    )
    return f"{seconds / size:g}{unit}"
