"""Responses and their headers."""

from typing import Any

from litestar import Response

from babelgate.adapters.kit.server.listed import Pieces
from babelgate.adapters.langchain.server.answers import answer, pagination, select_members


def read(response: Response[Any]) -> tuple[int, Any, dict[str, str]]:
    return response.status_code or 200, response.content, dict(response.headers)


def test_a_response_is_json_with_any_status() -> None:
    for status in (200, 404):
        assert read(answer({"a": [1]}, status=status, headers={"X": "y"})) == (status, b'{"a":[1]}', {"X": "y"})
    assert isinstance(answer({"a": "x" * 500_000}), Pieces)


def test_the_total_is_exact_only_on_the_last_page() -> None:
    assert pagination(10, 5, more=False) == {"X-Pagination-Total": "15"}
    assert pagination(10, 5, more=True) == {"X-Pagination-Total": "16", "X-Pagination-Next": "15"}


def test_a_selection_has_the_order_of_the_caller() -> None:
    body = {"a": 1, "b": 2, "c": 3}
    assert list(select_members(body, ["c", "a", "missing"]).items()) == [("c", 3), ("a", 1)]
    assert select_members(body, None) == select_members(body, []) == body
