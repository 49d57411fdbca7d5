"""Compactions of conversations, over a whole gateway."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import Invocation
from babelgate.gateway import demo
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT: Final = "/v1/responses"


async def recall(call: Invocation) -> str:
    return " | ".join(f"{message.role}: {message.text}" for message in (*call.history, *call.messages))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    folder: Path = tmp_path_factory.mktemp("compact")
    agents = {"recall": recall, "echo": demo.echo, "ask": demo.ask}
    async with running(folder, agents, keys={"alice": "wonderland", "bob": "builder"}) as running_gateway:
        yield running_gateway


async def post(gateway: Running, path: str, key: str = "wonderland", **body: Any) -> tuple[int, Any]:
    answer = await gateway.http.post(path, json=body, headers={"Authorization": f"Bearer {key}"})
    return answer.status_code, answer.json()


async def compact(gateway: Running, **body: Any) -> Any:
    status, compaction = await post(gateway, f"{AT}/compact", **{"model": "recall", **body})
    assert status == 200, compaction
    assert (compaction["object"], [item["type"] for item in compaction["output"]]) == (
        "response.compaction",
        ["compaction"],
    )
    return compaction


def text_of(response: Any) -> str:
    return response["output"][-1]["content"][0]["text"]


async def test_compaction_is_continued_without_an_id(gateway: Running) -> None:
    items = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    compaction = await compact(gateway, input=items, prompt_cache_key="k")
    status, answer = await post(
        gateway, AT, model="recall", input=[*compaction["output"], {"role": "user", "content": "three"}], tools=[]
    )
    assert status == 200, answer
    assert text_of(answer) == "user: one | agent: two | user: three"


async def test_compaction_ends_with_the_response_it_names(
    gateway: Running,
) -> None:
    _, first = await post(gateway, AT, model="echo", input="one")
    _, second = await post(gateway, AT, model="echo", input="two", previous_response_id=first["id"])
    await post(gateway, AT, model="echo", input="three", previous_response_id=second["id"])
    compaction = await compact(gateway, previous_response_id=second["id"], input="and")
    again = await compact(gateway, input=[*compaction["output"], {"role": "user", "content": "so on"}])
    status, answer = await post(gateway, AT, model="recall", input=again["output"])
    assert status == 200, answer
    assert text_of(answer) == "user: one | agent: one | user: two | agent: two | user: and | user: so on"


async def test_invalid_compact_request_is_rejected(gateway: Running) -> None:
    _, asking = await post(gateway, AT, model="ask", input="Hi")
    _, stored = await post(gateway, AT, model="echo", input="one")
    for body, code in (
        ({"model": "recall"}, None),
        ({"input": "hi"}, "missing_required_parameter"),
        ({"model": "recall", "previous_response_id": "resp_x"}, "previous_response_not_found"),
        ({"model": "recall", "previous_response_id": asking["id"]}, None),
        ({"model": "recall", "input": [{"type": "message"}]}, None),
    ):
        status, error = await post(gateway, f"{AT}/compact", **body)
        assert (status, error["error"]["code"]) == (400, code), error
    status, error = await post(gateway, f"{AT}/compact", "builder", model="recall", previous_response_id=stored["id"])
    assert (status, error["error"]["code"]) == (400, "previous_response_not_found")
    assert (await post(gateway, f"{AT}/compact", model="nobody", input="hi"))[0] == 404


async def test_changed_compaction_is_rejected(gateway: Running) -> None:
    (item,) = (await compact(gateway, input="one"))["output"]
    content = item["encrypted_content"]
    status, error = await post(
        gateway, AT, model="recall", input=[{**item, "encrypted_content": content[:-4] + "AAAA"}]
    )
    assert (status, error["error"]["code"], error["error"]["param"]) == (400, "invalid_compaction", "input.0")
