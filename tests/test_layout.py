"""Structure of the code: every module has its test, adapters share one vocabulary, and nothing is too long.

Exceptions to a rule are listed here with a reason. An entry that is no longer needed fails, too.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import pytest

from babelgate.adapters import ADAPTERS, UPSTREAMS

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("canonical", "adapters", "gateway", "conformance")

VOCABULARY: Final = frozenset(
    {
        "__init__",
        "wire",
        "frameworks",
        "codec",
        "write",
        "read",
        "request",
        "errors",
        "agents",
        "carries",
        "rest",
        "looks",
        "snippets",
        "server",
        "client",
    }
)
"""The jobs of an adapter (the table in CONTRIBUTING.md): files where small, folders where large."""

INITIALIZER_LINES: Final = 100
"""Number of lines above which an `__init__.py` with more than imports needs a test like any other module."""
MODULE_LINES: Final = 800
FUNCTION_LINES: Final = 75
BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")
"""Attributes of a node that hold its statements."""
PARTICIPLES: Final = re.compile(
    "begun|bound|broken|brought|built|caught|chosen|done|drawn|driven|fallen|felt|forgotten|"
    "found|given|gone|got|grown|heard|held|hidden|hung|kept|known|laid|led|lent|lit|lost|"
    "made|meant|met|paid|ran|said|seen|sent|sold|sought|spent|spoken|stolen|struck|taken|"
    "taught|thought|thrown|told|torn|understood|woken|won|worn|written"
)
"""Pattern of the irregular participles. The regular ones end in -ed."""
VAGUE: Final = frozenset({"said", "told", "heard", "asked", "kept"})
"""Participles that do not identify the noun that follows; others, as in `declared_objects`, do."""
PREPOSITIONS: Final = frozenset({"of", "in", "by", "to", "at", "for", "from", "with", "beside", "here", "there"})
"""Prepositions and adverbs after which no noun follows, so that the participle stands alone."""
NAMED_SO: Final = {
    "canonical/feature.py: dropped": "the level of a Carry that it makes",
}
PREFIXES: Final = ("is_", "has_", "can_")
"""Prefixes of the names of predicates."""
BOOLEAN_FUNCTIONS: Final[Mapping[str, str]] = {
    # Actions.
    "add": "whether all records match",
    "add_texts": "whether it could",
    "advance_cursor": "whether this gateway still delivers to the webhook",
    "await_thread": "whether the thread came before the gateway's end",
    "complete": "whether it ended by itself",
    "cite": "whether there is a message to cite in",
    "kill_blocked": "whether the process was blocked and is killed",
    "delete": "whether there was one",
    "delete_webhook": "whether there was one",
    "drop_empty_partition": "whether there may be more",
    "end_webhook": "whether this gateway still delivers to the webhook",
    "enter": "whether it was let in",
    "erase_expired": "whether the thread is gone",
    "erase_idle": "whether the thread is gone",
    "erase_remnant": "whether there may be more",
    "find": "whether the pattern was found, by a process that is asked",
    "give_back": "whether there may be more",
    "until_ended": "whether it ended",
    "hold": "whether there were questions to hold",
    "mark": "whether there was anything to mark",
    "match": "the same as `find`, within that process, where it is a command",
    "migrate": "whether rows have to be folded anew",
    "next": "whether there was another event",
    "renew": "whether the file is there",
    "note_failure": "whether this gateway still delivers to the webhook",
    "remove_void": "whether the status's own message was void",
    "reserve": "whether there was a free slot",
    "start_over": "whether anything of what is void had been shown",
    "keep_news": "whether the draft continues what was read",
    "read_reply": "whether the message is the whole answer",
    "settle": "what became of a commit, which is certain after it",
    "delete_cron": "whether there was one",
    "forget_tombstones": "whether there may be more",
    "forget_webhooks": "whether there may be more",
    "wait": "whether the deliveries came in time",
    # Names of other packages.
    "eof_received": "asyncio's",
    "once": "of a port that other packages implement",
    # Words of a caller's or a peer's protocol.
    "active": "of an extension, as `babelgate.adapters.kit.extension` has it",
    "flag": "a parameter of a request as a value",
    "should_reconnect": "what a client's loop asks",
    "takes": "the filter of a stream",
    "enable_agent": "whether it was disabled",
    "prune_records": "whether there may be more",
}
"""Public functions that return a bool and have another kind of name."""
LONG: Final = {"gateway/storage/statements.py: __init__": "one prepared statement after another"}

RAISES_BY_KIND: Final[Mapping[str, str]] = {
    "conformance/protocols/*": "a probe's verdict is what it raises: `babelgate.conformance.verdict`",
    "conformance/across/*": "`babelgate.conformance.across.driver.Driver` says it for all",
    "conformance/pytest_plugin.py": "pytest's hooks",
    "gateway/cli/*": "commands: `click.UsageError`, which the user is shown",
    "adapters/*/server/*": "routes: each error is answered in the protocol's words",
    "gateway/storage/reads.py": "`babelgate.canonical.hub.Reads` says it",
}
"""Modules whose public functions need no list of raised codes."""

TESTED_BY: Final[Mapping[str, str]] = {
    # Signed cards are one subject: the signature, the keys, and what a failure means.
    "adapters/kit/card_trust.py": "tests/gateway/agents/test_card_checks.py",
    "adapters/kit/jws.py": "tests/adapters/a2a/agents/test_signatures.py",
    "gateway/key_set.py": "tests/gateway/http/test_issuer_keys.py",
    # The public API is one subject in three modules.
    "babelgate/*.py": "tests/test_babelgate.py",
    "gateway/generation.py": "tests/gateway/http/test_generations.py",
    "gateway/settings/references.py": "tests/gateway/settings/test_secret_files.py",
    "conformance/wire/tls.py": "tests/gateway/cli/test_trust.py",
    "gateway/settings/listens.py": "tests/gateway/http/test_admin_address.py",
    "gateway/http/front.py": "tests/gateway/http/test_middleware.py",
    "gateway/runs/rules.py": "tests/gateway/runs/test_engine.py",
    "gateway/run_caller.py": "tests/gateway/runs/test_run_callers.py",
    "gateway/agents/processes/*.py": "tests/gateway/agents/processes/test_agent.py",
    "gateway/agents/call_data.py": "tests/gateway/agents/processes/test_graph.py",
    "gateway/agents/stored_data.py": "tests/gateway/agents/langgraph/test_checkpointer.py",
    "gateway/storage/stored_checkpoint.py": "tests/gateway/storage/test_checkpoints.py",
    "gateway/agents/importing.py": "tests/gateway/agents/test_registry.py",
    "gateway/agents/tokens/[rs]*.py": "tests/behaviour/test_agent_tokens.py",
    "gateway/agents/server_access.py": "tests/behaviour/test_agent_tokens.py",
    "gateway/agents/early_reports.py": "tests/behaviour/test_agent_tokens.py",
    "gateway/runs/consents.py": "tests/behaviour/test_consents.py",
    "gateway/http/callback.py": "tests/behaviour/test_consents.py",
    "gateway/storage/agent_tokens.py": "tests/behaviour/test_consents.py",
    "gateway/console/addresses.py": "tests/gateway/console/test_exchanges.py",
    "gateway/cli/database.py": "tests/gateway/cli/test_transfer.py",
    "gateway/http/response.py": "tests/gateway/http/test_middleware.py",
    "gateway/http/openapi_routes.py": "tests/gateway/http/test_openapi.py",
    "adapters/kit/request.py": "tests/adapters/kit/test_json.py",
    "adapters/kit/server/rest.py": "tests/gateway/http/test_openapi.py",
    "adapters/kit/server/rpc.py": "tests/adapters/a2a/server/test_grpc.py",
    "adapters/*/rest.py": "tests/gateway/http/test_openapi.py",
    # Traces cross all layers.
    "adapters/a2a/server/trace.py": "tests/gateway/telemetry/test_traces.py",
    "adapters/kit/server/tracing.py": "tests/gateway/telemetry/test_traces.py",
    "adapters/kit/tracing.py": "tests/gateway/telemetry/test_traces.py",
    "gateway/runs/attempt_trace.py": "tests/gateway/telemetry/test_traces.py",
    "gateway/telemetry/exporter.py": "tests/interop/test_traces.py",
    "gateway/console/job_*.py": "tests/gateway/console/test_jobs.py",
    "gateway/console/routes.py": "tests/gateway/console/test_gate.py",
    "gateway/settings/console.py": "tests/gateway/settings/test_model.py",
    "gateway/settings/fields.py": "tests/gateway/settings/test_model.py",
    "gateway/access/guarded_reads.py": "tests/gateway/access/test_gate.py",
    "gateway/access/guarded_overview.py": "tests/gateway/access/test_guard.py",
    "gateway/console/parameters.py": "tests/gateway/console/test_runs.py",
    "gateway/runs/fault_counts.py": "tests/gateway/console/test_health.py",
    "gateway/storage/disk.py": "tests/gateway/console/test_health.py",
    "gateway/storage/folded_log.py": "tests/gateway/storage/test_overview.py",
    "gateway/storage/page_cursor.py": "tests/gateway/storage/test_overview.py",
    "gateway/storage/run_summaries.py": "tests/gateway/storage/test_overview.py",
    "gateway/storage/summary_page.py": "tests/gateway/storage/test_overview.py",
    "gateway/storage/thread_summaries.py": "tests/gateway/storage/test_overview.py",
    # Sharing is one subject: the port, the routes and the rows.
    "canonical/grant.py": "tests/behaviour/test_sharing.py",
    "gateway/http/grants.py": "tests/behaviour/test_sharing.py",
    "gateway/storage/grants.py": "tests/behaviour/test_sharing.py",
    "gateway/storage/blob_store.py": "tests/gateway/storage/test_blobs.py",
    # Rows of things that have a module in runs/: tested with that module.
    "gateway/storage/blob_uses.py": "tests/gateway/runs/test_submission.py",
    "gateway/storage/cron_rows.py": "tests/gateway/runs/test_crons.py",
    "gateway/storage/idle.py": "tests/gateway/runs/test_retention.py",
    "gateway/storage/run_rows.py": "tests/gateway/runs/test_engine.py",
    "gateway/storage/log_pages.py": "tests/gateway/storage/test_journal.py",
    # Parts of the journal: by its tests.
    "gateway/storage/command_runner.py": "tests/gateway/storage/test_journal.py",
    "gateway/storage/group_commit.py": "tests/gateway/storage/test_shared.py",
    "gateway/storage/publisher.py": "tests/gateway/storage/test_journal.py",
    "gateway/storage/reader_pool.py": "tests/gateway/storage/test_journal.py",
    "gateway/storage/remote_commits.py": "tests/gateway/storage/test_listener.py",
    "gateway/storage/write_queue.py": "tests/gateway/storage/test_journal.py",
    "gateway/storage/writer.py": "tests/gateway/storage/test_journal.py",
    "gateway/storage/writer_link.py": "tests/gateway/storage/test_postgres.py",
    # Tested with servers that damage text beyond ASCII.
    "conformance/samples.py": "tests/conformance/test_judge.py",
    # The two ports of adapters, and what clients and servers of all protocols share: by every adapter's own tests.
    "adapters/kit/adapter.py": "tests/gateway/http/test_app.py",
    "adapters/kit/upstream.py": "tests/gateway/agents/test_registry.py",
    "adapters/kit/aside.py": "tests/limits/test_bodies.py",
    "adapters/kit/client/answers.py": "tests/limits/test_servers.py",
    "adapters/kit/client/blame.py": "tests/adapters/kit/client/test_driver.py",
    "adapters/kit/server/listed.py": "tests/limits/test_lists.py",
    "adapters/kit/server/websocket.py": "tests/behaviour/test_handshakes.py",
    "adapters/kit/server/own_files.py": "tests/behaviour/test_own_files.py",
    # Models of messages, and what is read and written in their terms: both ways, by the goldens of each protocol.
    "adapters/a2a/wire/*": "tests/adapters/a2a/test_golden.py",
    "adapters/a2a/codec/dialect.py": "tests/adapters/a2a/test_golden.py",
    "adapters/a2a/read/*": "tests/adapters/a2a/test_client.py",
    "adapters/a2a/write/*": "tests/adapters/a2a/write/test_task_events.py",
    "adapters/a2a/frameworks/*": "tests/adapters/a2a/codec/test_marks.py",
    "adapters/a2a/client/*": "tests/adapters/a2a/test_client.py",
    "adapters/a2a/server/call.py": "tests/adapters/a2a/server/test_jsonrpc.py",
    "adapters/a2a/server/follow.py": "tests/adapters/a2a/server/test_operation.py",
    "adapters/acp/wire.py": "tests/adapters/acp/test_golden.py",
    "adapters/acp/write/*": "tests/adapters/acp/test_golden.py",
    "adapters/acp/read/*": "tests/adapters/acp/test_client.py",
    "adapters/acp/agents.py": "tests/adapters/acp/codec/test_messages.py",
    "adapters/acp/errors.py": "tests/adapters/acp/codec/test_messages.py",
    "adapters/acp/client/*": "tests/adapters/acp/test_client.py",
    "adapters/ag_ui/*": "tests/adapters/ag_ui/test_server.py",
    "adapters/aief/wire/*": "tests/adapters/aief/test_codec.py",
    "adapters/aief/write/*": "tests/adapters/aief/test_golden.py",
    "adapters/aief/agents.py": "tests/adapters/aief/test_client.py",
    "adapters/aief/errors.py": "tests/adapters/aief/test_server.py",
    "adapters/aief/request.py": "tests/adapters/aief/test_client.py",
    "adapters/aief/client/*": "tests/adapters/aief/test_client.py",
    "adapters/langchain/wire/*": "tests/adapters/langchain/test_golden.py",
    "adapters/langchain/read/*": "tests/adapters/langchain/read/test_run_frames.py",
    "adapters/langchain/codec/*": "tests/adapters/langchain/test_golden.py",
    "adapters/langchain/write/*": "tests/adapters/langchain/test_golden.py",
    "adapters/langchain/errors/*": "tests/adapters/langchain/codec/test_state.py",
    "adapters/langchain/agents.py": "tests/adapters/langchain/client/test_discovery.py",
    "adapters/langchain/request.py": "tests/adapters/langchain/test_client.py",
    "adapters/langchain/client/*": "tests/adapters/langchain/test_client.py",
    "adapters/langchain/server/cancel.py": "tests/adapters/langchain/server/test_runs.py",
    "adapters/langchain/server/create_run.py": "tests/adapters/langchain/server/test_runs.py",
    "adapters/langchain/server/event_commands.py": "tests/adapters/langchain/server/test_event_stream.py",
    "adapters/langchain/server/join.py": "tests/adapters/langchain/server/test_stream.py",
    "adapters/langchain/server/wait.py": "tests/adapters/langchain/server/test_runs.py",
    "adapters/mcp/wire.py": "tests/adapters/mcp/server/test_calls.py",
    "adapters/mcp/write/result.py": "tests/adapters/mcp/test_golden.py",
    "adapters/mcp/write/marks.py": "tests/adapters/mcp/test_golden.py",
    "adapters/mcp/write/stored.py": "tests/adapters/mcp/server/test_catalog.py",
    "adapters/mcp/codec/uris.py": "tests/adapters/mcp/server/test_catalog.py",
    "adapters/mcp/server/prompts.py": "tests/adapters/mcp/server/test_catalog.py",
    "adapters/mcp/server/resources.py": "tests/adapters/mcp/server/test_catalog.py",
    "adapters/mcp/client/*": "tests/adapters/mcp/test_client.py",
    "adapters/mcp/read/*": "tests/adapters/mcp/test_client.py",
    "adapters/mcp/errors.py": "tests/adapters/mcp/server/test_calls.py",
    "adapters/mcp/codec/tasks.py": "tests/adapters/mcp/server/test_calls.py",
    "adapters/mcp/codec/arguments.py": "tests/adapters/mcp/server/test_calls.py",
    "adapters/mcp/server/*": "tests/adapters/mcp/server/test_calls.py",
    "adapters/openai/wire/*": "tests/adapters/openai/test_golden.py",
    "adapters/openai/write/*": "tests/adapters/openai/test_golden.py",
    "adapters/openai/codec/model.py": "tests/adapters/openai/request/test_requests.py",
    "adapters/openai/codec/questions.py": "tests/adapters/openai/test_golden.py",
    "adapters/openai/errors/*": "tests/adapters/openai/request/test_requests.py",
    "adapters/openai/server/create_response.py": "tests/adapters/openai/server/test_responses.py",
    "adapters/openai/server/socket_memory.py": "tests/adapters/openai/server/test_response_socket.py",
    "adapters/openai/server/conversations.py": "tests/adapters/openai/server/test_responses.py",
    "adapters/openai/server/follow.py": "tests/adapters/openai/server/test_responses.py",
    "adapters/openai/server/references.py": "tests/adapters/openai/server/test_responses.py",
    "adapters/openai/server/page.py": "tests/adapters/openai/server/test_responses.py",
    "adapters/openai/codec/items.py": "tests/adapters/openai/server/test_responses.py",
    "adapters/openai/codec/names.py": "tests/adapters/openai/server/test_responses.py",
    "adapters/openai/server/*": "tests/adapters/openai/server/test_chat.py",
    "adapters/openai/agents.py": "tests/adapters/openai/request/test_requests.py",
    "adapters/openai/request/*": "tests/adapters/openai/request/test_requests.py",
    "adapters/openai/read/*": "tests/adapters/openai/read/test_readers.py",
    "adapters/openai/client/*": "tests/adapters/openai/test_client.py",
    "adapters/runtime/codec.py": "tests/adapters/runtime/test_golden.py",
    "adapters/runtime/*": "tests/adapters/runtime/test_server.py",
    "adapters/anthropic/*": "tests/adapters/anthropic/test_server.py",
    "adapters/agent_client/agents.py": "tests/adapters/agent_client/test_server.py",
    "adapters/agent_client/codec/*": "tests/adapters/agent_client/test_server.py",
    "adapters/agent_client/errors.py": "tests/adapters/agent_client/test_server.py",
    "adapters/agent_client/client/*": "tests/adapters/agent_client/test_client.py",
    "adapters/agent_client/read/*": "tests/adapters/agent_client/test_client.py",
    "adapters/agent_client/request.py": "tests/adapters/agent_client/test_client.py",
    "gateway/settings/coding.py": "tests/gateway/settings/test_model.py",
    "adapters/kit/program.py": "tests/adapters/agent_client/test_client.py",
    "adapters/agent_client/server/*": "tests/adapters/agent_client/test_server.py",
    "adapters/agent_client/wire.py": "tests/interop/test_agent_client.py",
    "adapters/agent_client/write/*": "tests/adapters/agent_client/test_golden.py",
    "adapters/vercel_ui/wire.py": "tests/adapters/vercel_ui/test_codec.py",
    "adapters/vercel_ui/errors.py": "tests/adapters/vercel_ui/test_server.py",
    "adapters/vercel_ui/write/*": "tests/adapters/vercel_ui/test_golden.py",
    "adapters/vercel_ui/server/*": "tests/adapters/vercel_ui/test_server.py",
    "adapters/*/carries.py": "tests/pairs/test_matrix.py",
    "adapters/*/snippets.py": "tests/interop/test_snippets.py",
    "gateway/console/snippets.py": "tests/interop/test_snippets.py",
    "adapters/*/looks.py": "tests/gateway/console/test_looks.py",
    "canonical/used.py": "tests/gateway/console/test_looks.py",
    # The ports of the canonical model, and its smallest types: tested through their implementations and uses.
    "canonical/assistant.py": "tests/behaviour/test_hub_owners.py",
    "canonical/cron.py": "tests/behaviour/test_hub_owners.py",
    "canonical/hub.py": "tests/behaviour/test_hub_owners.py",
    "canonical/store.py": "tests/behaviour/test_hub_owners.py",
    "canonical/listed.py": "tests/limits/test_lists.py",
    "canonical/thread.py": "tests/canonical/test_history.py",
    "canonical/value.py": "tests/canonical/test_stored.py",
    # Probes and their wire: tested with scripted servers that keep or break every requirement.
    "conformance/protocols/*": "tests/conformance/test_judge.py",
    "conformance/across/*": "tests/conformance/test_across.py",
    "conformance/wire/*": "tests/conformance/test_judge.py",
    "conformance/report/*": "tests/conformance/test_examine.py",
    "conformance/baseline.py": "tests/conformance/test_examine.py",
    "conformance/leak.py": "tests/conformance/test_judge.py",
    "conformance/probe.py": "tests/conformance/test_judge.py",
    "conformance/requirement.py": "tests/conformance/test_judge.py",
    "conformance/trigger.py": "tests/conformance/test_examine.py",
    "conformance/verdict.py": "tests/conformance/test_judge.py",
    "conformance/bench/*": "tests/gateway/cli/test_bench.py",
    "conformance/contract/*": "tests/conformance/test_contract.py",
    # The command line: tested as processes.
    "gateway/cli/check.py": "tests/conformance/test_examine.py",
    "gateway/cli/embedded.py": "tests/gateway/cli/test_bench.py",
    "gateway/cli/tls_options.py": "tests/gateway/cli/test_trust.py",
    "gateway/cli/progress.py": "tests/gateway/cli/test_bench.py",
    "gateway/cli/*": "tests/gateway/cli/test_cli.py",
    "gateway/telemetry/*": "tests/gateway/telemetry/test_process.py",
    "gateway/settings/load.py": "tests/gateway/settings/test_model.py",
    "gateway/settings/place.py": "tests/behaviour/test_secrets.py",
    "gateway/storage/locked.py": "tests/gateway/storage/test_database.py",
    "gateway/registered_agent.py": "tests/gateway/agents/test_registry.py",
    "gateway/ids.py": "tests/gateway/runs/test_event_check.py",
    "gateway/agents/detection.py": "tests/gateway/cli/test_add.py",
    "gateway/agents/langgraph/signature.py": "tests/gateway/agents/langgraph/test_factory.py",
    "gateway/agents/langgraph/store.py": "tests/gateway/agents/langgraph/test_agent.py",
    "gateway/runs/answer_schema.py": "tests/behaviour/test_answer_schemas.py",
    "gateway/runs/attempt.py": "tests/gateway/runs/test_engine.py",
    "gateway/runs/cluster.py": "tests/cluster/test_takeover.py",
    "gateway/runs/lifecycle.py": "tests/gateway/runs/test_submission.py",
    "gateway/runs/recovery.py": "tests/gateway/runs/test_engine.py",
    "gateway/runs/schema_check.py": "tests/gateway/runs/test_output_schema.py",
    "gateway/composition.py": "tests/gateway/test_hub.py",
    "gateway/runs/commits.py": "tests/gateway/test_hub.py",
    "gateway/runs/readiness.py": "tests/gateway/test_hub.py",
    "gateway/runs/submissions.py": "tests/gateway/runs/test_submission.py",
    "gateway/runs/sweeper.py": "tests/gateway/test_hub.py",
    "gateway/runs/threads.py": "tests/gateway/runs/test_thread_commands.py",
    "gateway/runs/state_updates.py": "tests/gateway/runs/test_thread_commands.py",
    "gateway/runs/uploads.py": "tests/gateway/runs/test_thread_commands.py",
    "gateway/storage/reads.py": "tests/gateway/test_hub.py",
    "gateway/storage/size.py": "tests/limits/test_inputs.py",
    "gateway/storage/statements.py": "tests/gateway/storage/test_query_plans.py",
    "gateway/storage/subscription.py": "tests/gateway/test_hub.py",
    "gateway/storage/tables.py": "tests/gateway/storage/test_database.py",
    # The administration API: by its own tests, with real gateways.
    "gateway/admin/bodies.py": "tests/gateway/admin/test_keys.py",
    "gateway/port.py": "tests/gateway/admin/test_configuration.py",
    "gateway/admin/usage.py": "tests/gateway/admin/test_configuration.py",
    "gateway/admin/key_ring.py": "tests/gateway/admin/test_keys.py",
    "gateway/api_key.py": "tests/gateway/cli/test_keys.py",
    "gateway/runs/held_runs.py": "tests/gateway/runs/test_budgets.py",
    "gateway/storage/budget_commands.py": "tests/gateway/admin/test_budgets.py",
    "gateway/runs/budget_question.py": "tests/gateway/runs/test_budgets.py",
    "gateway/storage/spend.py": "tests/gateway/runs/test_budgets.py",
    "gateway/runs/switches.py": "tests/gateway/admin/test_agents.py",
    "gateway/settings/administration.py": "tests/gateway/settings/test_model.py",
    "gateway/settings/limits.py": "tests/gateway/settings/test_advice.py",
    "gateway/storage/administered.py": "tests/gateway/admin/test_keys.py",
    "gateway/storage/administration.py": "tests/gateway/admin/test_keys.py",
    "gateway/storage/audit.py": "tests/gateway/admin/test_audit_log.py",
    "gateway/storage/auditor.py": "tests/gateway/admin/test_audit_log.py",
}
"""Modules without a test at the mirrored path, and the test that covers each. The first match counts."""


def modules() -> Iterator[Path]:
    yield from sorted((ROOT / "babelgate").glob("*.py"))
    for package in PACKAGES:
        yield from (each for each in sorted((ROOT / package).rglob("*.py")) if "migrations" not in each.parts)


def test_every_module_has_its_test() -> None:
    needed: set[str] = set()
    for module in modules():
        name = module.relative_to(ROOT)
        if module.stem == "__main__" or is_short_initializer(module) or (ROOT / mirrored(name)).is_file():
            continue
        found = next((pattern for pattern in TESTED_BY if fnmatch(str(name), pattern)), None)
        assert found is not None, f"{name}: no {mirrored(name)}, and no entry of TESTED_BY covers it"
        needed.add(found)
    assert set(TESTED_BY) == needed, "these entries are not needed"
    assert all((ROOT / test).is_file() for test in TESTED_BY.values())


def is_short_initializer(module: Path) -> bool:
    if module.stem != "__init__":
        return False
    text = module.read_text(encoding="utf-8")
    return len(text.splitlines()) <= INITIALIZER_LINES or not any(
        isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.parse(text).body
    )


def mirrored(module: Path) -> Path:
    """Return the path of a module's test. An `__init__.py` has the name of its package."""
    if module.stem == "__init__":
        module = module.parent
    return Path("tests") / module.parent / f"test_{module.stem.lstrip('_')}.py"


