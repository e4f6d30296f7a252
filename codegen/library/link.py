"""From objects, weights and model.c to one library: the C compiler, and files that appear whole.

The compiler is asked with argument lists, never through a shell, and with a time limit; what it
complains of is in the error. Weights enter by `.incbin`, or stay in a file of their own. Outputs are
written under other names beside their places, flushed and renamed, so that a reader finds the old
files, the new ones, or none.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import platform
import secrets
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import CompileError, Origin
from ...loading.trailer import append_trailer
from ...target import Target
from .model_c import RUNTIME, weights_assembly

TIMEOUT = 600  # seconds, for one call of the compiler
TAIL_BYTES = 600  # of what a failing compiler printed
WEIGHTS_SECTION = ".onnxc_weights"
SHARED = (
    "-shared",
    "-Wl,-z,noexecstack",
    "-Wl,-z,relro",
    "-Wl,--gc-sections",
    "-Wl,--as-needed",
    "-Wl,--build-id=none",
    "-Wl,-s",
    "-pthread",
)
LIBRARIES = ("-lm", "-ldl")


def find_compiler() -> tuple[str, ...]:
    """The C compiler as the beginning of an argument list: $CC, cc, gcc, clang, or `zig cc`."""
    chosen = shlex.split(os.environ.get("CC", ""))
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise CompileError(f"the C compiler '{chosen[0]}' named by CC is not there")
        return tuple(chosen)
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise CompileError(
        "no C compiler was found", remedy="install gcc or clang, or `pip install ziglang`, or set CC"
    )


# Running the compiler -------------------------------------------------------------------------------


@dataclass
class Process:
    """A compiler at work: `wait` returns what it makes."""

    process: subprocess.Popen
    command: Sequence[str]
    errors: Path
    result: Path

    def wait(self, timeout: float = TIMEOUT) -> Path:
        """The file that was to be made; CompileError when the compiler fails or takes too long."""
        name = _name(self.command)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            raise CompileError(f"'{name}' did not finish within {timeout:g} seconds") from None
        if code == 0 and self.result.exists():
            return self.result
        how = f"was ended by signal {-code}" if code < 0 else f"failed with status {code}"
        with open(self.errors, "rb") as file:
            file.seek(max(0, os.path.getsize(self.errors) - TAIL_BYTES))
            tail = " | ".join(file.read().decode(errors="replace").strip().splitlines())
        raise CompileError(f"'{name}' {how}: {tail or 'it printed nothing'}")

    def stop(self) -> None:
        """Ends the compiler and the processes that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def start(command: Sequence[str], result: Path, directory: Path) -> Process:
    """Starts a command that makes `result`; it runs in `directory` and in a process group of its own."""
    errors = directory / f"{result.name}.stderr"
    try:
        with open(errors, "wb") as stream:
            process = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
    except OSError as error:
        raise CompileError(f"'{command[0]}' cannot be run: {error.strerror}") from None
    return Process(process, command, errors, result)


def _name(command: Sequence[str]) -> str:
    """What messages call a compiler."""
    return "zig cc" if _is_zig(command) else os.path.basename(command[0])


def _is_zig(command: Sequence[str]) -> bool:
    return "ziglang" in command or os.path.basename(command[0]) == "zig"


def target_flags(compiler: Sequence[str], target: Target) -> tuple[str, ...]:
    """What tells the compiler to make code for the target's kind of machine."""
    machine, _, system = target.triple.partition("-")
    if _is_zig(compiler):
        return ("-target", f"{machine}-{system.removeprefix('unknown-')}")
    if machine == platform.machine() and sys.platform in system:
        return ()
    if "clang" in os.path.basename(compiler[0]):
        return (f"--target={target.triple}",)
    if machine in os.path.basename(compiler[0]):
        return ()
    raise CompileError(
        f"'{_name(compiler)}' compiles for this machine, not for {target.name}",
        remedy="install clang or `pip install ziglang`, or set CC to a cross compiler",
    )


