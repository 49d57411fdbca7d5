"""Introspection of a Python callable: its arguments, and its description for callers."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Annotated, Any, Literal, cast, get_args, get_type_hints

from pydantic import BaseModel, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
from typing_extensions import TypedDict, is_typeddict

from babelgate.canonical import AgentInfo, Invocation
from babelgate.canonical.agent import AGENT_NAME
from babelgate.canonical.value import JsonObject

_typed_dict: Any = TypedDict
"""`TypedDict` as a function, to create types at run time."""

Takes = Literal["nothing", "text", "call"]


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature of an agent function: how the gateway calls it."""

    function: Callable[..., Any]
    takes: Takes
    """Argument of the function: nothing, the text of the input, or the whole invocation."""
    returns: object
    """Annotation of the return value; `inspect.Signature.empty` if there is none."""

    def arguments(self, call: Invocation) -> tuple[object, ...]:
        if self.takes == "text":
            return (call.text,)
        return (call,) if self.takes == "call" else ()


def signature_of(target: object) -> Signature:
    """Return the signature of a callable.

    Raises TypeError, with a message for the agent's author, if the gateway cannot call it.
    """
    if isinstance(target, type):
        raise TypeError(f"{target.__name__} is a class: name an instance of it, or a function")
    if not callable(target):
        raise TypeError(
            f"a value of type {type(target).__name__} is not an agent: it cannot be called and has no method run(call)"
        )
    try:
        signature = inspect.signature(target, eval_str=True)
    except NameError:  # an annotation exists only for type checkers: the others are read as text
        signature = inspect.signature(target)
    except ValueError:  # a builtin without a signature
        return Signature(target, "text", inspect.Signature.empty)
    return Signature(target, _takes(signature), signature.return_annotation)


def _takes(signature: inspect.Signature) -> Takes:
    kind: Takes = "nothing"
    for position, parameter in enumerate(signature.parameters.values()):
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if position == 0 and parameter.kind is not parameter.KEYWORD_ONLY:
            kind = _argument_kind(parameter)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            raise TypeError(f"an agent takes one argument, and this one needs {parameter.name!r} too")
    return kind


def _argument_kind(parameter: inspect.Parameter) -> Takes:
    annotation = parameter.annotation
    if annotation in (str, parameter.empty, Any, object, "str", '"str"'):
        return "text"
    if annotation is Invocation or (isinstance(annotation, str) and annotation.split(".")[-1] == "Invocation"):
        return "call"
    type_name = getattr(annotation, "__name__", annotation)
    raise TypeError(f"an agent's argument is a str or an Invocation, and {parameter.name!r} is annotated {type_name}")


def describe(target: object, name: str, signature: Signature | None = None) -> AgentInfo:
    """Return the description of an agent for callers.

    It has the first paragraph of the docstring. If the signature declares a structured return value, it also has its
    JSON Schema. `signature` is None for an object with a method `run`. An attribute `info` of the agent overrides the
    description. Raises TypeError for an illegal name.
    """
    if AGENT_NAME.fullmatch(name) is None:
        raise TypeError(f"{name!r} is not a valid agent name: it must match {AGENT_NAME.pattern}")
    info = getattr(target, "info", None)
    if isinstance(info, AgentInfo):
        return info.replace(name=name)
    documented = target if inspect.isroutine(target) or isinstance(target, type) else _documented_object(target)
    paragraph = (inspect.getdoc(documented) or "").split("\n\n")[0]
    schema = None if signature is None else output_schema(signature.returns)
    takes_all = signature is None or signature.takes == "call"
    return AgentInfo(
        name=name,
        description=" ".join(paragraph.split()),
        input_types=("text/plain", "*/*") if takes_all else ("text/plain",),
        output_types=("text/plain",) if schema is None else ("application/json",),
        schemas={} if schema is None else {"output": schema},
        takes_history=takes_all,
    )


def _documented_object(target: object) -> object:
    """Return the object whose docstring describes an instance: the function of a partial, its class, or a method."""
    if isinstance(target, partial):
        return cast("partial[object]", target).func
    return type(target) if type(target).__doc__ else getattr(type(target), "run", None) or type(target).__call__


def output_schema(returns: object) -> JsonObject | None:
    """Return the JSON Schema of a return annotation, or None if it is not structured.

    A TypedDict, a model, a dataclass and a dict are structured.
    """
    if returns is dict:
        return {"type": "object"}
    origin = getattr(returns, "__origin__", None)
    structured = is_typeddict(returns) or is_dataclass(returns) or origin in (dict, Mapping)
    if not structured and not (isinstance(returns, type) and issubclass(returns, BaseModel)):
        return None
    try:
        return TypeAdapter(readable(returns)).json_schema(mode="serialization")
    except (PydanticSchemaGenerationError, PydanticUserError):
        return None


def readable(annotation: Any) -> Any:
    """Return an annotation in which each TypedDict is recreated by typing_extensions.

    Before Python 3.12, pydantic accepts no other TypedDict.
    """
    if is_typeddict(annotation):
        members = get_type_hints(annotation, include_extras=True)
        converted: dict[str, Any] = {name: readable(member) for name, member in members.items()}
        return _typed_dict(annotation.__name__, converted, total=annotation.__total__)
    arguments = get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return Annotated[(readable(arguments[0]), *arguments[1:])]
    if not arguments or not hasattr(annotation, "__origin__"):
        return annotation
    recreated = tuple(readable(argument) for argument in arguments)
    return annotation if recreated == arguments else annotation.__origin__[recreated]
