"""Requests for jobs: their types and checks. They name agents, but no URLs and no files of this machine."""

import re
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from babelgate.adapters.kit.json import ABSENT, read_json
from babelgate.adapters.kit.request import AnyRequest
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.console.job_record import JobKind, Place

_MAX_BODY: Final = 64 * 2**10
"""Maximum size of a request for a job, in bytes. Chosen: the inputs for all behaviours take about 2 KB."""
DEFAULT_SECONDS: Final = 1800.0
"""Seconds after which a job is stopped, by default. Chosen: a check of all protocols takes half a minute."""
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")

T = TypeVar("T", bound=msgspec.Struct)

_Word = Annotated[str, Meta(pattern=r"^[\w.*?/ \[\]-]{1,100}$")]
"""Name or pattern that selects requirements, scenarios, tasks or categories, such as `stream*`."""
_Words = Annotated[tuple[_Word, ...], Meta(max_length=100)]
_Text = Annotated[str, Meta(max_length=10_000)]
_Seconds = Annotated[float, Meta(ge=1, le=7200)]


class CheckChoices(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Options of a check, and of a comparison between protocols. Without a value, the default of the command
    applies."""

    version: str | UnsetType = UNSET
    only: _Words = ()
    triggers: str | UnsetType = UNSET
    """Name of a preset of inputs that is part of Babelgate, such as `demo`."""
    trigger: Annotated[dict[str, _Text], Meta(max_length=50)] = {}
    """Inputs that make the agent show a behaviour, by the name of the behaviour, such as `long`."""
    never: _Words = ()
    timeout: Annotated[float, Meta(ge=0.1, le=300)] | UnsetType = UNSET
    max_seconds: _Seconds = DEFAULT_SECONDS


class BenchChoices(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Options of a benchmark. Without a value, the default of the command applies."""

    suite: str = "smoke"
    """Name of a suite of tasks that is part of Babelgate."""
    repeat: Annotated[int, Meta(ge=1, le=1000)] | UnsetType = UNSET
    concurrency: Annotated[int, Meta(ge=1, le=32)] | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=-(2**53), le=2**53)] | UnsetType = UNSET
    task: _Words = ()
    category: _Words = ()
    max_time: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    max_tokens: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    max_cost: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    max_seconds: _Seconds = DEFAULT_SECONDS


Choices = CheckChoices | BenchChoices


class JobOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request that starts a job."""

    kind: JobKind
    agents: Annotated[tuple[str, ...], Meta(min_length=1, max_length=16)]
    at: Place = "gateway"
    protocol: str | None = None
    options: JsonObject = {}

    def read_choices(self) -> Choices:
        """Return `options`, converted to the type for the kind of the job. Raises invalid for a wrong or unknown
        option."""
        kind = BenchChoices if self.kind == "bench" else CheckChoices
        choices = _convert(self.options, kind, "options")
        if isinstance(choices, BenchChoices):
            _check_name("options.suite", choices.suite)
            return choices
        for name, value in (("options.triggers", choices.triggers), ("options.version", choices.version)):
            if value is not UNSET:
                _check_name(name, value)
        for behaviour in choices.trigger:
            _check_name("options.trigger", behaviour)
        return choices


async def read_order(request: AnyRequest) -> tuple[JobOrder, Choices]:
    """Return the body of a request that starts a job, and its options. Raises invalid for wrong members or a
    combination that the kind of job does not have, and too_large."""
    body = await read_json(request, limit=_MAX_BODY)
    order = _convert({} if body is ABSENT else body, JobOrder, "the body")
    if order.kind != "bench" and len(order.agents) != 1:
        raise FaultError(FaultCode.INVALID, f"agents: expected exactly one for {order.kind}, got {len(order.agents)}")
    if len(set(order.agents)) != len(order.agents):
        raise FaultError(FaultCode.INVALID, "agents: each name may occur once")
    if order.protocol is not None:
        if order.kind != "check":
            raise FaultError(FaultCode.INVALID, f"protocol: only allowed if kind is check, got kind {order.kind}")
        _check_name("protocol", order.protocol)
    return order, order.read_choices()


def _check_name(where: str, value: str) -> None:
    """Check that a text is a plain name, and not an option or a path. `where` names its member in errors. Raises
    invalid if it is not."""
    if not _NAME.fullmatch(value):
        raise FaultError(FaultCode.INVALID, f"{where}: expected a name, got {value[:40]!r}")


def _convert(value: object, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        members = ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
        raise FaultError(FaultCode.INVALID, f"{error}. The members of {where} are {members}.") from None
