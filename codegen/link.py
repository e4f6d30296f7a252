"""From objects, weights and model.c to one library: the C compiler, and files that appear whole.

The compiler is asked with argument lists, never through a shell, and with a time limit; what it
complains of is in the error. Weights enter by `.incbin`. The output is written under another name
beside its place, given its trailer, flushed and renamed, so that a reader finds the old file, the
new one, or none.
"""

from __future__ import annotations

import contextlib
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

from ..errors import CompileError, Origin
from ..target import Target
from ..trailer import append_trailer
from .model_c import RUNTIME, weights_assembly

TIMEOUT = 600  # seconds, for one call of the compiler
TAIL_BYTES = 600  # of what a failing compiler printed
WEIGHTS_SECTION = ".onnxc_weights"
SIDE_FILE_MAGIC = b"ONNXCWTS"
SIDE_FILE_HEAD = 4096
SHARED = ("-shared", "-Wl,-z,noexecstack", "-Wl,-z,relro", "-Wl,--gc-sections", "-Wl,--as-needed",
          "-Wl,--build-id=none", "-Wl,-s", "-pthread")
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
    raise CompileError("no C compiler was found",
                       remedy="install gcc or clang, or `pip install ziglang`, or set CC")


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
        name = os.path.basename(self.command[0])
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
            process = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL,
                                       stdout=stream, stderr=stream, start_new_session=True)
    except OSError as error:
        raise CompileError(f"'{command[0]}' cannot be run: {error.strerror}") from None
    return Process(process, command, errors, result)


def target_flags(compiler: Sequence[str], target: Target) -> tuple[str, ...]:
    """What tells the compiler to make code for the target's kind of machine."""
    machine, _, system = target.triple.partition("-")
    if "ziglang" in compiler or os.path.basename(compiler[0]) == "zig":
        return ("-target", f"{machine}-{system.removeprefix('unknown-')}")
    if machine == platform.machine() and sys.platform in system:
        return ()
    if "clang" in os.path.basename(compiler[0]):
        return (f"--target={target.triple}",)
    if machine in os.path.basename(compiler[0]):
        return ()
    raise CompileError(f"'{os.path.basename(compiler[0])}' compiles for this machine, not for {target.name}",
                       remedy="install clang or `pip install ziglang`, or set CC to a cross compiler")


def start_compile(source: str, directory: Path, target: Target, *, kind: str = "so",
                  compiler: Sequence[str] | None = None) -> Process:
    """Begins compiling a model.c while other work goes on."""
    compiler = compiler or find_compiler()
    path, result = directory / "model.c", directory / "model_c.o"
    path.write_text(source, encoding="ascii")
    shared = ["-DONNXC_SHARED"] if kind == "so" else []
    return start([*compiler, "-c", "-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-w", "-pthread",
                  "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections", "-g0", *shared,
                  *target_flags(compiler, target), f"-I{RUNTIME}", str(path), "-o", str(result)],
                 result, directory)


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
        raise CompileError(f"cannot be written: {getattr(error, 'strerror', None) or error}",
                           origin=origin) from None
    if not parent.is_dir():
        raise CompileError(f"its folder '{parent}' does not exist", origin=origin)
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise CompileError(f"is {kind}, not a place for a library", origin=origin)
    try:
        _create_beside(path).unlink()
    except OSError as error:
        raise CompileError(f"its folder '{parent}' cannot be written: {error.strerror}",
                           origin=origin) from None


def _create_beside(path: Path) -> Path:
    """A new empty file in the folder of `path`."""
    made = path.resolve().parent / f".onnxc-{secrets.token_hex(8)}.tmp"
    os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return made


@contextlib.contextmanager
def replacing(path: Path):
    """Gives a new name beside `path`; when the block is done the file there takes the place of `path`.

    Nothing is left behind by a block that fails."""
    path, temporary = Path(path).resolve(), None
    try:
        temporary = _create_beside(path)
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
        _flush(path.parent)
    except OSError as error:
        raise CompileError(f"cannot be written: {error.strerror or error}",
                           origin=Origin(file=os.fspath(path))) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def write_beside(path: Path, data: bytes) -> None:
    """Writes a file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_weights_file(weights: Path, path: Path, digest: bytes) -> None:
    """Writes the side file of weights: a page with magic number, SHA-256 and length, then the bytes."""
    size = weights.stat().st_size
    head = SIDE_FILE_MAGIC + digest + struct.pack("<Q", size)
    with replacing(path) as temporary, open(weights, "rb") as source, open(temporary, "wb") as target:
        target.write(head.ljust(SIDE_FILE_HEAD, b"\0"))
        shutil.copyfileobj(source, target, 1 << 20)


# Linking ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Linked:
    """What was written: the file, its bytes in all, and those of them that are weights."""

    path: Path
    file_bytes: int
    weights_bytes: int


def link(objects: Sequence[Path], model_c: str | Process, weights: Path, output: Path, *, prefix: str,
         target: Target, compiler: Sequence[str] | None = None, timeout: float = TIMEOUT) -> Linked:
    """Links LLVM's objects, model.c (its text, or as `start_compile` returned it) and the weights into
    `output`: one object for static linking if its name ends in `.o`, else a shared library.

    The folder of `weights` is the working folder. An empty weights file stands for none."""
    kind = output_kind(output)
    compiler, directory = compiler or find_compiler(), weights.parent
    if isinstance(model_c, str):
        model_c = start_compile(model_c, directory, target, kind=kind, compiler=compiler)
    tools = _Tools(tuple(compiler), target_flags(compiler, target), directory, timeout)
    parts, size = [*objects], weights.stat().st_size
    if size > 0:
        parts.append(_weights_object(weights, prefix, tools))
    parts.append(model_c.wait(timeout))
    with replacing(output) as temporary:
        if kind == "o":
            _link_object(parts, temporary, prefix, tools)
        else:
            _link_shared(parts, temporary, prefix, tools)
    return Linked(output, output.stat().st_size, size)


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
    if objcopy := shutil.which("objcopy"):
        localise = [objcopy, f"--keep-global-symbol={prefix}_model", "--strip-unneeded", str(output)]
        with contextlib.suppress(CompileError):  # one for another machine does not know the format
            start(localise, output, tools.directory).wait(tools.timeout)


def section_range(path: Path, name: str) -> tuple[int, int]:
    """(offset, length) in the file of an ELF section; (0, 0) when there is none or it is no ELF file."""
    with open(path, "rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
            return 0, 0
        table, = struct.unpack_from("<Q", head, 40)
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
