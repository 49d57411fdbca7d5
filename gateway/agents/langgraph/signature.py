"""Which functions make graphs, and what they ask for: told by their parameters and annotations, without LangGraph."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

Wanted = Literal["config", "runtime"]

_WORDS: Final = re.compile(r"\w+")
_CONFIG: Final = frozenset({"RunnableConfig"})
_RUNTIME: Final = frozenset({"ServerRuntime", "_ExecutionRuntime", "_ReadRuntime"})
_NAMES: Final[Mapping[str, Wanted]] = {"config": "config", "runtime": "runtime"}
_GRAPHS: Final = frozenset({"CompiledGraph", "CompiledStateGraph", "Pregel", "StateGraph"})


@dataclass(frozen=True, slots=True)
class _Parameters:
    wanted: Mapping[str, Wanted]
    """By name, in their order."""
    named: Mapping[str, Wanted]
    """Parameters that are recognized by their name, because their annotation is not a type of LangGraph."""
    unknown: tuple[str, ...]
    """Those that must be given, and that nothing is known of."""
    makes: frozenset[str]
    """Words of the annotation of what is returned."""


def can_make_graphs(target: object) -> bool:
    """Whether a callable is for certain no agent: it says that it takes a config or a runtime of LangGraph's, or that
    it returns a graph."""
    if not callable(target) or isinstance(target, type):
        return False
    try:
        found = _parameters(target)
    except ValueError:  # a builtin that does not tell its parameters
        return False
    return bool(found.makes & _GRAPHS) or (bool(found.wanted) and not found.unknown)


def wanted_arguments(function: Callable[..., Any]) -> Mapping[str, Wanted]:
    """What a function that makes graphs asks for, by the names of its parameters. One that is alone and says nothing of
    itself is the config.

    Raises:
        TypeError: in words for the author, if it asks for anything else.
    """
    try:
        found = _parameters(function)
    except ValueError:
        return {}
    if len(found.unknown) == 1 and not found.wanted and not found.named:
        return {found.unknown[0]: "config"}
    if found.unknown:
        names = ", ".join(map(repr, found.unknown))
        raise TypeError(f"a function that makes a graph takes a RunnableConfig and a ServerRuntime, and not {names}")
    return {**found.wanted, **found.named}


def _parameters(function: Callable[..., Any]) -> _Parameters:
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError:  # an annotation that is only there for type checkers
        signature = inspect.signature(function)
    wanted: dict[str, Wanted] = {}
    named: dict[str, Wanted] = {}
    unknown: list[str] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        what = _wanted_argument(name, parameter.annotation)
        if what is not None:
            wanted[name] = what
        elif (meant := _NAMES.get(name)) is not None:
            named[name] = meant
        elif parameter.default is parameter.empty:
            unknown.append(name)
    return _Parameters(wanted, named, tuple(unknown), frozenset(_words(signature.return_annotation)))


def _wanted_argument(name: str, annotation: object) -> Wanted | None:
    if annotation is inspect.Parameter.empty:
        return _NAMES.get(name)
    words = frozenset(_words(annotation))
    return "config" if words & _CONFIG else "runtime" if words & _RUNTIME else None


def _words(annotation: object) -> Iterator[str]:
    """The names in an annotation, which may be text."""
    if isinstance(annotation, str):
        yield from _WORDS.findall(annotation)
        return
    for each in (annotation, getattr(annotation, "__origin__", None)):
        yield str(getattr(each, "__name__", ""))
    for argument in get_args(annotation):
        yield from _words(argument)
