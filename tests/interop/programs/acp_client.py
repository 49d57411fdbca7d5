"""The official ACP client, driven by JSON lines (see `lines`). Options: base_url, headers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from acp_sdk.client import Client
from acp_sdk.models import ACPError, Message, MessageAwaitResume, MessagePart, Session
from lines import answer_calls, options
from pydantic import BaseModel


def dump(model: BaseModel) -> Any:
    return model.model_dump(mode="json")


def read_input(given: Any) -> Any:
    """A string, a message, a part, or a list of messages or parts: what the client's `input` may be."""
    if isinstance(given, list):
        return [read_input(item) for item in given]
    if isinstance(given, dict):
        return (Message if "parts" in given else MessagePart).model_validate(given)
    return given


def read_answer(given: Any) -> MessageAwaitResume:
    message = Message(parts=[MessagePart(content=given)]) if isinstance(given, str) else Message.model_validate(given)
    return MessageAwaitResume(message=message)


class Calls:
    """One method for each call; `session` names a session of this program, made at its first use."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sessions: dict[str, Client] = {}

    def _in(self, session: str | None) -> Client:
        if session is None:
            return self._client
        if session not in self._sessions:
            self._sessions[session] = self._client.session()
        return self._sessions[session]

    async def open_session(self, session: str, id: str) -> None:
        """The session of that name is the one with this id, which may be another program's."""
        self._sessions[session] = self._client.session(Session(id=id))

    async def refresh_session(self, session: str) -> Any:
        return dump(await self._in(session).refresh_session())

    async def history(self, session: str) -> Any:
        """The messages of the session, fetched from the URLs that its descriptor lists."""
        descriptor = await self._in(session).refresh_session()
        return [dump(message) async for message in descriptor.load_history()]

    async def ping(self) -> None:
        await self._client.ping()

    async def agents(self) -> Any:
        return [dump(agent) async for agent in self._client.agents()]

    async def agent(self, name: str) -> Any:
        return dump(await self._client.agent(name=name))

    async def run_sync(self, agent: str, input: Any, session: str | None = None) -> Any:
        return dump(await self._in(session).run_sync(read_input(input), agent=agent))

    async def run_async(self, agent: str, input: Any, session: str | None = None) -> Any:
        return dump(await self._in(session).run_async(read_input(input), agent=agent))

    async def run_stream(self, agent: str, input: Any, session: str | None = None) -> AsyncIterator[Any]:
        async for event in self._in(session).run_stream(read_input(input), agent=agent):
            yield dump(event)

    async def run_status(self, run_id: str) -> Any:
        return dump(await self._client.run_status(run_id=run_id))

    async def run_events(self, run_id: str) -> AsyncIterator[Any]:
        async for event in self._client.run_events(run_id=run_id):
            yield dump(event)

    async def run_cancel(self, run_id: str) -> Any:
        return dump(await self._client.run_cancel(run_id=run_id))

    async def run_resume_sync(self, run_id: str, answer: Any) -> Any:
        return dump(await self._client.run_resume_sync(read_answer(answer), run_id=run_id))

    async def run_resume_async(self, run_id: str, answer: Any) -> Any:
        return dump(await self._client.run_resume_async(read_answer(answer), run_id=run_id))

    async def run_resume_stream(self, run_id: str, answer: Any) -> AsyncIterator[Any]:
        async for event in self._client.run_resume_stream(read_answer(answer), run_id=run_id):
            yield dump(event)


def fault_data(error: Exception) -> Any:
    return dump(error.error) if isinstance(error, ACPError) else None


async def main() -> None:
    # trust_env=False: a proxy of this machine must not stand between two programs on it.
    async with Client(
        base_url=options()["base_url"], headers=options().get("headers"), trust_env=False, timeout=60
    ) as client:
        calls = Calls(client)
        names = [name for name in dir(calls) if not name.startswith("_")]
        await answer_calls({name: getattr(calls, name) for name in names}, fault_data)


if __name__ == "__main__":
    asyncio.run(main())
