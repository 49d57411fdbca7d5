"""JSON-RPC dispatch, without a protocol above it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.kit.server.jsonrpc import JsonRpcReply, dispatch, envelope, table
from babelgate.canonical import FaultCode, FaultError
from tests.strategies import json_values


async def add(context: Any, params: dict[str, Any]) -> Any:
    if "fail" in params:
        raise FaultError(FaultCode.CONFLICT, "No.", why="asked")
    if "crash" in params:
        raise RuntimeError("secret /path")
    return {"context": context, "params": params}


METHODS = table({"add": add, "a/b": add})


async def call(**request: Any) -> JsonRpcReply:
    reply = await dispatch({"jsonrpc": "2.0", "id": 1, "method": "add", **request}, METHODS, "ctx")
    assert reply is not None
    return reply


RESERVED = {"context": 1, "params": 2, "self": 3, "request": 4, "method": 5}


@pytest.mark.parametrize(
    ("request_", "params"),
    [
        ({"params": {"a": 1}}, {"a": 1}),
        ({"params": RESERVED}, RESERVED),
        ({}, {}),
        ({"params": None}, {}),
        ({"params": {}, "trace": "x"}, {}),
    ],
)
async def test_a_method_receives_the_context_and_all_params(request_: dict[str, Any], params: Any) -> None:
    assert (await call(**request_)).result == {"context": "ctx", "params": params}


@pytest.mark.parametrize("reply_id", ["a", 7, 1.5, None, ""])
async def test_results_and_errors_have_the_id_of_the_request(reply_id: Any) -> None:
    assert (await call(id=reply_id)).id == reply_id
    for wrong in ({"params": {"fail": 1}}, {"method": "nope"}, {"jsonrpc": "1.0"}, {"params": "x"}, {"params": [1]}):
        reply = await call(**{"id": reply_id, **wrong})
        assert (reply.id, reply.fault is not None) == (reply_id, True)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ([{"jsonrpc": "2.0", "id": 1, "method": "add"}], -32600),
        ([], -32600),
        ("x", -32600),
        (None, -32600),
        ({}, -32600),
        ({"id": 1, "method": "add"}, -32600),
        ({"jsonrpc": 2.0, "id": 1, "method": "add"}, -32600),
        ({"jsonrpc": "2.0", "id": 1}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, -32600),
        ({"jsonrpc": "2.0", "id": True, "method": "add"}, -32600),
        ({"jsonrpc": "2.0", "id": {}, "method": "add"}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "add", "params": "x"}, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "add", "params": [1]}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "nope"}, -32601),
    ],
)
async def test_an_invalid_request_has_the_code_of_json_rpc(request_: Any, code: int) -> None:
    reply = await dispatch(request_, METHODS, None)
    assert reply is not None
    assert reply.code == code
    assert reply.fault is not None


async def test_a_notification_is_executed_but_a_batch_is_not() -> None:
    done: list[Any] = []

    async def method(context: Any, params: dict[str, Any]) -> None:
        done.append(params)

    methods = table({"m": method})
    batch = await dispatch([{"jsonrpc": "2.0", "id": 1, "method": "m"}], methods, None)
    assert (batch and batch.code, done) == (-32600, [])
    assert await dispatch({"jsonrpc": "2.0", "method": "m", "params": {"a": 1}}, methods, None) is None
    assert done == [{"a": 1}]


async def test_a_fault_is_returned_without_a_json_rpc_code() -> None:
    reply = await call(params={"fail": 1})
    assert reply.fault is not None
    assert (reply.fault.code, reply.fault.details, reply.code) == (FaultCode.CONFLICT, {"why": "asked"}, None)


async def test_the_text_of_an_exception_is_hidden() -> None:
    reply = await call(params={"crash": 1})
    assert reply.fault is not None
    assert reply.code == -32603
    assert reply.fault.code is FaultCode.INTERNAL
    assert "secret" not in str(reply)


def test_an_envelope_has_the_id_and_the_result() -> None:
    assert envelope(3, result={}) == {"jsonrpc": "2.0", "id": 3, "result": {}}


@given(st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params"]), json_values()) | json_values())
async def test_any_json_gets_a_fault_or_a_call(request: Any) -> None:
    reply = await dispatch(request, METHODS, None)
    assert reply is None or reply.fault is not None or reply.method == "add"
