"""Examples of the commands, which `--help` shows below the options."""

from typing import Final


def _join(*lines: str) -> str:
    """Return the lines of examples as the epilog of a command's help. The empty lines keep click from joining the
    examples."""
    return "\n\n".join(("Examples:", *lines))


# 78 characters or fewer: a longer example is wrapped where the terminal has 80 columns.
PROGRAM: Final = _join(
    "babelgate serve                                # ./babelgate.yaml, or demos",
    "babelgate serve weather=http://127.0.0.1:8333  # the agent of a server",
    "babelgate serve mymodule:agent                 # an agent in Python",
    "babelgate add http://127.0.0.1:8333            # edit ./babelgate.yaml",
    'babelgate run echo "Hello" --as a2a            # call an agent over A2A',
    "babelgate acp echo                             # serve an editor over stdio",
    "babelgate console                              # watch runs in a browser",
    "babelgate check http://127.0.0.1:9000          # test its conformance",
    "babelgate bench smoke echo ask                 # compare two agents",
    'babelgate record ask "Hi" --out run.json       # save a run',
    "babelgate replay run.json                      # serve the saved run",
    "babelgate export --out threads.jsonl           # back up all threads",
    "babelgate webhooks                             # failed push notifications",
    "babelgate support-bundle --out bundle.zip      # diagnostics without secrets",
)
SERVE: Final = _join(
    "babelgate serve",
    "babelgate serve --config babelgate.yaml --port 9000",
    "babelgate serve weather=http://127.0.0.1:8333 planner=my_agents.plan:agent",
    "babelgate serve weather=http://127.0.0.1:8333#forecast",
    "babelgate serve http://127.0.0.1:8333          # all agents of that server",
    "babelgate serve --workers 4 --database postgresql://user@host/name",
    'BABELGATE_KEYS=\'{"alice": "secret"}\' babelgate serve --host 0.0.0.0',
)
RUN: Final = _join(
    'babelgate run echo "Hello"',
    'babelgate run ask "Hi" --as a2a',
    'babelgate run approve "Go" --url https://agents.example.com --key "$KEY"',
)
ACP: Final = _join(
    "babelgate acp echo",
    "babelgate acp coder --url https://agents.example.com  # key: BABELGATE_KEY",
    "In settings.json of Zed:",
    '{"agent_servers": {"Babelgate": {"type": "custom", "command": "babelgate",',
    '"args": ["acp", "echo"], "env": {}}}}',
)
ADD: Final = _join(
    "babelgate add http://127.0.0.1:8333",
    "babelgate add weather=http://127.0.0.1:8333#forecast",
    "babelgate add planner=https://planner.example.com --header 'Authorization: Bearer ${PLANNER_TOKEN}'",
)
VALIDATE: Final = _join(
    "babelgate validate",
    "babelgate validate --config agents.yaml",
    "babelgate validate --schema > babelgate.schema.json",
)

CHECK: Final = _join(
    "babelgate check http://127.0.0.1:9000",
    "babelgate check http://127.0.0.1:8000/a2a/echo --triggers demo",
    "babelgate check https://agents.example.com --protocol a2a --version 1.0 --header 'Authorization: Bearer …'",
    'babelgate check http://127.0.0.1:9000 --ask "Book me a flight" --trigger long="Count to 1000" --html report.html',
    'babelgate check --command "npx -y @modelcontextprotocol/server-everything" --protocol mcp',
    "babelgate check --list --protocol a2a",
    "babelgate check --across http://127.0.0.1:8000 --triggers demo  # compare protocols",
    "Behaviours for --trigger and --never: plain, stream, question, questions, approval, auth, fail, reject, long, "
    "silence, files, data, steps, tools, calls, message, links, change, resource.",
    "Protocols and versions: a2a 0.3, a2a 1.0, acp 0.2, ag-ui 1.0, agent-client v1, agent-protocol 0.1.6, aief 1, "
    "anthropic 2023-06-01, langgraph 0.16, mcp 2025-11-25, mcp 2026-07-28, openai chat, openai responses, "
    "vercel-ui v1.",
)
BENCH: Final = _join(
    "babelgate bench smoke echo stream             # a shipped suite, two demo agents",
    "babelgate bench tasks/ planner=http://127.0.0.1:9000 other=my_agents:agent --repeat 5",
    "babelgate bench tasks/ planner --baseline last/result.json --fail-under 0.9",
    "babelgate bench --resume bench-smoke-20270101-120000",
    "babelgate bench --schema task > task.schema.json",
)
RECORD: Final = _join(
    'babelgate record ask "Hello" --answer Ada --out run.json',
    'babelgate record http://127.0.0.1:9000 "Sum this up" --file report.pdf --out run.json',
)
REPLAY: Final = _join(
    "babelgate replay run.json",
    "babelgate replay run.json --name planner --port 9000 --pace recorded",
)

EXPORT: Final = _join(
    "babelgate export --out threads.jsonl",
    "babelgate export --config babelgate.yaml --owner alice --out alice.jsonl",
    "babelgate export --thread 0192f1a0-7c3e-7b1a-9c55-2f6d0f1e8a01 --out - | gzip > thread.jsonl.gz",
    "babelgate export --agent planner --metadata project=apollo --out apollo.jsonl",
)
IMPORT: Final = _join(
    "babelgate import threads.jsonl",
    "babelgate import threads.jsonl --database sqlite:///other.db",
    "gunzip < thread.jsonl.gz | babelgate import -",
)

WEBHOOKS: Final = _join(
    "babelgate webhooks",
    "babelgate webhooks --config babelgate.yaml --retry all",
    "babelgate webhooks --retry 0192f1a0-7c3e-7b1a-9c55-2f6d0f1e8a01  # by task id",
    "babelgate webhooks --database postgresql://user@host/name --retry hook-1",
)

SUPPORT: Final = _join(
    "babelgate support-bundle --out bundle.zip",
    "babelgate support-bundle --out bundle.zip --config babelgate.yaml --log /var/log/babelgate.log",
)
KEYS: Final = _join("babelgate keys new", "babelgate keys new --owner ci")
CONSOLE: Final = _join(
    "babelgate console",
    "babelgate console --url https://agents.example.com",
    "babelgate console --print                      # for another machine",
)
