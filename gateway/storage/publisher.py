"""Publication of commits on the event loop: first to the row cache, then to the readers, then to the callers of the
commands."""

from collections.abc import Callable, Sequence

from babelgate.gateway.storage.change_feed import ChangeFeed
from babelgate.gateway.storage.live import Channels
from babelgate.gateway.storage.row_cache import RowCache
from babelgate.gateway.storage.transaction import Published
from babelgate.gateway.storage.write_queue import Commit


class Publisher:
    """Distributor of the outcome of each group commit of this process. Used only on the event loop.

    It updates the row cache `rows`, passes the new records to the followers of their threads and to the hub, and gives
    each command its result.
    """

    def __init__(
        self, channels: Channels, changes: ChangeFeed, on_commit: Callable[[Sequence[Published]], None] | None
    ) -> None:
        """Create a publisher. It passes records to `channels`, from which the readers of threads take them, and then to
        `on_commit`. It passes changed rows to `changes`, from which the console's lists get hints."""
        self.rows = RowCache()
        self._channels = channels
        self._changes = changes
        self._on_commit = on_commit

    def publish(self, commit: Commit) -> None:
        """Publish the outcome of a group, and resolve the futures of its commands. Called on the event loop."""
        self.rows.apply(commit.changed)
        if commit.published:
            for each in commit.published:
                self._channels.publish(each.pk, each.records, each.sizes)
            if self._on_commit is not None:
                self._on_commit(commit.published)
        if self._changes.has_streams:
            self._changes.note_rows(commit.changed)
        for result in commit.results:
            done = result.write.done
            if done.done():
                continue
            if result.error is None:
                done.set_result(result.value)
            else:
                done.set_exception(result.error)
