"""The C compiler: which one there is, and asking it.

It compiles the runtime (runtime.py) and links (link.py). It is asked with argument lists, never through a
shell, and with a time limit; the end of what it complains of is in the error. Whatever ends the wait for it
ends it, too.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from ... import cache as user_cache
from ...errors import CacheError, CompileError, quote
from ...records import dataclass
from ...target import Target

TIMEOUT = 600  # seconds, for one call of the compiler
OLDEST_GLIBC = "2.17"  # that what `zig cc` links runs with
TAIL_BYTES = 600  # of what a failing compiler printed
ZIG_CACHES = ("ZIG_GLOBAL_CACHE_DIR", "XDG_CACHE_HOME", "HOME")  # what tells where zig's cache is
REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # that a process end


def find_compiler(target: Target | None = None) -> tuple[str, ...]:
    """The C compiler that makes code for the target's kind of machine (None: this one) as the beginning of an
    argument list: $CC; cc, gcc, clang or `zig cc`; for others MACHINE-linux-gnu-gcc, `zig cc` or clang."""
    chosen = _words("CC")
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise CompileError(f"the C compiler {quote(chosen[0])} named by CC is not there")
        late = any(word.startswith("-flto") for word in chosen)  # which leaves no code in objects
        return (*chosen, "-fno-lto") if late else tuple(chosen)
    cross = None if target is None or _is_ours(target) else f"{_machine(target)}-linux-gnu-gcc"
    before, after = ((cross,), ("clang",)) if cross else (("cc", "gcc", "clang"), ())
    for name in before:
        if path := shutil.which(name):
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    for name in after:
        if path := shutil.which(name):
            return (path,)
    if target is not None and cross:
        raise CompileError(
            f"no C compiler for {target.name} was found",
            remedy=f"`pip install ziglang`, or install {cross}, or set CC",
        )
    raise CompileError(
        "no C compiler was found", remedy="install gcc or clang, or `pip install ziglang`, or set CC"
    )


def _words(variable: str) -> list[str]:
    """The command that a variable of the environment holds, as a shell reads it."""
    text = os.environ.get(variable, "")
    try:
        return shlex.split(text)
    except ValueError as error:  # a quotation that does not end
        raise CompileError(f"{variable}={quote(text)} is no command: {str(error).lower()}") from None


def _machine(target: Target) -> str:
    """The kind of machine, as compilers call it."""
    return target.triple.partition("-")[0]


def _is_ours(target: Target) -> bool:
    """Whether the target is of this kind of machine, whatever its processor has."""
    return _machine(target) == platform.machine() and sys.platform in target.triple


def find_archiver(compiler: Sequence[str]) -> tuple[str, ...]:
    """What makes static archives: zig's beside `zig cc`, else $AR, MACHINE-linux-gnu-ar beside the compiler
    of that name, ar or llvm-ar."""
    if _is_zig(compiler):
        return (*compiler[: compiler.index("cc")], "ar")
    kin = os.path.basename(compiler[0])
    own = [f"{kin.removesuffix('-gcc')}-ar"] * kin.endswith("-linux-gnu-gcc")
    for name in (*_words("AR")[:1], *own, "ar", "llvm-ar"):
        if path := shutil.which(name):
            return (path,)
    raise CompileError("no archiver was found", remedy="install binutils or llvm, or set AR")


def target_flags(compiler: Sequence[str], target: Target) -> tuple[str, ...]:
    """What tells the compiler to make code for the target's kind of machine; nothing where CC says it already
    (`zig cc -target MACHINE-linux-musl`)."""
    if any(word == "-target" or word.startswith("--target=") for word in compiler):
        return ()
    if _is_zig(compiler):
        return ("-target", f"{target.triple.replace('-unknown-', '-')}.{OLDEST_GLIBC}")
    if _is_ours(target):
        return ()
    if "clang" in os.path.basename(compiler[0]):
        return (f"--target={target.triple}",)
    if _machine(target) in os.path.basename(compiler[0]):
        return ()
    raise CompileError(
        f"'{_name(compiler)}' compiles for this machine, not for {target.name}",
        remedy=f"`pip install ziglang` and unset CC, or set it to a compiler for {_machine(target)}",
    )


def _name(command: Sequence[str]) -> str:
    """What messages call a compiler."""
    return "zig cc" if _is_zig(command) else os.path.basename(command[0])


def _is_zig(command: Sequence[str]) -> bool:
    return "ziglang" in command or os.path.basename(command[0]) == "zig"


def environment(command: Sequence[str]) -> dict[str, str]:
    """The variables with which a compiler is started. zig keeps what it compiles of the C library in the
    user's cache and fails where no variable tells where that is: then it is in ours."""
    found = dict(os.environ)
    if _is_zig(command) and not any(map(found.get, ZIG_CACHES)):
        with contextlib.suppress(CacheError):
            found[ZIG_CACHES[0]] = str(user_cache.writable_folder() / "zig")
    return found


@dataclass
class Process:
    """A compiler at work: `wait` returns what it makes."""

    process: subprocess.Popen
    command: Sequence[str]
    result: Path
    directory: Path

    def wait(self, timeout: float = TIMEOUT) -> Path:
        """The file that was to be made; CompileError when the compiler fails or takes too long."""
        name = _name(self.command)
        try:
            said, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            raise CompileError(f"'{name}' did not finish within {timeout:g} seconds") from None
        except BaseException:
            self.stop()
            raise
        code = self.process.returncode
        if code == 0 and self.result.exists():
            return self.result
        how = f"was ended by signal {-code}" if code < 0 else f"failed with status {code}"
        tail = " | ".join(said[-TAIL_BYTES:].decode(errors="replace").strip().splitlines())
        full = os.strerror(errno.ENOSPC)
        if full in tail:
            place = min(
                (self.result.parent, self.directory), key=lambda folder: shutil.disk_usage(folder).free
            )
            raise CompileError(f"{full} in the folder {place}: '{name}' {how}: {tail}") from OSError(
                errno.ENOSPC, full, os.fspath(place)
            )
        raise CompileError(f"'{name}' {how}: {tail or 'it printed nothing'}")

    def stop(self) -> None:
        """Ends the compiler and the processes that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        said = self.process.stdout
        if said is not None and not said.closed:  # as it is where the compiler was stopped before
            self.process.communicate()


@contextlib.contextmanager
def requests_later() -> Iterator[None]:
    """Has requests to end that Python code answers, an interruption among them, answered behind the block."""
    asked: dict[int, FrameType | None] = {}
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
    if threading.current_thread() is threading.main_thread():  # it alone is interrupted by them
        handlers = {number: how for number in REQUESTS if callable(how := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, asked.__setitem__)
    try:
        yield
    finally:
        for number, how in handlers.items():
            signal.signal(number, how)
        for number, frame in asked.items():
            handlers[number](number, frame)


def start(command: Sequence[str], result: Path, directory: Path) -> Process:
    """Starts a command that makes `result`; it runs in `directory`, which has its temporary files, and in a
    process group of its own."""
    started = None
    try:
        with requests_later():  # one in the midst of this would leave a process that nobody knows
            popen = subprocess.Popen(
                command,
                cwd=directory,
                env={**environment(command), "TMPDIR": os.fspath(directory)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            started = Process(popen, command, result, directory)
        return started
    except OSError as error:
        raise CompileError(f"'{command[0]}' cannot be run: {error.strerror}") from None
    except BaseException:
        if started is not None:
            started.stop()
        raise
