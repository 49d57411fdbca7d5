"""Violations of the scripted A2A 0.3 server."""

from typing import Final

from tests.conformance.servers.a2a_violations import SHARED
from tests.conformance.servers.kit import Violation

VIOLATIONS: Final = (
    *SHARED,
    Violation("a URL without a host", "card.url", ("card.url-listed",)),
    Violation("transports in lower case", "card.transports"),
    Violation("one URL of two transports", "card.one-transport"),
    Violation("the card's url is not listed", "card.url-listed"),
    Violation("a capability that is a text", "card.capabilities-schema"),
    Violation("a scheme without its name", "card.security-schema"),
    Violation("no contextId", "send.context", ("send.callers-context", "stream.ids", "form.task")),
    Violation("contexts are never continued", "send.same-context"),
    Violation(
        "one id for all tasks",
        "send.task-ids",
        ("send.same-context", "send.concurrent", "~push.*", "~get.*", "~security.*"),
    ),
    Violation("results are wrapped", "send.bare", ("form.send-result", "form.task", "form.message")),
    Violation("only blocking is taken", "send.blocking", ("send.at-once",)),
    Violation(
        "a failed task stays working", "state.failed", ("state.failure-reason", "stream.failed", "stream.final-failure")
    ),
    Violation(
        "ended tasks change", "state.final", ("cancel.stays", "cancel.harmless", "~stream.same-state", "~security.*")
    ),
    Violation(
        "streams are bytes",
        "stream.media-type",
        (
            "question.answer-streamed",
            "cancel.streamed",
            "stream.live",
            "stream.reader-leaves",
            "subscribe.opens",
            "subscribe.closed",
            "subscribe.all-told",
            "subscribe.reader-leaves",
            "form.rpc",
            "form.event",
            "form.status-update",
        ),
    ),
    Violation("an artifact after the end", "stream.nothing-after", ("stream.final", "stream.final-once")),
    Violation("no update is final", "stream.final"),
    Violation("the end is sent twice", "stream.final-once", ("stream.nothing-after",)),
    Violation("failure is not final", "stream.final-failure"),
    Violation("a question is not final", "stream.final-question"),
    Violation("work is final", "stream.not-final", ("stream.final-once",)),
    Violation("configs are not listed", "push.listed", ("push.several", "push.read-first")),
    Violation(
        "later configs are not pushed", "push.later", ("push.read", "push.listed", "push.several", "push.read-first")
    ),
    Violation("a config needs its id", "push.read-first"),
    Violation("not found is a bad request", "rest.not-found"),
    Violation("an empty body is a failure", "rest.no-message"),
    Violation("ids are paths", "security.strange-ids", ("form.task",)),
    Violation("a task without its context", "form.task", ("send.context", "send.callers-context", "stream.ids")),
    Violation("a result without its kind", "form.send-result", ("send.bare", "form.task", "form.message")),
    Violation("states as in 1.0", "form.state"),
    Violation("times in words", "form.timestamp"),
    Violation("roles as in 1.0", "form.role"),
    Violation("parts without a kind", "form.part"),
    Violation("a file of two kinds", "form.file"),
    Violation("an event of an unknown kind", "form.event", ("question.answer-streamed", "stream.adds-up")),
    Violation(
        "status updates without final",
        "form.status-update",
        ("stream.final", "stream.final-failure", "stream.final-question"),
    ),
    Violation("a deletion has a result", "form.push-deleted"),
    Violation("pushes are events", "form.push"),
)
