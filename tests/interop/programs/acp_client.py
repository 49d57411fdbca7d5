"""The official ACP client, driven by JSON lines (see `lines`). Options: base_url, headers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from acp_sdk.client import Client
from acp_sdk.models import ACPError, Message, MessageAwaitResume, MessagePart, Session
from lines import answer_calls, options, verification
from pydantic import BaseModel


def dump(model: BaseModel) -> Any:
    return model.model_dump(mode="json")


def read_input(value: Any) -> Any:
    """Return the `input` for the client: a string, a message, a part, or a list of messages or parts."""
    if isinstance(value, list):
        return [read_input(item) for item in value]
    if isinstance(value, dict):
        return (Message if "parts" in value else MessagePart).model_validate(value)
    return value


def read_answer(value: Any) -> MessageAwaitResume:
    message = Message(parts=[MessagePart(content=value)]) if isinstance(value, str) else Message.model_validate(value)
    return MessageAwaitResume(message=message)


class Calls:
    """Calls of the test, one method each. `session` names a session of this program, created at its first use."""

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
        """Use the session with this id, which another program may have created, under the name."""
        self._sessions[session] = self._client.session(Session(id=id))

    async def refresh_session(self, session: str) -> Any:
        return dump(await self._in(session).refresh_session())

    async def history(self, session: str) -> Any:
        """Return the messages of the session, fetched from the URLs that its descriptor lists."""
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
    # trust_env=False: requests between two local programs must not use a proxy of this machine.
    async with Client(
        base_url=options()["base_url"],
        headers=options().get("headers"),
        trust_env=False,
        verify=verification(),
        timeout=60,
    ) as client:
        calls = Calls(client)
        names = [name for name in dir(calls) if not name.startswith("_")]
        await answer_calls({name: getattr(calls, name) for name in names}, fault_data)


if __name__ == "__main__":
    asyncio.run(main())
