"""Reload of the configuration by `babelgate serve`: on SIGHUP, and when a file changes."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import watchfiles

from babelgate.gateway.background import Failures, Tasks
from babelgate.gateway.cli.listener import is_loopback
from babelgate.gateway.cli.log import hide_in_log
from babelgate.gateway.http.generations import Generations
from babelgate.gateway.settings.certificates import file_digests
from babelgate.gateway.settings.load import (
    ConfigError,
    check_certificates,
    check_files,
    find_sources,
    list_files,
    load,
)
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.settings.tls import digest_file

log = logging.getLogger("babelgate.reload")

_awatch: Final[Callable[..., AsyncGenerator[Any]]] = cast("Any", watchfiles).awatch

_QUIET: Final = 0.2
"""Seconds for which changed files must stay the same before they are read. Chosen: programs may write in steps."""
_DEBOUNCE: Final = 100
"""Milliseconds for which notices of changes are collected. Chosen, not measured."""
_LOOK: Final = 5.0
"""Seconds after which the files are compared without a notice of the file system. Chosen, not measured: network file
systems send no notices."""
_STOP: Final = 1.0
"""Seconds that the tasks for reloads have to end at the shutdown. Chosen, not measured."""


class ConfigSource:
    """Source of a gateway's settings: a configuration file, environment variables and options of the command line."""

    def __init__(self, path: Path | None, flags: Mapping[str, Any]) -> None:
        """Create the source. `path` is the configuration file; None means that there is none. `flags` are the
        options."""
        self.path = path
        self._flags = flags
        self.digests: Mapping[Path, bytes] = {}
        """Digests of the configuration, certificate and key files when they were last read, by path."""
        self._certificates: Sequence[Path] = ()
        """Certificate files that the settings named when they were last read without a mistake."""
        self.sources: Mapping[str, str] = {}
        """Source of each setting that is not at its default, by its key, when the settings were last read without a
        mistake."""
        self._key_files: Sequence[Path] = ()
        """Files in `signing.keys` when the settings were last read."""
        self._secrets: Sequence[str] = ()
        """Secrets that were read from files when the settings were last read without a mistake. The log hides them."""

    def load_for_start(self) -> Settings:
        """Read and check the settings for the start of a gateway. Raises ConfigError for invalid settings.

        A missing file of an agent is no error: the agent is listed as broken later.
        """
        configuration = {path: digest_file(path) for path in list_files(self.path)}
        keys = {path: digest_file(path) for path in self._key_files}
        self.digests = {**configuration, **keys, **{path: digest_file(path) for path in self._certificates}}
        settings = load(self.path, self._flags)
        if settings.signing.keys != self._key_files:  # only the settings name them: their digests come before the load
            self._key_files = settings.signing.keys
            return self.load_for_start()
        certificates = file_digests(settings)
        self._certificates = [*certificates]
        self.digests = {**configuration, **keys, **certificates}
        # Also the earlier ones: what works with the earlier settings may still log them.
        hide_in_log([*self._secrets, *settings.references.secrets])
        self._secrets = settings.references.secrets
        check_exposure(settings)
        check_certificates(settings, self.path, self._flags)
        self.sources = find_sources(self.path, self._flags)
        return settings

    def load(self) -> Settings:
        """Read and check the settings as `babelgate validate` does, including the files of agents. Raises ConfigError
        for invalid settings."""
        settings = self.load_for_start()
        check_files(self.path, self._flags)
        return settings

    def compute_digests(self) -> Mapping[Path, bytes]:
        """Return the digests of the configuration, certificate and key files as they are now, by path."""
        return {path: digest_file(path) for path in self._list_files()}

    def _list_files(self) -> Sequence[Path]:
        return [*list_files(self.path), *self._key_files, *self._certificates]

    def list_folders(self) -> Sequence[Path]:
        """Return the folders to watch for changes of the configuration, certificate and key files.

        The folder of a file is watched, and not the file: a rename or a new target of a link replaces the file.
        """
        folders = {folder for path in self._list_files() for folder in (path.parent, path.resolve().parent)}
        return sorted(folder.absolute() for folder in folders if folder.is_dir())


def check_exposure(settings: Settings) -> None:
    """Check that a gateway which other machines can reach requires a credential, or allows anonymous callers
    explicitly. Raises ConfigError if it does neither."""
    if settings.has_credentials or settings.allow_anonymous or is_loopback(settings.host):
        return
    raise ConfigError(
        f"{settings.host} can be reached by others and there are no API keys: set keys in the configuration or in "
        "BABELGATE_KEYS, or let anyone in with --allow-anonymous"
    )


class Reloader:
    """Reloads of the configuration in one gateway process, one at a time. Requests that arrive during a reload cause
    one more."""

    def __init__(self, source: ConfigSource, generations: Generations) -> None:
        self._source = source
        self._generations = generations
        self._requested = asyncio.Event()
        self._failures = Failures("the reload of the configuration")

    async def catch_up(self, *, is_due: bool) -> None:
        """Reload the configuration now if `is_due`, or if `watch` is set and a file has changed since it was read."""
        is_watching = self._generations.current.settings.watch
        if is_due or (is_watching and await asyncio.to_thread(self._source.compute_digests) != self._source.digests):
            await self._generations.reload()

    def request(self) -> None:
        """Request a reload, which starts as soon as no other one is running."""
        self._requested.set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Reload the configuration within the context when it is requested, and with `watch` when a file changes."""
        tasks = Tasks()
        tasks.spawn(self._reload_forever(), "reload")
        if self._generations.current.settings.watch and self._source.list_folders():
            tasks.spawn(self._watch_forever(), "watch of the configuration")
        try:
            yield
        finally:
            await tasks.stop(_STOP)

    async def _reload_forever(self) -> None:
        while True:
            await self._requested.wait()
            self._requested.clear()
            try:
                await self._generations.reload()
            except Exception as error:
                self._failures.note(error)

    async def _watch_forever(self) -> None:
        while True:
            folders = await asyncio.to_thread(self._source.list_folders)
            stop = asyncio.Event()
            async for _ in _awatch(
                *folders,
                watch_filter=None,
                recursive=False,
                debounce=_DEBOUNCE,
                stop_event=stop,
                rust_timeout=int(_LOOK * 1000),
                yield_on_timeout=True,
                ignore_permission_denied=True,
            ):
                if await self._has_changed():
                    self.request()
                if await asyncio.to_thread(self._source.list_folders) != folders:
                    stop.set()

    async def _has_changed(self) -> bool:
        """Return True if the files differ from their state when they were last read. If they are still changing, wait
        until they have not changed for 0.2 seconds."""
        digests = await asyncio.to_thread(self._source.compute_digests)
        while digests != self._source.digests:
            await asyncio.sleep(_QUIET)
            before, digests = digests, await asyncio.to_thread(self._source.compute_digests)
            if digests == before:
                return digests != self._source.digests
        return False
