"""Cost of a turn in a growing conversation.

One agent sends 50 words a turn, over each protocol. Another one receives the whole conversation each time, as a model
does.

    .venv/bin/python -m bench.turns [--turns 400]

One caller makes one turn after the other. The figures are medians of 20 turns, and the gateway's CPU time per turn:
early in the conversation, in its middle, and at its end. The gateway is a separate process with its default settings.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from babelgate.canonical import Invocation
from bench import server

WORDS = " ".join(f"word{number}" for number in range(50))
WINDOW = 20
A2A = {"A2A-Version": "1.0"}

Turn = Callable[[], Any]


async def recall(call: Invocation) -> str:
    return f"{len(call.history)} before, now: {call.text}"


def posted(http: httpx.Client, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
    answer = http.post(path, json=body, headers=headers)
    if not answer.is_success or "word49" not in answer.text:
        raise SystemExit(f"POST {path}: {answer.status_code}: {answer.text[:500]}")
    return answer


def acp(http: httpx.Client) -> Iterator[Turn]:
    request = {"agent_name": "stream", "input": [{"role": "user", "parts": [{"content": WORDS}]}]}
    session = posted(http, "/acp/runs", request).json()["session_id"]
    yield lambda: posted(http, "/acp/runs", {**request, "session_id": session})


def a2a(agent: str) -> Callable[[httpx.Client], Iterator[Turn]]:
    def talk(http: httpx.Client) -> Iterator[Turn]:
        path, message = (
            f"/a2a/{agent}/message:send",
            {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": WORDS}]},
        )
        context = posted(http, path, {"message": message}, A2A).json()["task"]["contextId"]
        yield lambda: posted(http, path, {"message": {**message, "contextId": context}}, A2A)

    return talk


def aief(http: httpx.Client) -> Iterator[Turn]:
    tasks = "/agent/stream/ap/v1/agent/tasks"
    task = http.post(tasks, json={"input": WORDS}).json()["task_id"]
    yield lambda: posted(http, f"{tasks}/{task}/steps", {"input": WORDS})


def langgraph(path: str, **more: Any) -> Callable[[httpx.Client], Iterator[Turn]]:
    def talk(http: httpx.Client) -> Iterator[Turn]:
        thread = http.post("/threads", json={}).json()["thread_id"]
        body = {"assistant_id": "stream", "input": {"messages": [{"role": "user", "content": WORDS}]}, **more}
        yield lambda: posted(http, f"/threads/{thread}/runs/{path}", body)

    return talk


def state(http: httpx.Client) -> Iterator[Turn]:
    """Read the state after each turn. Only the read is timed."""
    (turn,) = langgraph("wait")(http)
    thread = turn().headers["content-location"].split("/")[2]
    yield turn

    def look() -> None:
        http.get(f"/threads/{thread}/state").raise_for_status()

    yield look


TALKS: dict[str, Callable[[httpx.Client], Iterator[Turn]]] = {
    "ACP": acp,
    "A2A 1.0": a2a("stream"),
    "A2A 1.0, recall": a2a("recall"),
    "AIEF": aief,
    "LangGraph wait": langgraph("wait"),
    "LangGraph stream": langgraph("stream", stream_mode=["updates", "messages-tuple"]),
    "LangGraph state": state,
}


def timed(
    talk: Callable[[httpx.Client], Iterator[Turn]], http: httpx.Client, turns: int, cpu: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Return the milliseconds of each turn, and the CPU time of the gateway before each turn, in milliseconds."""
    times: list[float] = []
    used: list[float] = []
    steps = list(talk(http))
    for _ in range(turns):
        used.append(cpu() * 1000)
        for step in steps[:-1]:
            step()
        begun = time.perf_counter()
        steps[-1]()
        times.append((time.perf_counter() - begun) * 1000)
    return times, [*used, cpu() * 1000]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.turns", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=400, help="turns of the conversation (400)")
    options = parser.parse_args()
    at = (WINDOW, options.turns // 2, options.turns - WINDOW)
    with tempfile.TemporaryDirectory() as folder:
        agents = ["stream=babelgate.gateway.demo:stream", "recall=bench.turns:recall"]
        print(f"median ms of {WINDOW} turns, and ms of CPU per turn")
        print(f"{'after turns':18}" + "".join(f"{place:>9}{'CPU':>7}" for place in at))
        with (
            server.running(server.gateway(*agents), Path(folder)) as gateway,
            httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=60) as http,
        ):
            for name, talk in TALKS.items():
                times, used = timed(talk, http, options.turns, lambda: gateway.cpu)
                print(f"{name:18}", end="")
                for place in at:
                    cpu = (used[place + WINDOW] - used[place]) / WINDOW
                    print(f"{statistics.median(times[place : place + WINDOW]):>9.1f}{cpu:>7.1f}", end="")
                print(flush=True)


if __name__ == "__main__":
    main()