def test_every_adapter_uses_the_shared_vocabulary() -> None:
    for folder in adapters():
        names = {each.stem for each in folder.iterdir() if each.suffix == ".py" or (each / "__init__.py").is_file()}
        assert names <= VOCABULARY, f"{folder.name}: {sorted(names - VOCABULARY)}"


def test_the_table_of_the_vocabulary_is_complete() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("### One vocabulary for every adapter")[2].partition("\n#")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == VOCABULARY - {"__init__"}


def test_only_packages_define_all(trees: Mapping[Path, ast.Module]) -> None:
    """Forbid `__all__` in modules, whose names without an underscore are public. The demo's names are agents."""
    found = {
        str(module.relative_to(ROOT)) for module, tree in trees.items() if module.stem != "__init__" and has_all(tree)
    }
    assert found == {"babelgate/testing.py", "gateway/demo.py"}


def has_all(tree: ast.Module) -> bool:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return True
    return False


def adapters() -> list[Path]:
    found = [each for each in (ROOT / "adapters").iterdir() if (each / "__init__.py").is_file()]
    return [each for each in found if each.name != "kit"]


def test_the_import_contracts_name_every_adapter() -> None:
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    folders = {f"babelgate.adapters.{each.name}" for each in adapters()}
    assert set(contracts["importlinter:contract:adapters"]["modules"].split()) == folders
    assert set(contracts["importlinter:contract:pure"]["source_modules"].split()) == {"babelgate.canonical", *folders}
    served = {adapter.routes.__module__.split(".")[2] for adapter in ADAPTERS}
    called = {re.sub(r"^agent-protocol$|^langgraph$", "langchain", upstream.protocol) for upstream in UPSTREAMS}
    assert {f"babelgate.adapters.{name.replace('-', '_')}" for name in served | called} == folders


