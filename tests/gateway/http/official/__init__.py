"""Official OpenAPI documents, reduced to facts: one line for each operation, parameter and member.

Facts of a request and a response, without what is nested in their members:

- `POST /runs`: the operation is served
- `POST /runs ? limit`: it reads the query parameter
- `POST /runs < input required`: its request has the member, which is required
- `POST /runs > 200 run_id`: its response with this status has the member
"""

from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
_METHODS: Final = ("get", "put", "post", "patch", "delete")
_JSON: Final = "application/json"


def facts_of(document: Mapping[str, Any], prefix: str = "") -> Set[str]:
    """Return the facts of a document. `prefix` is removed from its paths."""
    return {
        fact
        for path, methods in document["paths"].items()
        if path.startswith(prefix)
        for method, operation in methods.items()
        if method in _METHODS
        for fact in _facts(document, f"{method.upper()} {_positional(path.removeprefix(prefix))}", operation)
    }


def official_facts(name: str) -> Set[str]:
    """Return the facts of an official document that are stored here."""
    return set((FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines())


def _positional(path: str) -> str:
    """Return a path without the names of its parameters, which differ between documents."""
    return "/".join("{}" if part.startswith("{") and part.endswith("}") else part for part in path.split("/"))


def _facts(document: Mapping[str, Any], name: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield name
    for parameter in operation.get("parameters", ()):
        resolved = _resolve(document, parameter)
        if resolved["in"] == "query":
            yield f"{name} ? {resolved['name']}"
    body = _resolve(document, operation.get("requestBody", {}))
    for media in body.get("content", {}).values():
        members, required = _members(document, media.get("schema", {}))
        for member in members:
            yield f"{name} < {member}{' required' if member in required else ''}"
    for status, response in operation.get("responses", {}).items():
        media = _resolve(document, response).get("content", {}).get(_JSON)
        if media is not None and str(status).startswith("2"):
            for member in _members(document, media.get("schema", {}))[0]:
                yield f"{name} > {status} {member}"


def _resolve(document: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in value:
        found: Any = document
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part.replace("~1", "/").replace("~0", "~")]
        value = found
    return value


def _members(document: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[Set[str], Set[str]]:
    """Return the names of all members of an object, and of those that every form of it requires. A list has the members
    of its items."""
    resolved = _resolve(document, schema)
    if "items" in resolved:
        return _members(document, resolved["items"])
    members, required = set(resolved.get("properties", ())), set(resolved.get("required", ()))
    for part in resolved.get("allOf", ()):
        more, needed = _members(document, part)
        members |= more
        required |= needed
    forms = [_members(document, form) for key in ("anyOf", "oneOf") for form in resolved.get(key, ())]
    forms = [form for form in forms if form[0]]
    if forms:
        members |= {member for form in forms for member in form[0]}
        required |= {member for member in forms[0][1] if all(member in form[1] for form in forms)}
    return members, required
