"""Test data of this protocol for the tests of all routes."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import httpx

from babelgate_toy.caller import Toy
from tests.gateway.knowledge import Knowledge

_STATUSES: Final = {401, 403, 404, 405, 409, 413, 422, 429}


def _check_error(response: httpx.Response) -> None:
    assert response.status_code in _STATUSES, response.status_code
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"oops"}
    oops = response.json()["oops"]
    assert set(oops) == {"code", "words"}
    assert re.fullmatch(r"[a-z_]+", oops["code"])
    assert oops["words"].strip()


async def _make(http: httpx.AsyncClient) -> Mapping[str, str]:
    response = await http.post("/toy/echo", json={"text": "a toy of alice"})
    return {"agent": "echo", "run_id": response.json()["id"]}


def _look(slots: Mapping[str, str]) -> Sequence[str]:
    return [f"/toy/runs/{slots['run_id']}"]


async def _echo(http: httpx.AsyncClient, words: str) -> str:
    return (await http.post("/toy/echo", json={"text": words})).json()["text"]


KNOWLEDGE: Final = Knowledge(
    check_error=_check_error,
    valid={"POST /toy/{agent}": {"text": "hello"}},
    make=_make,
    look=_look,
    echo=_echo,
    callers=(Toy,),
    path="/toy",
)