def test_private_modules_are_imported_only_in_their_package(trees: Mapping[Path, ast.Module]) -> None:
    for module, tree in trees.items():
        home = ".".join(("babelgate", *module.relative_to(ROOT).with_suffix("").parts)).replace(".__init__", "")
        for name in (name for node in ast.walk(tree) for name in imported(node)):
            package = re.match(r"(babelgate(?:\.[a-z]\w*)*)\._(?!_)", name)
            is_own = package is None or package[1] == "babelgate" or f"{home}.".startswith(f"{package[1]}.")
            assert is_own, f"{module.relative_to(ROOT)} imports {name}"


def imported(node: ast.AST) -> list[str]:
    """Return the names of the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if isinstance(node, ast.ImportFrom) and node.module is not None:
        return [node.module]
    return []


@pytest.fixture(scope="module")
def trees() -> Mapping[Path, ast.Module]:
    """Syntax trees of all modules. Parsing takes a second."""
    return {module: ast.parse(module.read_text(encoding="utf-8")) for module in modules()}


def test_modules_and_functions_are_short(trees: Mapping[Path, ast.Module]) -> None:
    for module, tree in trees.items():
        name = module.relative_to(ROOT)
        assert len(module.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES, name
        for function in functions(tree):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            assert lines <= FUNCTION_LINES or f"{name}: {function.name}" in LONG, f"{name}: {function.name}: {lines}"


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements in a tree. Expressions are most of a tree, but contain none."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        for name in BLOCKS:
            within = getattr(node, name, ())
            if isinstance(within, list):  # the body of a lambda or of `a if b else c` is an expression
                waiting += within
        yield node


def test_no_function_is_a_bare_participle(trees: Mapping[Path, ast.Module]) -> None:
    """Require a verb for actions, is_, has_ or can_ for predicates, and a noun for values.

    The judge is left out, because its scenes are named by what has happened in them (`answered`, `streamed`).
    """
    found = {
        f"{module.relative_to(ROOT)}: {function.name}"
        for module, tree in trees.items()
        for function in functions(tree)
        if is_participle(function.name.strip("_")) and module.relative_to(ROOT).parts[0] != "conformance"
    }
    assert found == set(NAMED_SO)


def is_participle(name: str) -> bool:
    """Return True if the name is a participle alone, or one without a noun."""
    first, *rest = name.split("_")
    if PARTICIPLES.fullmatch(first) is None and not (first.endswith("ed") and first not in ("feed", "need", "seed")):
        return False
    return not rest or first in VAGUE or rest[0] in PREPOSITIONS


def test_modules_that_a_docstring_names_exist(trees: Mapping[Path, ast.Module]) -> None:
    """Check names with a dot that begin with a package or a job of an adapter, from the module's own folder upwards.

    Names without a dot are not checked, because their module is unknown.
    """
    first = "|".join([*PACKAGES, *sorted(VOCABULARY - {"__init__"})])
    lost = [
        f"{module.relative_to(ROOT)}: {name}"
        for module, tree in trees.items()
        for name in re.findall(rf"`((?:{first})(?:\.\w+)+)`", ast.get_docstring(tree) or "")
        if not any(has_name(folder, name.split(".")) for folder in module.parents if folder.is_relative_to(ROOT))
    ]
    assert not lost


def has_name(folder: Path, steps: list[str]) -> bool:
    """Return True if the module exists, or if the last step is a word in the module before it."""
    place = folder.joinpath(*steps)
    if place.is_dir() or place.with_suffix(".py").is_file():
        return True
    holders = (place.parent.with_suffix(".py"), place.parent / "__init__.py")
    return any(re.search(rf"\b{steps[-1]}\b", each.read_text(encoding="utf-8")) for each in holders if each.is_file())


def test_predicates_begin_with_is_has_or_can(trees: Mapping[Path, ast.Module]) -> None:
    found = {
        function.name
        for tree in trees.values()
        for function in functions(tree)
        if isinstance(function.returns, ast.Name) and function.returns.id == "bool"
        if not function.name.startswith(("_", *PREFIXES))
    }
    assert found == set(BOOLEAN_FUNCTIONS)


def test_models_of_messages_are_in_wire(trees: Mapping[Path, ast.Module]) -> None:
    found = [
        f"{module.relative_to(ROOT)}: {node.name}"
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and module.is_relative_to(ROOT / "adapters")
        if any(ast.unparse(base).startswith(("BaseModel", "RootModel")) for base in node.bases)
        if "wire" not in module.relative_to(ROOT).with_suffix("").parts
    ]
    assert not found


def test_public_functions_document_their_errors(trees: Mapping[Path, ast.Module]) -> None:
    silent = [
        f"{name}: {function.name}"
        for module, tree in trees.items()
        if not any(fnmatch(name := str(module.relative_to(ROOT)), pattern) for pattern in RAISES_BY_KIND)
        for function in public_functions(tree)
        if raises(function) and "aise" not in (ast.get_docstring(function) or "")
    ]
    assert not silent


def test_docstrings_name_every_raised_code(trees: Mapping[Path, ast.Module]) -> None:
    """Check all functions with "Raises" in their docstring, also private ones: it names every code in a `raise` of the
    function.
    """
    wrong = [
        f"{module.relative_to(ROOT)}: {function.name}: {code}"
        for module, tree in trees.items()
        for function in functions(tree)
        for code in unnamed_codes(function)
    ]
    assert not wrong


def unnamed_codes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    words = ast.get_docstring(function) or ""
    if "aise" not in words:
        return []
    return [code for code in sorted(raised_codes(function)) if not re.search(rf"\b{code}\b", words)]


@pytest.mark.parametrize("words", ["Raises internal.", "Raises unavailable_soon.", "Raises UNAVAILABLE."])
def test_an_undocumented_code_is_found(words: str) -> None:
    code = f'def put():\n    """{words}"""\n    raise FaultError(FaultCode.UNAVAILABLE, "It could not be stored.")'
    [function] = functions(ast.parse(code))
    assert unnamed_codes(function) == ["unavailable"]


def public_functions(parent: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in parent.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_public(node.name):
            yield node


def is_public(name: str) -> bool:
    """Return True for public names. `__init__` is public, because it runs when an object is created."""
    return name == "__init__" or not name.startswith("_")


def raised_codes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the fault codes in the function's own `raise` statements, in lower case as in docstrings."""
    raised = [ast.unparse(node.exc) for node in statements(function) if isinstance(node, ast.Raise) and node.exc]
    return {code.lower() for each in raised for code in re.findall(r"\bFaultCode\.([A-Z_]+)", each)}


def raises(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if the function raises a new error. A bare `raise` does not count."""
    raised = [ast.unparse(node.exc) for node in statements(function) if isinstance(node, ast.Raise) and node.exc]
    return any(not each.startswith(("AssertionError", "NotImplementedError")) for each in raised)
