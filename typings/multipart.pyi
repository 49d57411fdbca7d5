"""What is used of multipart 2.0. The module is installed, but a package of python-multipart, which is of the same name
and loads it, hides it from the type checker."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

class MultipartError(ValueError): ...

class MultipartSegment:
    headerlist: list[tuple[str, str]]
    name: str
    filename: str | None
    content_type: str | None

class PushMultipartParser:
    closed: bool
    def __init__(
        self,
        boundary: str | bytes,
        *,
        header_charset: str = ...,
        max_segment_size: int | float = ...,
        max_segment_count: int | float = ...,
        max_header_size: int = ...,
        max_header_count: int = ...,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def parse(self, chunk: bytes | bytearray) -> Iterator[MultipartSegment | bytearray | None]: ...
