"""Chat completions in front of a server of chat completions: the official client sees no difference between the gateway
and the server, except those in `DIFFERENCES`."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.openai.scripted import HELLO, Said, Scripted, frames_of, through, unknown
from tests.difference import differences

ASK: Said = {"model": "far", "messages": [HELLO]}


def token(text: str) -> Said:
    top = [{"token": text, "logprob": -0.1, "bytes": [1]}, {"token": "b", "logprob": -2.5, "bytes": None}]
    return {"token": text, "logprob": -0.1, "bytes": [1], "top_logprobs": top, **unknown("token")}


def chunk(delta: Said, finish: str | None = None, *, logprobs: Any = None, **more: Any) -> Said:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish, **more}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "far"}
    return {**head, "choices": [choice], "system_fingerprint": "fp_1", "service_tier": "flex", "usage": None}


USAGE: Said = {
    "prompt_tokens": 7,
    "completion_tokens": 5,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0, **unknown("prompt")},
    "completion_tokens_details": {"reasoning_tokens": 1, "accepted_prediction_tokens": 0},
    "cost": 0.25,
    **unknown("usage"),
}
ANNOTATIONS: list[Said] = [
    {
        "type": "url_citation",
        "url_citation": {"start_index": 0, "end_index": 3, "url": "http://a.b", "title": "T", "content": "more"},
        **unknown("annotation"),
    },
    {"type": "file_citation", "file_citation": {"file_id": "f"}},
]
STREAM: list[Said] = [
    chunk({"role": "assistant", "content": "", "refusal": None}),
    chunk({"reasoning_content": "Hm"}),
    chunk({"content": "one ", **unknown("delta")}, logprobs={"content": [token("one ")], "refusal": None}),
    chunk({"content": "two"}, logprobs={"content": [token("two")], "refusal": None}, token_ids=[1, 2]),
    chunk({"audio": {"id": "a", "transcript": "one"}}),
    chunk({"audio": {"transcript": " two", "expires_at": 3}}),
    chunk({"annotations": ANNOTATIONS}),
    chunk({}, "stop", stop_reason="###", **unknown("choice")),
    {**chunk({}), "choices": [], "usage": USAGE},
]


def whole(finish: str = "stop", **message: Any) -> Said:
    full_message = {"role": "assistant", "content": "one two", "refusal": None, **message}
    logprobs = {"content": [token("one "), token("two")], "refusal": None}
    choice = {"index": 0, "message": full_message, "logprobs": logprobs, "finish_reason": finish, **unknown("choice")}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "far",
        "choices": [choice],
        "usage": USAGE,
        "system_fingerprint": "fp_1",
        "service_tier": "flex",
        **unknown("completion"),
    }


WHOLE = whole(annotations=ANNOTATIONS, reasoning_content="Hm", audio=None, **unknown("message"))

DIFFERENCES = {
    "id": "by which it is found here",
    "created": "the gateway's clock",
}
"""Reason why a member differs from that of the upstream, by name of the member."""
_IN_CHUNKS = re.compile(rf"!\[\d+\]\.({'|'.join(DIFFERENCES)})")
"""Pattern of the paths of the members of `DIFFERENCES` in chunks."""


def unexplained(expected: Any, actual: Any) -> list[str]:
    paths = differences(expected, actual)
    return [each for each in paths if each.lstrip("!") not in DIFFERENCES and not _IN_CHUNKS.fullmatch(each)]


async def test_completion_equals_the_upstream_one(tmp_path: Path) -> None:
    async with through(tmp_path, Scripted(WHOLE), "chat") as caller:
        answer = (await caller.post("/v1/chat/completions", json={**ASK, "store": True})).json()
        assert unexplained(WHOLE, answer) == []
        stored = (await caller.get(f"/v1/chat/completions/{answer['id']}")).json()
        assert list(differences(answer, stored)) == ["+metadata"]


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "insufficient_system_resource"])
async def test_finish_reason_is_passed_on_unchanged(tmp_path: Path, reason: str) -> None:
    far = Scripted(WHOLE)
    async with through(tmp_path, far, "chat") as caller:
        for says in (whole(reason), [*STREAM[:3], chunk({}, reason)]):
            far.says = says
            answer = (await caller.post("/v1/chat/completions", json=ASK)).json()
            assert answer["choices"][0]["finish_reason"] == reason
            frames = frames_of(await caller.post("/v1/chat/completions", json={**ASK, "stream": True}))
            assert frames[-1]["choices"][0]["finish_reason"] == reason


async def test_stream_equals_the_upstream_one(tmp_path: Path) -> None:
    async with through(tmp_path, Scripted(STREAM), "chat") as caller:
        body = {**ASK, "stream": True, "stream_options": {"include_usage": True}}
        first, *middle, ended, counted = frames_of(await caller.post("/v1/chat/completions", json=body))
        # The gateway sends its first chunk before the server sends anything.
        assert unexplained(STREAM[0], first) == ["-system_fingerprint", "-service_tier"]
        expected = [*STREAM[1:6], chunk({"annotations": ANNOTATIONS[1:]})]
        assert unexplained(expected, middle) == []
        # Citations are sent together at the end.
        last = STREAM[7]
        last = {**last, "choices": [{**last["choices"][0], "delta": {"annotations": ANNOTATIONS}}]}
        assert unexplained(last, ended) == []
        assert unexplained(STREAM[8], counted) == []


async def test_streamed_answer_is_merged_as_clients_do(tmp_path: Path) -> None:
    async with through(tmp_path, Scripted(STREAM), "chat") as caller:
        answer = (await caller.post("/v1/chat/completions", json=ASK)).json()
        [choice] = answer["choices"]
        assert choice["logprobs"] == {"content": [token("one "), token("two")], "refusal": None}
        assert (choice["stop_reason"], choice["token_ids"]) == ("###", [1, 2])
        assert choice["message"]["audio"] == {"id": "a", "transcript": "one two", "expires_at": 3}
        assert choice["message"]["annotations"] == ANNOTATIONS
        assert (choice["message"]["content"], choice["message"]["x_delta"]) == ("one two", {"k": [1, "ü", None]})
        assert answer["usage"] == USAGE
        assert (answer["system_fingerprint"], answer["service_tier"]) == ("fp_1", "flex")


async def test_unknown_members_of_an_answer_are_limited(tmp_path: Path) -> None:
    large = [chunk({"content": "x", "x_large": "y" * 30_000}) for _ in range(5)]
    async with through(tmp_path, Scripted([*large, STREAM[-2]]), "chat") as caller:
        answer = await caller.post("/v1/chat/completions", json=ASK)
        message = answer.json()["choices"][0]["message"]
        assert (message["content"], len(message["x_large"])) == ("xxxxx", 60_000)
        assert "too large" in answer.headers["Babelgate-Loss"]


# Requests

REQUEST: Said = {
    "model": "far",
    "messages": [
        {"role": "developer", "content": "Be brief", **unknown("message")},
        {"role": "user", "name": "ann", "content": "Look"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "f", "arguments": "{}", **unknown("function")},
                    "extra_content": {"google": {"thought_signature": "s"}},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42", **unknown("result")},
        {"role": "assistant", "refusal": "No", "audio": {"id": "audio_1"}},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "b"},
                {"type": "image_url", "image_url": {"url": "http://a.b/c.png", "detail": "low"}, **unknown("part")},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAE=", "detail": "high"}},
                {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,AAE="}},
                {"type": "input_audio", "input_audio": {"data": "AAE=", "format": "mp3"}},
            ],
        },
    ],
    "logprobs": True,
    "top_logprobs": 2,
    "seed": 3,
    "top_p": 0.5,
    "temperature": 0,
    "stop": ["###"],
    "frequency_penalty": 0.1,
    "presence_penalty": 0.2,
    "logit_bias": {"1": -100},
    "user": "u",
    "reasoning_effort": "low",
    "verbosity": "low",
    "prediction": {"type": "content", "content": "x"},
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "mp3"},
    "parallel_tool_calls": False,
    "service_tier": "flex",
    "max_completion_tokens": 9,
    "web_search_options": {},
    "tools": [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}, **unknown("tool")},
        {"type": "custom", "custom": {"name": "g", "format": {"type": "text"}}},
        {"type": "google_search", "google_search": {}},
    ],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}},
    "extra": {"k": 1},
    **unknown("request"),
}


async def test_request_reaches_the_upstream_unchanged(tmp_path: Path) -> None:
    far = Scripted(whole(content="{}"))
    async with through(tmp_path, far, "chat") as caller:
        answer = await caller.post("/v1/chat/completions", json=REQUEST)
        assert answer.status_code == 200, answer.text
        # The gateway requests a stream, with the usage.
        assert list(differences(REQUEST, far.requests[-1])) == ["+stream", "+stream_options"]


async def test_files_of_earlier_messages_reach_the_upstream(tmp_path: Path) -> None:
    *earlier, last = REQUEST["messages"]
    messages = [*earlier, last, {"role": "assistant", "content": "I see"}, {"role": "user", "content": "And now?"}]
    far = Scripted(WHOLE)
    async with through(tmp_path, far, "chat") as caller:
        answer = await caller.post("/v1/chat/completions", json={**ASK, "messages": messages})
        assert answer.status_code == 200, answer.text
        assert list(differences(messages, far.requests[-1]["messages"])) == []


async def test_files_of_earlier_messages_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babelgate.adapters.openai.client.MOST_OF_FILES", 3)
    pictures = [f"data:image/png;base64,{content}" for content in ("AAE=", "AAI=")]
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]} for url in pictures]
    between = {"role": "assistant", "content": "I see"}
    far = Scripted(WHOLE)
    async with through(tmp_path, far, "chat") as caller:
        body = {**ASK, "messages": [messages[0], between, messages[1], between, HELLO]}
        answer = await caller.post("/v1/chat/completions", json=body)
        first, _, second, *_ = far.requests[-1]["messages"]
        assert (first["content"], second) == ([{"type": "text", "text": "[file: image/png]"}], messages[1])
        assert "file-bytes" in answer.headers["Babelgate-Loss"]


async def test_members_for_the_gateway_are_not_sent_upstream(tmp_path: Path) -> None:
    far = Scripted(WHOLE)
    async with through(tmp_path, far, "chat") as caller:
        body = {**ASK, "n": 1, "store": False, "metadata": {"k": "v"}, "stream_options": {"include_usage": False}}
        assert (await caller.post("/v1/chat/completions", json=body)).status_code == 200
        assert list(differences(ASK, far.requests[-1])) == ["+stream", "+stream_options"]


async def test_unknown_members_of_a_call_are_sent_back(tmp_path: Path) -> None:
    """Check members such as thought signatures: Gemini's OpenAI-compatible API refuses the result of a call without
    them."""
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": "{}", **unknown("function")},
        **extra,
    }
    far = Scripted(whole("tool_calls", content=None, tool_calls=[call]))
    async with through(tmp_path, far, "chat") as caller:
        message = (await caller.post("/v1/chat/completions", json=ASK)).json()["choices"][0]["message"]
        [call_in_answer] = message["tool_calls"]
        assert list(differences(call, call_in_answer)) == ["!id"]
        far.says = WHOLE
        result = {"role": "tool", "tool_call_id": call_in_answer["id"], "content": "42"}
        answered = await caller.post("/v1/chat/completions", json={**ASK, "messages": [HELLO, message, result]})
        assert answered.status_code == 200, answered.text
        assert list(differences(call, far.requests[-1]["messages"][1]["tool_calls"][0])) == []


# Errors


@pytest.mark.parametrize("status", [400, 404, 409, 413, 422, 429, 500, 503])
async def test_upstream_error_is_passed_on_unchanged(tmp_path: Path, status: int) -> None:
    error = {"message": "Not so", "type": "some_error", "param": "messages.0", "code": "some_code", **unknown("error")}
    far = Scripted({"error": error})
    far.status, far.headers = status, {"retry-after": "7", "retry-after-ms": "6500", "x-ratelimit-limit-tokens": "9"}
    async with through(tmp_path, far, "chat") as caller:
        answer = await caller.post("/v1/chat/completions", json=ASK)
        assert (answer.status_code, answer.json()) == (status, {"error": error})
        assert answer.headers["retry-after"] == "7"
        frames = frames_of(await caller.post("/v1/chat/completions", json={**ASK, "stream": True}))
        assert frames[-1] == {"error": error}


@pytest.mark.parametrize("status", [401, 403])
async def test_wrong_key_of_the_gateway_is_a_server_error(tmp_path: Path, status: int) -> None:
    far = Scripted({"error": {"message": "Incorrect API key provided: sk-…", "type": "t", "param": None, "code": "c"}})
    far.status = status
    async with through(tmp_path, far, "chat") as caller:
        answer = await caller.post("/v1/chat/completions", json=ASK)
        assert answer.status_code == 500
        assert "Incorrect" not in answer.text