def start_compile(
    source: str, directory: Path, target: Target, *, kind: str = "so", compiler: Sequence[str] | None = None
) -> Process:
    """Begins compiling a model.c while other work goes on."""
    compiler = compiler or find_compiler()
    path, result = directory / "model.c", directory / "model_c.o"
    path.write_text(source, encoding="ascii")
    shared = ["-DONNXC_SHARED"] if kind == "so" else []
    return start(
        [
            *compiler,
            "-c",
            "-std=c11",
            "-D_GNU_SOURCE",
            "-O2",
            "-fPIC",
            "-w",
            "-pthread",
            "-fvisibility=hidden",
            "-ffunction-sections",
            "-fdata-sections",
            "-g0",
            *shared,
            *target_flags(compiler, target),
            f"-I{RUNTIME}",
            str(path),
            "-o",
            str(result),
        ],
        result,
        directory,
    )


# Writing files ----------------------------------------------------------------------------------------


def check_output(path: Path) -> None:
    """Raise CompileError at once if `path` could not be written in the end."""
    origin = Origin(file=os.fspath(path))
    try:
        parent = path.resolve().parent
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a link to itself
        raise CompileError(
            f"cannot be written: {getattr(error, 'strerror', None) or error}", origin=origin
        ) from None
    if not parent.is_dir():
        raise CompileError(f"its folder '{parent}' does not exist", origin=origin)
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise CompileError(f"is {kind}, not a place for a file", origin=origin)
    try:
        _create_beside(path).unlink()
    except OSError as error:
        raise CompileError(
            f"its folder '{parent}' cannot be written: {error.strerror}", origin=origin
        ) from None


def _create_beside(path: Path) -> Path:
    """A new empty file in the folder of `path`."""
    made = _beside(path.resolve())
    os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return made


def _beside(path: Path) -> Path:
    """A name of no file in the folder of `path`."""
    return path.parent / f".onnxc-{secrets.token_hex(8)}.tmp"


@contextlib.contextmanager
def replacing(*paths: Path):
    """Gives a new name beside each path; when the block is done the files there take the places of all
    paths, or of none.

    Nothing is left behind by a block that fails."""
    places = [Path(path).resolve() for path in paths]
    temporaries: list[Path] = []
    try:
        for place in places:
            temporaries.append(_create_beside(place))
        yield temporaries
        for temporary in temporaries:
            _flush(temporary)
        _rename(temporaries, places)
    except OSError as error:
        raise CompileError(
            f"cannot be written: {error.strerror or error}",
            origin=Origin(file=_blamed(error, temporaries, paths)),
        ) from error
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)


def _blamed(error: OSError, temporaries: Sequence[Path], paths: Sequence[Path]) -> str:
    """The output that an error is about, as the caller calls it; the first where nothing tells."""
    names = map(os.fspath, temporaries)
    return os.fspath(next((path for name, path in zip(names, paths) if name == error.filename), paths[0]))


