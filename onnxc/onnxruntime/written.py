"""Files that programs ask for: they appear whole, and where they cannot the error is ONNX Runtime's, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..codegen.library.files import check_output, replacing
from ..errors import CompileError
from .failures import InvalidArgument, translated


def require_place(path: str | os.PathLike[str]) -> None:
    """InvalidArgument at once if the file could not be written in the end."""
    with _refused():
        check_output(Path(path))


def write(path: str | os.PathLike[str], content: bytes) -> None:
    """Makes this the content of the file; InvalidArgument where that cannot be."""
    require_place(path)
    with _refused(), replacing(Path(path)) as (new,):
        new.write_bytes(content)


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except CompileError as error:
        raise translated(error, kind=InvalidArgument) from None
