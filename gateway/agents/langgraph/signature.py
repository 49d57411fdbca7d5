"""Detection of graph factories and their arguments, by parameters and annotations, without importing LangGraph."""

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
    """Parameters of a function that may be a graph factory."""

    wanted: Mapping[str, Wanted]
    """Kinds of the parameters that a graph factory can have (config, runtime), by parameter name, in order."""
    named: Mapping[str, Wanted]
    """Parameters that are recognized as config or runtime by their name, because their annotation is not a type of
    LangGraph."""
    unknown: tuple[str, ...]
    """Required parameters that are not recognized."""
    makes: frozenset[str]
    """Names of types in the return annotation."""


def can_make_graphs(target: object) -> bool:
    """Return True if a callable is certainly a graph factory and not an agent.

    Its annotations declare a config or runtime of LangGraph as a parameter, or a graph as the return value.
    """
    if not callable(target) or isinstance(target, type):
        return False
    try:
        parameters = _parameters(target)
    except ValueError:  # a builtin without a signature
        return False
    return bool(parameters.makes & _GRAPHS) or (bool(parameters.wanted) and not parameters.unknown)


def wanted_arguments(function: Callable[..., Any]) -> Mapping[str, Wanted]:
    """Return which argument each parameter of a graph factory gets: the config or the runtime.

    A single parameter that is not recognized gets the config.

    Raises:
        TypeError: A parameter is neither a config nor a runtime. The message is for the agent's author.
    """
    try:
        parameters = _parameters(function)
    except ValueError:
        return {}
    if len(parameters.unknown) == 1 and not parameters.wanted and not parameters.named:
        return {parameters.unknown[0]: "config"}
    if parameters.unknown:
        names = ", ".join(map(repr, parameters.unknown))
        raise TypeError(f"a function that makes a graph takes a RunnableConfig and a ServerRuntime, and not {names}")
    return {**parameters.wanted, **parameters.named}


def _parameters(function: Callable[..., Any]) -> _Parameters:
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError:  # an annotation exists only for type checkers
        signature = inspect.signature(function)
    wanted: dict[str, Wanted] = {}
    named: dict[str, Wanted] = {}
    unknown: list[str] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        recognized = _wanted_argument(name, parameter.annotation)
        if recognized is not None:
            wanted[name] = recognized
        elif (argument := _NAMES.get(name)) is not None:
            named[name] = argument
        elif parameter.default is parameter.empty:
            unknown.append(name)
    return _Parameters(wanted, named, tuple(unknown), frozenset(_words(signature.return_annotation)))


def _wanted_argument(name: str, annotation: object) -> Wanted | None:
    if annotation is inspect.Parameter.empty:
        return _NAMES.get(name)
    words = frozenset(_words(annotation))
    return "config" if words & _CONFIG else "runtime" if words & _RUNTIME else None


def _words(annotation: object) -> Iterator[str]:
    """Yield the names of types in an annotation, which may be a string."""
    if isinstance(annotation, str):
        yield from _WORDS.findall(annotation)
        return
    for each in (annotation, getattr(annotation, "__origin__", None)):
        yield str(getattr(each, "__name__", ""))
    for argument in get_args(annotation):
        yield from _words(argument)
