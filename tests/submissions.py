"""Submissions, answers and invocations of tests, with the members of the input among the other fields."""

from typing import Any, TypeVar

from babelgate.canonical import Answers, Invocation, RunInput, Submission

T = TypeVar("T", Submission, Answers, Invocation)


def make(kind: type[T], **members: Any) -> T:
    """Return a value of the kind.

    Fields that the kind does not have belong to its input; `metadata` of an Invocation is the task's.
    """
    fields: dict[str, Any] = {name: members.pop(name) for name in kind.__annotations__ if name in members}
    return kind(input=RunInput(**members), **fields)