def _flush(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _rename(sources: Sequence[Path], places: Sequence[Path]) -> None:
    """Renames all files or none. Who renames several holds a lock on the folder of the last, so that the
    files of two compilations do not mix."""
    folders = dict.fromkeys(place.parent for place in places)
    renamed: list[tuple[Path, Path | None]] = []
    with _locked(places[-1].parent) if len(places) > 1 else contextlib.nullcontext():
        try:
            for source, place in zip(sources, places):
                old = _kept(place) if len(places) > 1 else None
                renamed.append((place, old))
                os.replace(source, place)
            for folder in folders:
                _flush(folder)
        except BaseException:
            for place, old in reversed(renamed):
                with contextlib.suppress(OSError):
                    place.unlink() if old is None else os.replace(old, place)
            raise
        finally:
            for _, old in renamed:
                if old is not None:
                    old.unlink(missing_ok=True)


def _kept(path: Path) -> Path | None:
    """Another name for the file at `path`; None where there is no file."""
    other = _beside(path)
    try:
        os.link(path, other)
    except FileNotFoundError:
        return None
    except OSError:  # a file system without links
        os.rename(path, other)
    return other


@contextlib.contextmanager
def _locked(folder: Path):
    file = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


# Linking ----------------------------------------------------------------------------------------------


def link(
    objects: Sequence[Path],
    model_c: str | Process,
    weights: Path | None,
    output: Path,
    *,
    directory: Path,
    kind: str,
    prefix: str,
    target: Target,
    compiler: Sequence[str] | None = None,
    timeout: float = TIMEOUT,
) -> None:
    """Links LLVM's objects, model.c (its text, or as `start_compile` returned it) and the weights into the
    file `output`: one object for static linking if `kind` is `o`, a shared library if it is `so`.

    directory: where the compiler works and the file of weights lies. weights: None where the library
    has none in it."""
    compiler = compiler or find_compiler()
    if isinstance(model_c, str):
        model_c = start_compile(model_c, directory, target, kind=kind, compiler=compiler)
    tools = _Tools(tuple(compiler), target_flags(compiler, target), directory, timeout)
    parts = [*objects]
    if weights is not None:
        parts.append(_weights_object(weights, prefix, tools))
    parts.append(model_c.wait(timeout))
    if kind == "o":
        _link_object(parts, output, prefix, tools)
    else:
        _link_shared(parts, output, prefix, tools)


def output_kind(output: Path) -> str:
    """`o` for one object, `so` for a shared library."""
    return "o" if output.suffix == ".o" else "so"


@dataclass(frozen=True)
class _Tools:
    """The compiler with its flags for the target, where it works and how long it may."""

    compiler: tuple[str, ...]
    flags: tuple[str, ...]
    directory: Path
    timeout: float

    def run(self, *arguments: str, result: Path) -> Path:
        command = [*self.compiler, *self.flags, *arguments, "-o", str(result)]
        return start(command, result, self.directory).wait(self.timeout)


def _weights_object(weights: Path, prefix: str, tools: _Tools) -> Path:
    source = tools.directory / "weights.s"
    source.write_text(weights_assembly(prefix, weights.name), encoding="ascii")
    return tools.run("-c", str(source), result=tools.directory / "weights.o")


def _link_shared(parts: Sequence[Path], output: Path, prefix: str, tools: _Tools) -> None:
    exports = f"{{ global: {prefix}_model; onnxc_model; local: *; }};\n"
    (tools.directory / "exports.map").write_text(exports, encoding="ascii")
    script = "-Wl,--version-script=exports.map"  # relative: a comma in the folder's name would cut it
    tools.run(*SHARED, script, *map(str, parts), *LIBRARIES, result=output)
    append_trailer(output, section_range(output, WEIGHTS_SECTION))


def _link_object(parts: Sequence[Path], output: Path, prefix: str, tools: _Tools) -> None:
    """One object of many. Its hidden symbols begin with the prefix; where `objcopy` is there they
    become local, so that even models of one prefix clash in nothing but the entry."""
    tools.run("-r", "-nostdlib", *map(str, parts), result=output)
    for objcopy in filter(None, map(shutil.which, ("objcopy", "llvm-objcopy"))):
        localise = [objcopy, f"--keep-global-symbol={prefix}_model", "--strip-unneeded", str(output)]
        with contextlib.suppress(CompileError):  # one for another machine does not know the format
            start(localise, output, tools.directory).wait(tools.timeout)
            return


def section_range(path: Path, name: str) -> tuple[int, int]:
    """(offset, length) in the file of an ELF section; (0, 0) when there is none or it is no ELF file."""
    with open(path, "rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
            return 0, 0
        (table,) = struct.unpack_from("<Q", head, 40)
        entry, count, names = struct.unpack_from("<HHH", head, 58)
        file.seek(table)
        sections = file.read(entry * count)
        fields = [struct.unpack_from("<IIQQQQ", sections, entry * k) for k in range(count)]
        file.seek(fields[names][4])
        strings = file.read(fields[names][5])
        for start_of_name, _, _, _, offset, length in fields:
            if strings[start_of_name : strings.index(b"\0", start_of_name)] == name.encode():
                return offset, length
    return 0, 0
