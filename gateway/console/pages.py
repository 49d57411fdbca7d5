"""Static files of the console, which are served from memory.

The page itself is `/console/`, which browsers revalidate. All other files are below `/console/{digest}/`, where the
digest is that of their content: browsers cache them, and a new version has new URLs. Litestar's own router for static
files would answer revalidations with 200, derive its ETags from the times of files, and not compress.
"""

import gzip
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from litestar import Response
from litestar.params import FromPath

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError

PREFIX: Final = "/console"
DOCS: Final = "/docs"
"""Path that redirects to the page of the OpenAPI documents."""
FOLDER: Final = Path(__file__).parent / "static"
_INDEX: Final = "index.html"
_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
"""Content types by the suffix of a file. Files with other suffixes are not served."""
_MODULE: Final = re.compile(rb'"\./([^"]+\.js)"')
"""Reference to a JavaScript module in the HTML page."""
_IMPORT: Final = re.compile(
    rb"""^(?:import\s*|(?:import|export)\b[^'"`;()=]*?\bfrom\s*)['"](\.[^'"]+)['"]""", re.MULTILINE
)
"""Static import in a JavaScript module, which the browser loads together with the module."""
_PATH: Final = re.compile(r"/console(/|/[0-9a-f]{16}(/[\w-][\w.-]*)+)?")
"""Paths that may be those of static files of the console, after the middleware has normalized them."""
_CONSOLE: Final = re.compile(r"(/agent/[^/]+)?/console(/|$)")
_SWITCHED: Final = re.compile(r"/+(console(/.*)?|docs/*)", re.DOTALL)
_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data: blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "vary": "Accept-Encoding",
    "x-content-type-options": "nosniff",
}
_REVALIDATED: Final = "no-cache"
_IMMUTABLE: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class StaticFile:
    """Static file of the console, with the headers of its response."""

    content: bytes
    media_type: str
    etag: str
    cache_control: str

    @classmethod
    def of(cls, content: bytes, suffix: str, cache_control: str) -> "StaticFile":
        """Return a file with this content. `suffix` decides its content type."""
        return cls(content, _TYPES[suffix], f'"{_digest(content)}"', cache_control)

    @cached_property
    def gzip_content(self) -> bytes:
        """Content compressed by gzip, at the first use. A process that never serves the page saves 12 ms (measured: 100
        files, 2026-11)."""
        return gzip.compress(self.content, compresslevel=9, mtime=0)


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def read_files(folder: Path = FOLDER) -> Mapping[str, StaticFile]:
    """Return the static files in a folder by their paths below `/console/`. The path of the page is empty.

    In the page, each reference that begins with `./` gets the digest of all other files. The page preloads everything
    that its modules import. Otherwise the browser finds imports level by level, and each level takes a round trip.
    """
    contents = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in _TYPES and path.is_file()
    }
    page = contents.pop(_INDEX)
    digest = _digest(b"".join(b"%s\0%d\0%s" % (name.encode(), len(each), each) for name, each in contents.items()))
    files = {
        f"{digest}/{name}": StaticFile.of(content, Path(name).suffix, _IMMUTABLE) for name, content in contents.items()
    }
    page = _preload(page, contents).replace(b'"./', f'"{digest}/'.encode())
    return {"": StaticFile.of(page, ".html", _REVALIDATED), **files}


def _preload(page: bytes, contents: Mapping[str, bytes]) -> bytes:
    """Return the HTML page with a preload link for each module that its modules import, directly or indirectly.

    The links follow the module that needs them, the nearest first. So a module that is early in the page runs early.
    """
    lines = list[bytes]()
    linked = {found[1].decode() for found in _MODULE.finditer(page)}
    for line in page.splitlines(keepends=True):
        lines.append(line)
        modules = [found[1].decode() for found in _MODULE.finditer(line)]
        for module in modules:  # grows meanwhile
            for found in _IMPORT.finditer(contents.get(module, b"")):
                path = posixpath.normpath(f"{posixpath.dirname(module)}/{found[1].decode()}").lstrip("/")
                if path in contents and path not in linked:
                    linked.add(path)
                    modules.append(path)
                    lines.append(b'    <link rel="modulepreload" href="./%s">\n' % path.encode())
    return b"".join(lines)


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Return the static files of the console by their paths. They are read at the first call, so a gateway without a
    console reads none."""
    return read_files()


def is_console(path: str) -> bool:
    """Return True if a path belongs to the console, also below `/agent/{name}`."""
    return _CONSOLE.match(path) is not None


def is_switched(path: str) -> bool:
    """Return True if a path does not exist with the setting `console: false`. `path` has no prefix `/agent/{name}`.
    Empty segments are ignored, as in the router."""
    return _SWITCHED.fullmatch(path) is not None


def is_static(path: str) -> bool:
    """Return True if a path may be that of a static file of the console. Such a path needs no credential."""
    return _PATH.fullmatch(path) is not None


class PageHandlers(Handlers):
    """HTTP handlers of the console's static files."""

    async def get_page(self, request: AnyRequest) -> Response[Any]:
        """Return the page, or a redirect to the URL with a slash, to which the URLs in the page are relative."""
        if not request.scope["raw_path"].endswith(b"/"):
            # Relative, because a proxy in front of the gateway may have added a prefix.
            return Response(b"", status_code=307, headers={"location": f"{PREFIX[1:]}/"}, media_type="text/html")
        return _answer(request, static_files()[""])

    async def get_file(self, request: AnyRequest, file: FromPath[str]) -> Response[Any]:
        """Return a file. Raises not_found."""
        found = static_files().get(file.removeprefix("/"))
        if found is None:
            raise FaultError(
                FaultCode.NOT_FOUND, "The console has no such path. After an update of the gateway, reload the page."
            )
        return _answer(request, found)


def _answer(request: AnyRequest, file: StaticFile) -> Response[Any]:
    headers = {**_HEADERS, "etag": file.etag, "cache-control": file.cache_control}
    if _has(request.headers.get("if-none-match", ""), file.etag):
        return Response(None, status_code=304, headers=headers)
    content = file.content
    if _accepts_gzip(request.headers.get("accept-encoding", "")):
        content, headers["content-encoding"] = file.gzip_content, "gzip"
    return Response(content, headers=headers, media_type=file.media_type)


def _has(header: str, etag: str) -> bool:
    """Return True if an If-None-Match header names the ETag. The comparison is weak (RFC 9110, 13.1.2)."""
    return any(each.strip().removeprefix("W/") in (etag, "*") for each in header.split(","))


def _accepts_gzip(header: str) -> bool:
    for each in header.lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() in ("gzip", "*"):
            return not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", weight)
    return False
