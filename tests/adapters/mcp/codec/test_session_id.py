"""Ids of sessions that have no state in the gateway."""

from uuid import uuid4

from babelgate.adapters.mcp.codec.session_id import has_pages, is_session_of, is_stateless, make_session_id


def test_a_session_id_belongs_to_its_owner() -> None:
    session_id = make_session_id("alice")
    assert is_session_of(session_id, "alice")
    assert not is_session_of(session_id, "bob")
    assert make_session_id("alice") != session_id


def test_a_session_id_shows_whether_its_client_opens_pages() -> None:
    with_pages, without = make_session_id("alice", has_pages=True), make_session_id("alice")
    assert (has_pages(with_pages), has_pages(without), has_pages(uuid4().hex + "p")) == (True, False, False)
    assert is_session_of(with_pages, "alice")
    assert not is_session_of(with_pages[:-1], "alice")


def test_a_changed_session_id_is_invalid() -> None:
    session_id = make_session_id("alice")
    others = (session_id + "p", session_id + "0", "x" + session_id[1:])
    for changed in ("", session_id[:-1], *others, uuid4().hex, uuid4().hex * 2):
        assert not is_session_of(changed, "alice")


def test_a_session_id_of_the_sdk_is_not_stateless() -> None:
    assert is_stateless(make_session_id("alice"))
    assert not is_stateless(uuid4().hex)
