"""URI templates (RFC 6570) of MCP servers, and their expansion with values that the server suggests."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from babelgate.conformance.protocols.mcp.target import Ctx
from babelgate.conformance.wire.exchange import as_list, dig

_NAME: Final = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*"
_VARIABLE: Final = rf"{_NAME}(?::[1-9][0-9]{{0,3}}|\*)?"
_EXPRESSION: Final = rf"\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\}}"
_LITERAL: Final = r"(?:%[0-9A-Fa-f]{2}|[^\x00-\x20\x7f\"%<>\\^`{|}])"
_TEMPLATE: Final = re.compile(rf"(?:{_LITERAL}|{_EXPRESSION})*")
_PARTS: Final = re.compile(r"\{([+#./;?&]?)([^}]*)\}")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:%[0-9A-Fa-f]{2}|[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-])*")
_SUGGESTIONS: Final = 3
"""Maximum number of values of a variable that are tried. Chosen."""


def is_template(text: Any) -> bool:
    """Return True if a value is a URI template (RFC 6570, section 2)."""
    return isinstance(text, str) and _TEMPLATE.fullmatch(text) is not None


def is_uri(text: Any) -> bool:
    """Return True if a value has the characters of a URI with a scheme (RFC 3986, sections 2 and 3)."""
    return isinstance(text, str) and _URI.fullmatch(text) is not None


def variables_of(template: str) -> list[str]:
    """Return the variables that a URI needs: those of expressions without an operator, or with `+`. All others may be
    left out."""
    parts = _PARTS.findall(template)
    names = [name for operator, names in parts if operator in ("", "+") for name in names.split(",")]
    return list(dict.fromkeys(re.split(r"[:*]", name)[0] for name in names))


def is_expansion(template: str, uri: str) -> bool:
    """Return True if a URI may be an expansion of a template. Expressions with an operator match any text."""
    patterns: list[str] = []
    end = 0
    for match in _PARTS.finditer(template):
        patterns += [re.escape(template[end : match.start()]), ".*" if match.group(1) else "[^/?#]+"]
        end = match.end()
    return re.fullmatch("".join([*patterns, re.escape(template[end:])]), uri) is not None


def expand(template: str, values: Mapping[str, str]) -> str:
    """Return the URI for these values of the variables (RFC 6570, section 3). Other variables are undefined."""

    def one(match: re.Match[str]) -> str:
        operator, variables = match.group(1), match.group(2).replace("*", "").split(",")
        if operator not in ("", "+"):
            return ""
        safe = ":/?#[]@!$&'()*+,;=" if operator else ""
        parts = [each.partition(":") for each in variables]
        found = [values[name][: int(length) if length else None] for name, _, length in parts if name in values]
        return ",".join(quote(each, safe=safe) for each in found)

    return _PARTS.sub(one, template)


async def suggested_uris(ctx: Ctx, template: str) -> list[str]:
    """Return URIs of a template, with values that the server suggests for its variables. It is empty if the server
    suggests no value for one of them."""
    values: dict[str, str] = {}
    last: list[str] = []
    names = variables_of(template)
    for name in names:
        params = {
            "ref": {"type": "ref/resource", "uri": template},
            "argument": {"name": name, "value": ""},
            **({"context": {"arguments": dict(values)}} if values else {}),
        }
        reply = await ctx.target.ask("completion/complete", params)
        last = [each for each in as_list(dig(reply.result, "completion", "values")) if isinstance(each, str)]
        if not last:
            return []
        values[name] = last[0]
    if not names:
        return [expand(template, {})]
    return [expand(template, {**values, names[-1]: each}) for each in last[:_SUGGESTIONS]]
