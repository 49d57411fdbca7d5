"""Tests of the index of cache keys by thread."""

from babelgate.gateway.storage.thread_keys import ThreadKeys


def test_keys_of_a_thread_are_found_until_removed() -> None:
    keys = ThreadKeys[str]()
    for pk, key in ((1, "a"), (2, "c"), (1, "b"), (1, "a")):
        keys.add(pk, key)
    assert (keys.of(1), keys.of(2), keys.of(3)) == (("a", "b"), ("c",), ())
    keys.discard(1, "a")
    keys.discard(1, "unknown")
    keys.discard(3, "a")
    assert keys.of(1) == ("b",)


def test_threads_without_keys_take_no_memory() -> None:
    keys = ThreadKeys[str]()
    keys.add(1, "a")
    assert len(keys) == 1
    keys.discard(1, "a")
    assert len(keys) == 0
