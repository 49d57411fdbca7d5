"""Tests of the encoding of notices: they fit into a notification, and other payloads are ignored."""

import pytest

from babelgate.gateway.storage.notices import Remote, decode_notice, encode_notices, merge


def test_notices_of_many_threads_fit_postgresqls_limit() -> None:
    remotes = [Remote(2**63 - 1 - n, 2**31 - 1, erased=True, rewritten=True, created=True) for n in range(1000)]
    payloads = list(encode_notices("0" * 36, remotes))
    assert max(map(len, payloads)) < 8000
    notices = [decode_notice(each) for each in payloads]
    assert [remote for each in notices if each is not None for remote in each.threads] == remotes
    assert {each.node for each in notices if each is not None} == {"0" * 36}
    assert list(encode_notices("n", [])) == []


@pytest.mark.parametrize("payload", ["", "[]", '["n"]', '["n",[[1]]]', '["n",[["1",2]]]', "{}", "[1,[]]", "\ud800"])
def test_an_invalid_payload_is_not_parsed_as_a_notice(payload: str) -> None:
    assert decode_notice(payload) is None


def test_two_notices_of_a_thread_merge_with_both_flags() -> None:
    first, second = Remote(1, 4, created=True), Remote(1, 3, rewritten=True)
    assert merge(first, second) == merge(second, first) == Remote(1, 4, rewritten=True, created=True)
    assert merge(Remote(1, 4, erased=True), Remote(1, 5)) == Remote(1, 5, erased=True)
