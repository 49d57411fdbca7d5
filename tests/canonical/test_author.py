"""Values that authors of agents yield."""

import pytest

from babelgate.canonical import Ask, Declined, Message, TextPart


def test_a_text_question_becomes_a_message():
    assert Ask("Your name?").message == Message(parts=(TextPart(text="Your name?"),))


def test_a_question_may_be_a_message():
    message = Message(parts=(TextPart(text="a"), TextPart(text="b")))
    assert Ask(message).message is message


def test_a_declined_question_keeps_the_other_answers():
    with pytest.raises(Declined, match="declined to answer") as raised:
        raise Declined(("yes", None))
    assert raised.value.answers == ("yes", None)
