"""What a test gives a hub or an agent, with the members of the input among the others."""

from typing import Any, TypeVar

from babelgate.canonical import Answers, Invocation, RunInput, Submission

T = TypeVar("T", Submission, Answers, Invocation)


def make(kind: type[T], **given: Any) -> T:
    """A value of the kind; what it has no field for is of its input. (`metadata` of an Invocation is the task's.)"""
    own: dict[str, Any] = {name: given.pop(name) for name in kind.__annotations__ if name in given}
    return kind(input=RunInput(**given), **own)
