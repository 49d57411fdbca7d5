"""Ids of sessions that hold nothing."""

from uuid import uuid4

from babelgate.adapters.mcp.codec.session_id import is_session_of, is_stateless, make_session_id


def test_a_session_is_of_whom_it_was_given_to() -> None:
    session_id = make_session_id("alice")
    assert is_session_of(session_id, "alice")
    assert not is_session_of(session_id, "bob")
    assert make_session_id("alice") != session_id


def test_what_was_not_given_to_anybody_is_no_session() -> None:
    session_id = make_session_id("alice")
    for changed in ("", session_id[:-1], session_id + "0", "x" + session_id[1:], uuid4().hex, uuid4().hex * 2):
        assert not is_session_of(changed, "alice")


def test_an_id_of_the_sdk_is_another() -> None:
    assert is_stateless(make_session_id("alice"))
    assert not is_stateless(uuid4().hex)
