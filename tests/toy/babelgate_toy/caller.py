"""A caller that speaks the toy protocol."""

from typing import Any, ClassVar, NoReturn

import httpx

from babelgate.canonical import Feature
from tests.pairs.acp import named
from tests.pairs.caller import Caller, Content, Feed, Following, Ids, TaskView, View


def seen_in(response: httpx.Response) -> TaskView:
    assert response.status_code == 200, response.text
    ids, run = Ids.of(response.headers), response.json()
    assert ids.task == run["id"]
    return TaskView(
        run["state"], text=run["text"], fault=run["failure"] or "", task_id=run["id"], context_id=ids.thread
    )


class Toy(Caller):
    name: ClassVar = "toy"
    speaks: ClassVar = "toy"

    async def send(self, *contents: Content) -> TaskView:
        return seen_in(await self.http.post(f"/toy/{self.agent}", json={"text": " ".join(map(str, contents))}))

    async def look(self, task_id: str) -> TaskView:
        return seen_in(await self.http.get(f"/toy/runs/{task_id}"))

    async def losses(self, task_id: str) -> set[str]:
        response = await self.http.get(f"/toy/runs/{task_id}")
        return named(response.headers.get("babelgate-loss", ""))

    # Features that the protocol does not have. Tests check `carries` first.

    def _lacks(self, feature: Feature) -> NoReturn:
        raise NotImplementedError(f"{feature}: {self.carries[feature].how}")

    def stream(self, *contents: Content) -> Following:
        self._lacks(Feature.STREAM)

    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        self._lacks(Feature.QUESTION)

    def stream_answer(self, paused: Feed, *answers: Content) -> Following:
        self._lacks(Feature.QUESTION)

    async def cancel(self, task_id: str) -> TaskView:
        self._lacks(Feature.CANCEL)

    def attach(self, task_id: str) -> Following:
        self._lacks(Feature.REATTACH)

    def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> Following:
        self._lacks(Feature.REATTACH)

    def repeated(self, live: list[bytes]) -> Any:
        self._lacks(Feature.REATTACH)
