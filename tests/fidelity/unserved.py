"""Readers of the protocols for which the gateway has no client.

They are small and read only what is on the wire, so that these protocols are measured like all others.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, Final

import httpx

from babelgate.adapters.kit.extension import RecordReader
from babelgate.canonical import (
    Event,
    FilePart,
    Invocation,
    TextPart,
)
from babelgate.canonical.event import ArtifactAdded, PartAdded
from babelgate.canonical.stored import decode_event
from tests import loopback
from tests.adapters.mcp.site import Modern, messages_of

UNSERVED: Final = frozenset({"runtime", "vercel-ui"})
"""Names of the protocols for which the gateway has no client."""
PLAIN: Final = frozenset({*UNSERVED, "mcp"})
"""Protocols whose clients do not use the extension."""


Wire = dict[str, Any]

RECORDS: Final = "org.w3id.babelgate/events-v1"


def _parts(call: Invocation) -> Iterator[Wire]:
    """Yield the parts of the message in the form of the runtime's requests.

    Bytes are Base64, as msgspec writes them in JSON.
    """
    for part in call.messages[-1].parts:
        yield json.loads(json.dumps({"kind": part.kind, **_plain(part)}))


def _plain(part: Any) -> Wire:
    if isinstance(part, TextPart):
        return {"text": part.text}
    assert isinstance(part, FilePart) and part.inline is not None
    return {"name": part.name, "media_type": part.media_type, "inline": b64encode(part.inline).decode()}


class _Reader:
    def __init__(self, url: str, agent: str) -> None:
        self._http: httpx.AsyncClient = loopback.client(base_url=url, timeout=httpx.Timeout(30))
        self._agent = agent

    async def aclose(self) -> None:
        await self._http.aclose()


class RuntimeReader(_Reader):
    """A reader of the runtime's events, which are records with other names: `docs/protocols/runtime.md`, What a run
    says.
    """

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        await self._http.post("/v1/threads", json={"thread_id": call.thread_id, "if_exists": "return"})
        body: Wire = {
            "assistant_id": self._agent,
            "input": {"messages": [{"role": "user", "parts": list(_parts(call))}]},
            "metadata": dict(call.metadata),
        }
        if tools := call.config.get("tools"):
            body["tools"] = tools
        async with self._http.stream("POST", f"/v1/threads/{call.thread_id}/runs/stream", json=body) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    payload: Wire = json.loads(line.removeprefix("data: "))
                    event = json.dumps({"kind": payload["event_type"], **payload["payload"]}).encode()
                    yield _with_bytes(decode_event(event), {})


class McpReader(_Reader):
    """A reader of tool results with the extension: their records, and the bytes of files from the content."""

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        client = Modern(self._http, capabilities={"extensions": {RECORDS: {}}})
        last = call.messages[-1]
        files = [part for part in last.parts if isinstance(part, FilePart)]
        arguments: Wire = {"message": last.text, "thread_id": call.thread_id}
        records: Wire = {"metadata": dict(call.metadata)}
        if tools := call.config.get("tools"):
            records["tools"] = tools
        if call.input.uploaded:
            records["uploads"] = [
                {"name": each["name"], "media_type": each["media_type"], "bytes": each["inline"]}
                for each in map(_plain, files)
            ]
        params: Wire = {"name": self._agent, "arguments": arguments, "_meta": {RECORDS: records}}
        answer = messages_of(await self._http.request(**client.request("tools/call", params)))[-1]
        result: Wire = answer["result"]
        found = {part.name: await self._fetched(part) for part in _files_in(result["content"])}
        for event in RecordReader(of_run=True).read(result["_meta"][RECORDS]):
            yield _with_bytes(event, found)

    async def _fetched(self, part: FilePart) -> FilePart:
        """Return a file with its bytes, which `resources/read` returns for a large one."""
        if part.url is None or not part.url.startswith("babelgate://"):
            return part
        request = Modern(self._http).request("resources/read", {"uri": part.url})
        answer = messages_of(await self._http.request(**request))[-1]
        return part.replace(url=None, inline=b64decode(answer["result"]["contents"][0]["blob"]))


def _files_in(content: Sequence[Wire]) -> Iterator[FilePart]:
    for block in content:
        match block["type"]:
            case "resource":
                held = block["resource"]
                name, text = held["_meta"]["babelgate"]["name"], held.get("text")
                inline = b64decode(held["blob"]) if text is None else text.encode()
                yield FilePart(name=name, media_type=held.get("mimeType"), inline=inline)
            case "resource_link":
                yield FilePart(name=block["name"], media_type=block.get("mimeType"), url=block["uri"])
            case _:
                pass


def _with_bytes(event: Event, found: Mapping[str | None, FilePart]) -> Event:
    """Return the event with the bytes of its file. A hash alone is not a file."""
    part = event.part if isinstance(event, PartAdded | ArtifactAdded) else None
    if not isinstance(event, PartAdded | ArtifactAdded) or not isinstance(part, FilePart) or part.blob is None:
        return event
    inline = part.inline or (found[part.name].inline if part.name in found else None)
    return event.replace(part=part.replace(inline=inline, blob=None))
