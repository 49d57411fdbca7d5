"""Resources, prompts and completion of the scripted MCP servers of both versions, with their violations."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from tests.conformance.servers.kit import Request, Violation
from tests.conformance.servers.mcp_tools import Refused, Tools

CATALOG: Final = (
    # Resources
    Violation("resources are not declared", "resources.declared"),
    Violation("resources cannot be listed", "resources.list", ("~*",)),
    Violation("resources are listed twice", "resources.unique"),
    Violation("URIs have spaces", "resources.uri"),
    Violation("each page of resources is the first", "resources.pages", ("resources.unique", "~*")),
    Violation("unknown cursors of resources are the first", "resources.cursor"),
    Violation("listed resources cannot be read", "read.answer", ("~*",)),
    Violation("contents have another URI", "read.uri"),
    Violation("blobs are no base64", "read.base64"),
    Violation("contents have another type", "read.type"),
    Violation("unknown resources are empty", "read.unknown", ("read.unknown-code",)),
    Violation("unknown resources have another code", "read.unknown-code"),
    Violation("reads need no URI", "read.no-uri"),
    Violation("templates cannot be listed", "templates.list", ("~*",)),
    Violation("templates have open braces", "templates.syntax"),
    Violation("unknown cursors of templates are the first", "templates.cursor"),
    Violation("templates cannot be expanded", "templates.read"),
    Violation("links cannot be read", "links.read"),
    # Prompts
    Violation("prompts are not declared", "prompts.declared"),
    Violation("prompts cannot be listed", "prompts.list", ("~*",)),
    Violation("prompts are listed twice", "prompts.unique"),
    Violation("each page of prompts is the first", "prompts.pages", ("prompts.unique", "~*")),
    Violation("unknown cursors of prompts are the first", "prompts.cursor"),
    Violation("listed prompts cannot be read", "prompts.get", ("~form.prompt",)),
    Violation("unknown prompts are empty", "prompts.unknown", ("prompts.unknown-code",)),
    Violation("unknown prompts have another code", "prompts.unknown-code"),
    Violation("arguments of prompts are optional", "prompts.missing"),
    Violation("prompts need no name", "prompts.no-name"),
    # Completion
    Violation("completions are not declared", "complete.declared", ("~templates.read",)),
    Violation("nothing can be completed", "complete.answer", ("~*",)),
    Violation("completions have 101 values", "complete.limit"),
    Violation("totals are zero", "complete.total"),
    Violation("unknown prompts are completed", "complete.unknown"),
    Violation("every reference is completed", "complete.type"),
    # The form of messages
    Violation("resources have no name", "form.resources"),
    Violation("templates have no name", "form.templates"),
    Violation("contents have no text", "form.contents"),
    Violation("descriptions are numbers", "form.prompts"),
    Violation("messages of prompts have no role", "form.prompt"),
    Violation("totals are text", "form.completion"),
)

_NOTE: Final = "note://one"
_PICTURE: Final = "picture://one"
_LINK: Final = "link://one"
_VALUES: Final = ("apple", "pear")


class Catalog(Tools):
    not_found: int
    """Code of the error for an unknown resource."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.changes = 0
        """Number of changes of the resource `_NOTE`."""

    def publish(self, uri: str) -> None:
        """Notify those who follow a resource of a change."""
        raise NotImplementedError

    def catalog_capabilities(self) -> dict[str, Any]:
        capabilities: dict[str, Any] = {"resources": {"subscribe": True}, "prompts": {}, "completions": {}}
        self.drop_if("resources are not declared", capabilities, "resources")
        self.drop_if("prompts are not declared", capabilities, "prompts")
        self.drop_if("completions are not declared", capabilities, "completions")
        return capabilities

    def answer_catalog(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of a method for resources, prompts or completion, or None for any other method. Raises
        Refused."""
        match method:
            case "resources/list":
                return self._list("resources", self._resources(), params)
            case "resources/templates/list":
                return self._list_templates(params)
            case "resources/read":
                return self._read(params)
            case "prompts/list":
                return self._list("prompts", self._prompts(), params)
            case "prompts/get":
                return self._get(params)
            case "completion/complete":
                return self._complete(params)
            case _:
                return None

    # Resources

    def _resources(self) -> list[dict[str, Any]]:
        note = {"uri": _NOTE, "name": "note", "mimeType": "text/plain"}
        self.drop_if("resources have no name", note, "name")
        picture = {"uri": _PICTURE, "name": "picture", "mimeType": "image/png"}
        self.set_if("URIs have spaces", picture, uri="picture://the one")
        return [note, picture, {"uri": "note://two", "name": "other"}]

    def _list(self, member: str, entries: Sequence[Any], params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a page of two entries."""
        self.raise_if(f"{member} cannot be listed", Refused(-32603, "not listed"))
        cursor = params.get("cursor")
        if cursor not in (None, "2") and not self.does(f"unknown cursors of {member} are the first"):
            raise Refused(-32602, "no such cursor")
        if cursor == "2":
            return {member: entries[:2] if self.does(f"each page of {member} is the first") else entries[2:]}
        page = [entries[0], *entries[:2]] if self.does(f"{member} are listed twice") else entries[:2]
        return {member: page, "nextCursor": "2"}

    def _list_templates(self, params: Mapping[str, Any]) -> dict[str, Any]:
        self.raise_if("templates cannot be listed", Refused(-32603, "not listed"))
        if "cursor" in params and not self.does("unknown cursors of templates are the first"):
            raise Refused(-32602, "no such cursor")
        fruit = {"uriTemplate": "fruit://{name}", "name": "fruit"}
        self.drop_if("templates have no name", fruit, "name")
        more = [{"uriTemplate": "fruit://{", "name": "odd"}] if self.does("templates have open braces") else []
        return {"resourceTemplates": [fruit, *more]}

    def _read(self, params: Mapping[str, Any]) -> dict[str, Any]:
        uri = params.get("uri")
        if uri is None and self.does("reads need no URI"):
            uri = _NOTE
        if not isinstance(uri, str):
            raise Refused(-32602, "a URI is needed")
        contents = self._contents(uri)
        if contents is None:
            if self.does("unknown resources are empty"):
                return {"contents": []}
            code = -32603 if self.does("unknown resources have another code") else self.not_found
            raise Refused(code, "Resource not found", data={"uri": uri})
        self.raise_if("listed resources cannot be read", Refused(-32603, "not read"))
        return {"contents": [contents]}

    def _contents(self, uri: str) -> dict[str, Any] | None:
        contents: dict[str, Any] = {"uri": uri, "mimeType": "text/plain"}
        if uri == _NOTE:
            contents["text"] = f"changed {self.changes} times"
            self.drop_if("contents have no text", contents, "text")
            self.set_if("contents have another URI", contents, uri="note://another")
            self.set_if("contents have another type", contents, mimeType="text/html")
        elif uri == "note://two":
            contents["text"] = "two"
        elif uri.startswith("picture://"):
            contents |= {"mimeType": "image/png", "blob": "bytes!" if self.does("blobs are no base64") else "iVBORw=="}
        elif uri in [f"fruit://{each}" for each in _VALUES] and not self.does("templates cannot be expanded"):
            contents["text"] = uri
        elif uri == _LINK and not self.does("links cannot be read"):
            contents["text"] = "linked"
        else:
            return None
        return contents

    async def run(self, request: Request, params: Mapping[str, Any], name: str, text: str) -> dict[str, Any]:
        if name == "link":
            return {"content": [{"type": "resource_link", "uri": _LINK, "name": "linked"}]}
        if name == "touch":
            self.changes += 1
            self.publish(_NOTE)
        return await super().run(request, params, name, text)

    # Prompts

    def _prompts(self) -> list[dict[str, Any]]:
        greet: dict[str, Any] = {"name": "greet", "arguments": [{"name": "name", "required": True}]}
        self.set_if("descriptions are numbers", greet, description=7)
        return [greet, {"name": "hello"}, {"name": "bye", "arguments": [{"name": "name"}]}]

    def _get(self, params: Mapping[str, Any]) -> dict[str, Any]:
        name = params.get("name")
        arguments: Mapping[str, Any] = params.get("arguments") or {}
        if name is None and self.does("prompts need no name"):
            name = "hello"
        if name not in [each["name"] for each in self._prompts()]:
            if name is not None and self.does("unknown prompts are empty"):
                return {"messages": []}
            raise Refused(-32603 if self.does("unknown prompts have another code") else -32602, "Unknown prompt")
        missing = name == "greet" and "name" not in arguments
        self.raise_unless("arguments of prompts are optional", Refused(-32602, "name is missing"), when=missing)
        self.raise_if("listed prompts cannot be read", Refused(-32603, "not read"))
        message: dict[str, Any] = {"role": "user", "content": {"type": "text", "text": f"{name} {arguments}"}}
        self.drop_if("messages of prompts have no role", message, "role")
        return {"messages": [message]}

    # Completion

    def _complete(self, params: Mapping[str, Any]) -> dict[str, Any]:
        self.raise_if("nothing can be completed", Refused(-32603, "not completed"))
        ref = cast("dict[str, Any]", params["ref"])
        if ref["type"] not in ("ref/prompt", "ref/resource") and not self.does("every reference is completed"):
            raise Refused(-32602, "no such type")
        unknown = ref["type"] == "ref/prompt" and ref["name"] not in [each["name"] for each in self._prompts()]
        self.raise_unless("unknown prompts are completed", Refused(-32602, "Unknown prompt"), when=unknown)
        values = list(_VALUES)
        if self.does("completions have 101 values"):
            values += [str(number) for number in range(99)]
        completion: dict[str, Any] = {"values": values, "total": len(values), "hasMore": False}
        self.set_if("totals are zero", completion, total=0)
        self.set_if("totals are text", completion, total="two")
        return {"completion": completion}
