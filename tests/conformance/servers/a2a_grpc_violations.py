"""Violations of the scripted A2A 1.0 server of gRPC."""

from typing import Final

from tests.conformance.servers.kit import Violation

VIOLATIONS: Final = (
    # gRPC alone
    Violation("a method is missing", "grpc.methods", ("extended.given",)),
    Violation("not found is an invalid argument", "grpc.not-found"),
    Violation("not cancelable is aborted", "grpc.cancel-status"),
    Violation("unsupported is an invalid argument", "grpc.unsupported-status"),
    Violation("an unsupported version is an invalid argument", "grpc.version-status"),
    Violation("bare: unsupported push is an invalid argument", "grpc.push-status"),
    Violation("gRPC errors without a reason", "grpc.error-info"),
    Violation("another code in the details", "grpc.error-code"),
    Violation("no message is a failure", "grpc.no-message"),
    Violation("messageId is ignored", "grpc.no-message-id"),
    Violation("the role is ignored", "grpc.no-role"),
    Violation("no parts are accepted", "grpc.no-parts"),
    Violation("empty parts are accepted", "grpc.empty-part"),
    Violation("unknown fields are refused", "grpc.unknown-fields"),
    Violation("streams end with an error", "grpc.stream-status"),
    Violation("details are no status", "form.grpc-error", ("grpc.error-info",)),
    Violation("a response is no message", "form.push-config", ("push.read",)),
    Violation("HTTP cannot find tasks of gRPC", "binding.grpc-to-http"),
    Violation("gRPC cannot find tasks of HTTP", "binding.http-to-grpc"),
    Violation("strangers are an unknown error", "security.anonymous"),
    # Every binding
    Violation("an interface that does not exist", "card.interfaces-answer"),
    Violation("contexts of callers are exchanged", "send.callers-context"),
    Violation("ended tasks accept messages", "send.ended-task", ("grpc.unsupported-status",)),
    Violation("rejected is failed", "state.rejected"),
    Violation("another task is returned", "get.same-task"),
    Violation("historyLength is ignored", "get.history", ("get.newest-history",)),
    Violation("questions ask for keys", "question.state", ("question.streamed",)),
    Violation("ended tasks are cancelled", "cancel.ended", ("grpc.cancel-status",)),
    Violation("a stream without its task", "stream.begins"),
    Violation("a stream without its end", "stream.last-state", ("stream.one-end",)),
    Violation("streams stay open", "stream.closed", ("grpc.stream-status",)),
    Violation("a piece is not streamed", "stream.adds-up"),
    Violation("bare: streams anyway", "stream.undeclared"),
    Violation("ended tasks can be subscribed to", "subscribe.ended"),
    Violation("unknown tasks can be subscribed to", "subscribe.unknown"),
    Violation("pageSize is ignored", "list.page-size", ("list.pages",)),
    Violation("any pageSize is accepted", "list.bad-page-size"),
    Violation("the last page has a token", "list.last-page"),
    Violation("lists have all of the history", "list.history"),
    Violation("the time is ignored", "list.since"),
    Violation("webhooks are read otherwise", "push.read"),
    Violation("pushes without credentials", "push.credentials"),
    Violation("bytes are encoded twice", "content.bytes"),
    Violation("ASCII only", "content.unicode"),
    Violation("any version is accepted", "version.unsupported", ("grpc.version-status",)),
    Violation("unknown extensions are refused", "extension.unknown"),
    Violation("nothing is required", "extension.required"),
    Violation("anonymous callers are accepted", "security.anonymous", ("extended.credentials",)),
    Violation("any caller's task is shown", "security.get"),
    Violation("ids are paths", "security.strange-ids"),
    Violation("errors show a stack trace", "security.no-traces"),
    Violation("a status without a state", "form.status"),
    Violation("a message without its id", "form.message", ("question.history",)),
    Violation("an artifact without parts", "form.artifact"),
    Violation("status updates without context", "form.status-update", ("stream.ids",)),
)

BROKEN_IN_GRPC: Final = frozenset(
    each.breaks for each in VIOLATIONS if each.breaks.startswith(("grpc.", "binding.", "form.grpc-"))
)
"""Requirements that only the server of gRPC breaks."""
