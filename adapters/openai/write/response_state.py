"""State of a response apart from its output: its status, its times, and the members of its request."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from babelgate.adapters.openai.codec.model import object_in
from babelgate.adapters.openai.codec.names import RESPONSE, encode_id
from babelgate.adapters.openai.errors.encode import FAILED
from babelgate.adapters.openai.wire import replies as w
from babelgate.adapters.openai.write.settings import encode_settings
from babelgate.canonical import Event, Fault, FaultCode, Record, RunStatus, TaskState
from babelgate.canonical.event import RunCreated, RunEnded, TaskChanged
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.thread import Loss, losses_by_feature
from babelgate.canonical.value import Json, JsonObject

_BUSY: Final = frozenset({FaultCode.QUEUE_FULL, FaultCode.LIMITED, FaultCode.SHUTTING_DOWN, FaultCode.UNAVAILABLE})
_PLACED: Final = frozenset({"usage", "incomplete_details"})
"""Members of the upstream's response that are handled separately."""

IncompleteReason = Literal["max_output_tokens", "content_filter"]


class ResponseState:
    """Status, times, request and result of one run, as its response shows them."""

    __slots__ = (
        "_agent",
        "_completed_at",
        "_created",
        "_created_at",
        "_run_id",
        "_settings",
        "fault",
        "finish",
        "is_over",
        "output",
        "status",
        "usage",
    )

    def __init__(self, run_id: str, agent: str) -> None:
        self.status = "queued"
        self.finish: Literal["stop", "calls"] | IncompleteReason = "stop"
        """Reason for the end of the run. `calls`: it has stopped for questions."""
        self.fault: Fault | None = None
        """Fault of the run, or None if it has not failed."""
        self.is_over = False
        """True if no later record can change the response. After a stop for a question, the task can still be
        cancelled."""
        self.output: Json = None
        """Structured output of the run, or None."""
        self.usage: JsonObject | None = None
        self._run_id = run_id
        self._agent = agent
        self._created: RunCreated | None = None
        """Event that created the run, with its request. None: not read yet."""
        self._created_at = 0
        self._completed_at: int | None = None
        self._settings: JsonObject = {}

    @property
    def request_members(self) -> Mapping[str, Any]:
        """Members of the request that only OpenAI's APIs have, such as `store`."""
        return {} if self._created is None else self._created.extra.get("openai") or {}

    @property
    def has_upstream_failed(self) -> bool:
        """True if the upstream returned a response with the status `failed`, and not an HTTP error."""
        details = {} if self.fault is None else self.fault.details
        return details.get("status") == 200 and "message" in object_in(details, "openai")

    # Changes

    def begin(self, record: Record, created: RunCreated) -> None:
        """Read the request of the run from the event that created it."""
        self._created = created
        self._created_at = record.at // 1_000_000
        self._settings = encode_settings(created.config)

    def end(self, record: Record, event: RunEnded, incomplete_reason: IncompleteReason | None) -> None:
        """Read the end of the run. `incomplete_reason`: why its answer is incomplete, or None."""
        self.output, self.finish = event.output, incomplete_reason or "stop"
        match event.status:
            case RunStatus.SUCCESS:
                self.status = "completed" if incomplete_reason is None else "incomplete"
            case RunStatus.PAUSED:
                self.status, self.finish = "completed", "calls"
            case RunStatus.CANCELLED:
                self.status = "cancelled"
            case _:
                self.status, self.fault = "failed", event.fault or FAILED
        self.is_over = event.status is not RunStatus.PAUSED
        if self.status == "completed":
            self._completed_at = record.at // 1_000_000

    def fail(self, fault: Fault) -> None:
        """Change the status to `failed` after the end of the run, because its answer has a fault."""
        self.status, self.fault, self._completed_at = "failed", fault, None

    def follow(self, event: Event) -> None:
        """Read an event after the end of the run: the task may be continued, cancelled or fail while a question is
        open. Only later reads of the response show this."""
        if isinstance(event, RunCreated):
            self.is_over = True
        elif isinstance(event, TaskChanged) and event.state in TERMINAL and not self.is_over:
            self.is_over, self._completed_at = True, None
            self.status, self.fault = "cancelled", event.fault
            if event.state is not TaskState.CANCELLED:
                self.status, self.fault = "failed", event.fault or FAILED

    # Response

    def encode(
        self, output: list[JsonObject], about: JsonObject, metadata: JsonObject | None, losses: Sequence[Loss]
    ) -> JsonObject:
        """Return the response object as JSON (SPEC/responses/response.py) with the `output` items and `losses`.

        `about`: members of the upstream's response that have no canonical form. `metadata`: current metadata of the
        run; None means those of the request.
        """
        request, created = self.request_members, self._created
        if metadata is None:
            metadata = {} if created is None else created.metadata
        response = w.response(
            encode_id(RESPONSE, self._run_id),
            created_at=self._created_at,
            completed_at=self._completed_at,
            status=self.status,
            model=self._agent,
            output=output,
            usage=self.usage,
            settings=self._settings,
            previous_response_id=request.get("previous_response_id"),
            store=request.get("store") is not False,
            background=request.get("background") is True,
            metadata={name: value for name, value in metadata.items() if isinstance(value, str)},
        )
        response |= {name: value for name, value in about.items() if name not in _PLACED}
        if request.get("conversation") is not None:
            response["conversation"] = {"id": request["conversation"]}
        if self.status == "incomplete":
            response["incomplete_details"] = about.get("incomplete_details") or {"reason": self.finish}
        if self.status == "failed":
            response["error"] = _encode_error(self.fault or FAILED)
        if losses:
            # A stream has it, too. Clients of both kinds ignore it.
            response["babelgate"] = {"loss": losses_by_feature(losses)}
        return response


def _encode_error(fault: Fault) -> JsonObject:
    # SPEC/responses/response_error.py allows only a few codes.
    code = "rate_limit_exceeded" if fault.code in _BUSY else "server_error"
    upstream_error: JsonObject = fault.details.get("openai") or {}
    return {"code": code, **(upstream_error if "message" in upstream_error else {"message": fault.message})}
