"""Reaction of the gateway to commits: its own, and those of other nodes."""

from collections.abc import Sequence

from babelgate.gateway.runs.cluster import Cluster
from babelgate.gateway.runs.expiry import Expiry
from babelgate.gateway.runs.run_reports import RunReports
from babelgate.gateway.runs.threads import ThreadCommands
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.reads import JournalReads
from babelgate.gateway.storage.transaction import Published


class CommitHandler:
    """Distributor of commits to the parts of the hub that react to them.

    The journal needs the handler before the parts exist, because the parts need the journal. So `connect` sets the
    parts, before the journal is opened.
    """

    def __init__(self) -> None:
        self._reads: JournalReads
        self._expiry: Expiry
        self._threads: ThreadCommands
        self._reports: RunReports
        self._cluster: Cluster | None = None

    def connect(
        self, reads: JournalReads, expiry: Expiry, threads: ThreadCommands, reports: RunReports, cluster: Cluster | None
    ) -> None:
        """Set the parts that follow commits. `cluster` is None for a single gateway."""
        self._reads, self._expiry, self._threads = reads, expiry, threads
        self._reports, self._cluster = reports, cluster

    def handle_commits(self, published: Sequence[Published]) -> None:
        """Pass the commits of this gateway to the parts that follow them: reads, expiry, reports and the cluster."""
        for commit in published:
            ended = self._reads.handle_commit(commit)
            self._expiry.handle_commit(commit)
            self._reports.handle_commit(commit)
            if self._cluster is not None and self._threads.has_in_process_agents:
                self._cluster.handle_commit(commit)
            for task_id in ended:
                self._threads.forget_paused(commit.owner, task_id)
        self._reads.trim()

    def handle_remotes(self, remotes: Sequence[Remote]) -> None:
        """Pass the commits of other nodes to the cluster, which applies them to this node's runs. Do nothing without a
        cluster."""
        if self._cluster is not None:
            self._cluster.handle_remotes(remotes)
