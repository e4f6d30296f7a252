"""The runtime's object: compiled once for all models, and kept in the user's cache.

An entry is named by all that it depends on: the runtime's sources, the compiler with its flags and what they
name, the environment that a compiler reads, the target's kind of machine. The first time it is compiled while
the rest goes on; so it is each time where there is no cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from ... import cache as user_cache
from ...records import dataclass
from ...target import Target
from .compiler import TIMEOUT, Process, find_compiler, start, target_flags

SOURCES = Path(__file__).resolve().parents[2] / "runtime_c"
HEADERS = SOURCES / "include"  # what programs and operators of their own include
FLAGS = (
    "-c",
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O2",
    "-fno-trapping-math",  # nobody reads which exceptions there were: comparisons may be vectors
    "-fPIC",
    "-w",
    "-pthread",
    "-fvisibility=hidden",
    "-ffunction-sections",
    "-fdata-sections",
    "-g0",
)
#: What changes the result of a compiler beside its arguments.
VARIABLES = (
    "CPATH",
    "C_INCLUDE_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "CCC_OVERRIDE_OPTIONS",
    "SDKROOT",
    "SOURCE_DATE_EPOCH",
)
PREFIX = "onnxc__0000000000000000_"  # of names of the runtime (runtime_c/internal.h) and kernels, as compiled


def local_prefix(kind: str, prefix: str) -> str:
    """What names begin with that PREFIX begins as they are compiled, and that are a library's own: for static
    linking (kinds `o` and `a`) there is a digest of the model's prefix in them, as long as PREFIX."""
    return PREFIX if kind == "so" else _prefix_of(hashlib.sha256(prefix.encode()).hexdigest())


def runtime_prefix(kind: str, prefix: str) -> str | None:
    """What the runtime's names begin with in a library. None for an archive: a digest of what the runtime is
    made of, so that archives share it where it is the same."""
    return None if kind == "a" else local_prefix(kind, prefix)


def _prefix_of(digest: str) -> str:
    return f"onnxc__{digest[:16]}_"


def rename(path: Path, names: str) -> Path:
    """Has the names in the object at `path` that begin with PREFIX begin with `names`, which is as long."""
    if names != PREFIX:
        path.write_bytes(path.read_bytes().replace(PREFIX.encode(), names.encode()))
    return path


@dataclass
class Runtime:
    """The runtime's object, there or in the making."""

    path: Path
    names: str  # what its symbols begin with
    entry: Path | None = None  # where it is to be kept
    process: Process | None = None

    def wait(self, timeout: float = TIMEOUT) -> Path:
        """The object; CompileError when the compiler fails or takes too long."""
        if self.process is not None:
            self.process.wait(timeout)
            self.process = None
            if self.entry is not None:
                user_cache.keep(self.path, self.entry)
        return rename(self.path, self.names)


@contextlib.contextmanager
def start_runtime(
    directory: Path, target: Target, names: str | None = PREFIX, flags: Sequence[str] = ()
) -> Iterator[Runtime]:
    """The runtime for the target as an object in `directory`: from the cache, or being compiled while other
    work goes on; leaving the block by an error ends its compilation. names: what its symbols begin with
    (`runtime_prefix`). flags: further ones for the compiler."""
    compiler = find_compiler(target)
    arguments = (*compiler, *FLAGS, *flags, *target_flags(compiler, target))
    key = _key(arguments)
    made = directory / ("runtime.o" if names else f"onnxc-runtime-{key[:16]}.o")
    names = names or _prefix_of(key)
    folder = user_cache.usable_cache_folder()
    entry = folder and folder / f"runtime-{key}.o"
    if entry is not None and user_cache.fetch(entry, made):
        yield Runtime(made, names)
        return
    # An entry that was not whole would be left by a compiler that does nothing.
    made.unlink(missing_ok=True)
    command = [*arguments, f"-I{HEADERS}", str(SOURCES / "runtime.c"), "-o", str(made)]
    runtime = Runtime(made, names, entry)
    try:
        runtime.process = start(command, made, directory)
        yield runtime
    except BaseException:
        if runtime.process is not None:
            runtime.process.stop()
        raise


def _key(arguments: Sequence[str]) -> str:
    """A name for what the compiler makes of the runtime with these arguments."""
    words = [repr((word, _identity(word))) for word in arguments]
    words += [f"{name}={os.environ.get(name)}" for name in VARIABLES]
    return hashlib.sha256(
        "\n".join((*words, _sources_digest())).encode("utf-8", "surrogateescape")
    ).hexdigest()[:40]


def _identity(word: str) -> tuple[int, int] | None:
    """What tells a program or file that an argument names from another version of it."""
    if word.startswith("-"):
        return None
    package = importlib.util.find_spec(word) if word == "ziglang" else None
    try:
        status = os.stat((package and package.origin) or shutil.which(word) or word)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


@cache
def _sources_digest() -> str:
    digest = hashlib.sha256()
    for file in sorted(SOURCES.rglob("*.[ch]")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
