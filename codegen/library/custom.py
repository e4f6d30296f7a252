"""Operators that users bring in C: their source compiled, and what links them.

A C source becomes an object. Objects and archives become part of the library; a shared library is found again
at the same place from the library as it was compiled with.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import CompileError, Origin
from ...records import dataclass
from ...target import Target
from .compiler import find_compiler, start, target_flags
from .runtime import FLAGS, HEADERS

#: What the files begin with.
ELF, ARCHIVE = b"\x7fELF", b"!<arch>\n"
_SHARED = 3  # ELF's e_type of shared libraries


@dataclass(frozen=True)
class CustomCode:
    """A file with operators. object: what has their code and declarations: the file itself, or what its
    source was compiled to."""

    file: Path
    object: Path
    shared: bool = False

    def parts(self, kind: str) -> list[Path]:
        """What becomes part of an output of this kind (`link.output_kind`)."""
        return [] if self.shared else [self.object]

    def flags(self, kind: str, output: Path) -> list[str]:
        """How the linker finds a shared library, and the library that is made finds it later. Who links an
        object names shared libraries himself."""
        if not self.shared or kind != "so":
            return []
        folder = self.file.resolve().parent
        place = os.path.relpath(folder, output.resolve().parent)
        return [f"-L{folder}", f"-l:{self.file.name}", f"-Wl,-rpath,{os.path.join('$ORIGIN', place)}"]


def is_code(path: Path) -> bool:
    """Whether a file is a C source, or by what it begins with an object, an archive or a shared library."""
    if path.suffix == ".c":
        return True
    try:
        with open(path, "rb") as file:
            return file.read(8).startswith((ELF, ARCHIVE))
    except OSError as error:
        raise CompileError(
            f"it cannot be read: {error.strerror or error}", origin=Origin(os.fspath(path))
        ) from None


def custom_code(path: Path, directory: Path, target: Target) -> CustomCode:
    """The operators in a file; C source is compiled into `directory`. Raises CompileError where it cannot be
    compiled."""
    if path.suffix != ".c":
        with open(path, "rb") as file:
            head = file.read(18)
        return CustomCode(path, path, head[:4] == ELF and head[16:17] == bytes([_SHARED]))
    if not path.is_file():
        raise CompileError("there is no such file", origin=Origin(os.fspath(path)))
    compiler = find_compiler(target)
    made = directory / f"{path.stem}-{len(list(directory.iterdir()))}.o"
    command = [*compiler, *FLAGS, *target_flags(compiler, target), f"-I{HEADERS}"]
    try:
        start([*command, str(path.resolve()), "-o", str(made)], made, directory).wait()
    except CompileError as error:
        raise error.at(Origin(os.fspath(path))) from None
    return CustomCode(path, made)
