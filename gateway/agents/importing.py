"""Import of agents in Python: a module by its name or its file, and the object in it that the settings name."""

import importlib
import importlib.util
import inspect
import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from uuid import UUID, uuid5

from babelgate._renamed import describe_import_error
from babelgate.canonical.agent import Agent, AgentInfo
from babelgate.gateway.agents.langgraph.signature import can_make_graphs
from babelgate.gateway.agents.python.agent import wrap

log = logging.getLogger("babelgate.registry")

_NAMESPACE: Final = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""Namespace of the UUIDs in the names of modules that are imported from files. Chosen: a fixed UUID, so that a file
always gets the same name."""


class TargetError(Exception):
    """Agent in Python that cannot be imported. The message is the reason, in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(" ".join(reason.split())[:500])


async def import_agent(target: str, name: str, *, is_graph: bool, replay: bool) -> tuple[AgentInfo, Agent]:
    """Return the description of the agent that a target means, and the agent.

    `is_graph` is True if the target must be a graph, or a function that creates graphs. Otherwise the object decides.
    `replay` is True if a lost paused generator may run again from its beginning.

    Raises TargetError if the agent cannot be imported, or the object is no agent.
    """
    module, found = import_target(target)
    try:
        if is_graph or _is_graph(found) or can_make_graphs(found):
            return await _graph(found, name, inspect.getdoc(module) or "")
        return wrap(found, name, replay=replay)
    except TypeError as error:
        raise TargetError(f"{target}: {error}") from None


def _is_graph(target: object) -> bool:
    """Return True if an object is an instance of a class of LangGraph, or of a subclass of one."""
    return any(base.__module__.partition(".")[0] == "langgraph" for base in type(target).__mro__)


async def _graph(target: object, name: str, about: str) -> tuple[AgentInfo, Agent]:
    try:
        from babelgate.gateway.agents.langgraph.agent import (  # requires LangGraph, which is an optional dependency
            wrap_factory,
            wrap_graph,
        )
    except ImportError as error:
        raise TypeError(f"{error}: graphs need what babelgate[langgraph] installs") from error
    about = about.split("\n\n")[0]
    if callable(target) and not _is_graph(target):
        return await wrap_factory(target, name, about)
    return wrap_graph(target, name, about)


def import_target(target: str) -> tuple[ModuleType, Any]:
    """Return the module and the object that a target such as `module:name` or `./file.py:name` means.

    Raises TargetError if the module cannot be imported or has no such object.
    """
    place, _, path = target.rpartition(":")
    found = module = _module(place)
    try:
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except AttributeError:
        source = place if place.endswith(".py") else f"the module {place}"
        raise TargetError(f"{source} has no {path}") from None
    return module, found


def _module(place: str) -> Any:
    """Import a module by its name or by its `.py` file, and return it. A file that was imported already is not executed
    again. Raises TargetError if the import fails."""
    try:
        return _of_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except (Exception, SystemExit) as error:  # a module can raise anything when it is executed
        log.debug("import failed module=%s", place, exc_info=True)
        raise TargetError(f"cannot import {place}: {describe_import_error(error)}") from None


def _of_file(path: Path) -> ModuleType:
    path = path.resolve()
    name = f"babelgate_{uuid5(_NAMESPACE, str(path)).hex}_{path.stem}"
    if (loaded := sys.modules.get(name)) is not None:
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
