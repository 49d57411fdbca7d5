"""Operations of the hub's port: what a caller must be allowed to do to call a method."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from babelgate.canonical.principal import Operation

Part = Literal["hub", "reads", "store", "assistants", "crons", "grants", "overview"]
"""Part of the port: `babelgate.canonical.hub.Hub` itself, or the name of one of its attributes. Only the console reads
the overview (`babelgate.gateway.access.guarded_overview`)."""
Operations = Mapping[Part, Mapping[str, Operation]]
"""Operation of each method, by part and name of the method."""

_HUB: Final[Mapping[str, Operation]] = {
    "agents": "discover",
    "agent": "discover",
    "introspectable_agent": "discover",
    "create_thread": "write",
    "change_thread": "write",
    "copy_thread": "write",
    "update_state": "write",
    "upload": "write",
    "submit": "run",
    "check_submit": "run",
    "answer": "answer",
    "check_answers": "answer",
    "cancel": "cancel",
    "cancel_run": "cancel",
    "delete_thread": "delete",
    "prune_thread": "delete",
    "change_run": "write",
    "remove_run": "delete",
    "set_webhook": "webhook",
    "delete_webhook": "webhook",
    # A schema is checked for requests and again when their responses are read, so the weaker operation applies.
    "find_schema_error": "read",
    "fetch": "run",  # part of the input of a run
}
_READS: Final[Mapping[str, Operation]] = {
    "task": "read",
    "run": "read",
    "run_input": "read",
    "runs": "read",
    "last_begun": "read",
    "run_page": "read",
    "turns": "read",
    "turn_log": "read",
    "removed_messages": "read",
    "thread": "read",
    "thread_view": "read",
    "threads": "read",
    "count_threads": "read",
    "thread_of": "read",
    "aliases": "read",
    "open_interrupts": "read",
    "known_interrupts": "read",
    "tasks": "read",
    "tasks_active_at": "read",
    "chain": "read",
    "records": "read",
    "log": "read",
    "logs": "read",
    "snapshot": "read",
    "follow": "read",
    "await_thread": "read",
    "file": "read",
    "file_pieces": "read",
    "webhooks": "webhook",  # they contain tokens and credentials
}
_STORE: Final[Mapping[str, Operation]] = {
    "put": "write",
    "get": "read",
    "delete": "delete",
    "search": "read",
    "namespaces": "read",
}
_ASSISTANTS: Final[Mapping[str, Operation]] = {
    "create": "write",
    "get": "read",
    "change": "write",
    "use_version": "write",
    "delete": "delete",
    "search": "read",
    "count": "read",
    "versions": "read",
    "version": "read",
}
_CRONS: Final[Mapping[str, Operation]] = {
    "create": "write",
    "get": "read",
    "change": "write",
    "delete": "delete",
    "search": "read",
    "count": "read",
}

_GRANTS: Final[Mapping[str, Operation]] = {
    "give": "write",
    "delete": "write",
    "list_given": "read",
    "list_received": "read",
}

_OVERVIEW: Final[Mapping[str, Operation]] = {
    "runs": "read",
    "run": "read",
    "count_runs": "read",
    "threads": "read",
    "thread": "read",
    "thread_content": "read",
    "records": "read",
    "changes": "read",
}

OPERATION_OF: Final[Operations] = MappingProxyType(
    {
        "hub": MappingProxyType(_HUB),
        "reads": MappingProxyType(_READS),
        "store": MappingProxyType(_STORE),
        "assistants": MappingProxyType(_ASSISTANTS),
        "crons": MappingProxyType(_CRONS),
        "grants": MappingProxyType(_GRANTS),
        "overview": MappingProxyType(_OVERVIEW),
    }
)
"""Operation of every method of the port. The guard refuses a method that is not in this table."""
