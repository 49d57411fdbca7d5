"""Answers and their headers."""

from typing import Any

from litestar import Response

from babelgate.adapters._server.listed import Pieces
from babelgate.adapters.langchain.server.answers import answer, empty_answer, ids, pagination, run_paths, select_members
from babelgate.canonical import Run, RunStatus
from babelgate.canonical.feature import Feature
from babelgate.canonical.thread import Loss


def shown(response: Response[Any]) -> tuple[int, Any, dict[str, str]]:
    return response.status_code or 200, response.content, dict(response.headers)


def test_an_answer_is_json_whatever_its_status() -> None:
    for status in (200, 404):
        assert shown(answer({"a": [1]}, status=status, headers={"X": "y"})) == (status, b'{"a":[1]}', {"X": "y"})
    assert isinstance(answer({"a": "x" * 500_000}), Pieces)


def test_an_answer_without_a_body_has_none() -> None:
    assert shown(empty_answer(204, {"X": "y"})) == (204, b"", {"X": "y"})


def test_a_run_is_named_by_the_ids_of_the_gateway_and_with_what_got_lost() -> None:
    run = Run(
        run_id="r",
        task_id="a",
        thread_id="t",
        status=RunStatus.SUCCESS,
        cause="input",
        created_at=0,
        first_seq=1,
        last_seq=2,
        loss=(Loss(feature=Feature.CUSTOM, how="in streams only"),),
    )
    assert ids(run) == {
        "Babelgate-Thread": "t",
        "Babelgate-Task": "a",
        "Babelgate-Run": "r",
        "Babelgate-Loss": 'custom="in streams only"',
    }


def test_paths_of_a_run_have_neither_host_nor_prefix() -> None:
    assert run_paths("t", "r") == {"Content-Location": "/threads/t/runs/r"}
    assert run_paths("t", "r", "join")["Location"] == "/threads/t/runs/r/join"


def test_the_total_of_a_page_is_exact_at_the_end_and_a_hint_before() -> None:
    assert pagination(10, 5, more=False) == {"X-Pagination-Total": "15"}
    assert pagination(10, 5, more=True) == {"X-Pagination-Total": "16", "X-Pagination-Next": "15"}


def test_a_selection_has_the_members_in_the_order_of_the_caller() -> None:
    body = {"a": 1, "b": 2, "c": 3}
    assert list(select_members(body, ["c", "a", "missing"]).items()) == [("c", 3), ("a", 1)]
    assert select_members(body, None) == select_members(body, []) == body
