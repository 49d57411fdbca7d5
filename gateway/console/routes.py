"""Routes of the web console: its static files below `/console`, and its API below `/console/api/v1`."""

from collections.abc import Sequence
from typing import Final

from litestar import Router, delete, get, post

from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.console.agents import AgentOverviewHandlers
from babelgate.gateway.console.changes import ChangeHandlers
from babelgate.gateway.console.configuration import SettingHandlers
from babelgate.gateway.console.exchanges import ExchangeHandlers
from babelgate.gateway.console.gate import check_request
from babelgate.gateway.console.health import HealthHandlers
from babelgate.gateway.console.jobs import JobHandlers
from babelgate.gateway.console.looks import LookHandlers
from babelgate.gateway.console.me import IdentityHandlers
from babelgate.gateway.console.pages import PREFIX, PageHandlers
from babelgate.gateway.console.protocols import ProtocolHandlers
from babelgate.gateway.console.runs import RunOverviewHandlers
from babelgate.gateway.console.snippets import SnippetHandlers
from babelgate.gateway.console.threads import ThreadOverviewHandlers
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.port import GatewayPort

API: Final = "/api/v1"
"""Path of the API below `/console`."""


def console_routes(hub: GatewayHub, guarded_hub: GuardedHub, port: GatewayPort) -> Sequence[Router]:
    """Return the routes of the console: its files, and its API. `guarded_hub` checks each call of a caller, and `hub`
    does not."""
    pages, identity, settings = PageHandlers(), IdentityHandlers(hub, port), SettingHandlers(port)
    looks, protocols, snippets = LookHandlers(guarded_hub), ProtocolHandlers(), SnippetHandlers(guarded_hub)
    exchanges = ExchangeHandlers(hub, guarded_hub, port)
    runs, threads = RunOverviewHandlers(hub, guarded_hub), ThreadOverviewHandlers(guarded_hub)
    jobs = JobHandlers(hub, guarded_hub, port)
    agents = AgentOverviewHandlers(hub, guarded_hub, jobs.store.checks_of)
    changes = ChangeHandlers(hub, guarded_hub)
    health = HealthHandlers(hub, guarded_hub, port)
    run, thread, job = "/runs/{run_id:str}", "/threads/{thread_id:str}", "/jobs/{job_id:str}"
    api = Router(
        f"{PREFIX}{API}",
        before_request=check_request,
        route_handlers=[
            get("/me")(identity.get_me),
            get("/protocols")(protocols.list_protocols),
            get("/settings")(settings.list_settings),
            get("/agents")(agents.list_agents),
            get("/agents/{name:str}")(agents.get_agent),
            get("/agents/{name:str}/snippets")(snippets.list_snippets),
            get("/changes")(changes.follow_changes),
            get("/health")(health.get_health),
            get("/runs")(runs.list_runs),
            get(run)(runs.get_run),
            get(f"{run}/records")(runs.list_records),
            get(f"{run}/looks")(looks.list_looks),
            get(f"{run}/exchanges")(exchanges.list_exchanges),
            get(f"{run}/exchanges/{{number:str}}")(exchanges.get_exchange),
            get("/threads")(threads.list_threads),
            get(thread)(threads.get_thread),
            get(f"{thread}/revisions")(threads.list_revisions),
            post("/jobs", status_code=202)(jobs.create_job),
            get("/jobs")(jobs.list_jobs),
            get(job)(jobs.get_job),
            delete(job, status_code=200)(jobs.delete_job),
            get(f"{job}/report.html")(jobs.get_html),
            get(f"{job}/junit.xml")(jobs.get_junit),
        ],
    )
    files = Router(PREFIX, route_handlers=[get("/")(pages.get_page), get("/{file:path}")(pages.get_file)])
    return [files, api]  # not one inside the other: each router copies its handlers
