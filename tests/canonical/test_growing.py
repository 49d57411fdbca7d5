"""Text that grows by deltas: the result does not depend on their sizes, and equal texts share memory."""

import gc
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from babelgate.canonical import DataPart, TextPart, ToolCallPart
from babelgate.canonical.growing import GrowingParts, GrowingText, GrowingTexts, share

DELTAS = st.lists(st.text(max_size=3), max_size=300)
LONG = [f"token{number} " for number in range(10_000)]


def cut(texts: Sequence[str], places: Sequence[int]) -> list[Sequence[str]]:
    ends = [*sorted(place % (len(texts) + 1) for place in places), len(texts)]
    return [texts[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


@given(DELTAS, st.lists(st.integers(0, 300), max_size=5))
def test_text_does_not_depend_on_the_size_of_deltas(texts: list[str], places: list[int]) -> None:
    one, some, each = GrowingText(), GrowingText(), GrowingTexts()
    for text in texts:
        one.append(text)
    for group in cut(texts, places):
        some.extend(group)
        each.extend(group)
    assert one.join() == some.join() == "".join(texts)
    assert list(each) == texts
    assert len(each) == len(texts)


def test_a_copy_grows_independently() -> None:
    text, texts = GrowingText(), GrowingTexts()
    text.extend(LONG)
    texts.extend(LONG)
    more, others = text.copy(), texts.copy()
    more.append("more")
    others.extend(["more"])
    assert text.join() == "".join(LONG) and more.join() == "".join(LONG) + "more"
    assert list(texts) == LONG and list(others) == [*LONG, "more"]


def test_equal_texts_share_their_chunks() -> None:
    one, other = GrowingTexts(), GrowingTexts()
    one.extend(LONG)
    for begin in range(0, len(LONG), 7):
        other.extend([text + "" for text in LONG[begin : begin + 7]])
    shared = {id(text) for text in one} & {id(text) for text in other}
    assert len(shared) >= len(LONG) - 64


def test_equal_long_texts_are_one_object() -> None:
    one, other = GrowingText(), GrowingText()
    one.extend(LONG)
    other.extend(LONG)
    assert one.join() is other.join()
    assert share("short") == "short"


def test_unused_long_texts_are_dropped() -> None:
    first = share("a" * 2**20)
    for number in range(20):
        share(f"{number}" * 2**20)
    again = "a" * 2**20
    assert share(again) is again and again is not first
    gc.collect()


def test_deltas_extend_their_parts() -> None:
    call, data = ToolCallPart(call_id="c", name="add", arguments=""), DataPart(data=1)
    parts = GrowingParts((TextPart(text="a"), data))
    parts.append(call)
    parts.extend(0, ("b", "c"))
    parts.extend(None, ("{",))
    parts.extend(None, ("}",))
    assert parts.begun == [TextPart(text="a"), data, call]
    copy = parts.copy()
    assert parts.join(0) == TextPart(text="abc")
    assert parts.join_all() == parts.join_all() == (TextPart(text="abc"), data, call.replace(arguments="{}"))
    copy.extend(0, ("d",))
    assert copy.join_all()[0] == TextPart(text="abcd")
    assert parts.join(0) == TextPart(text="abc")
