"""From objects to one library.

`cc` links a shared library, whose exported names are the model's and the loaders' entry, and appends the
trailer that loaders check; or it makes one object for static linking, in which all else becomes local. An
archive has an object of each model and one of the runtime that they share.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ...errors import CompileError, Origin, UsageError
from ...records import dataclass
from ...target import Target
from ...trailer import append_trailer
from ...version import ABI_MAJOR
from .compiler import find_archiver, find_compiler, start, target_flags
from .elf import section_range
from .weights import WEIGHTS_SECTION

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
#: The version of exported symbols: what is linked with one never runs with a library of another interface.
SYMBOL_VERSION = f"ONNXC_{ABI_MAJOR}"


def link(
    objects: Sequence[Path],
    runtime: Path,
    output: Path,
    *,
    directory: Path,
    kind: str,
    prefix: str,
    target: Target,
    soname: str | None = None,
    libraries: Sequence[str] = (),
) -> None:
    """Links code, tables, weights and runtime into the file `output`, of a kind of `output_kind`.

    directory: where the compiler works. soname: what programs that are linked with a shared library look for.
    libraries: further ones that a shared library needs; whoever links an object names them himself."""
    compiler = find_compiler(target)
    tools = _Tools(compiler, target_flags(compiler, target), directory)
    if kind == "o":
        _link_object([*objects, runtime], output, prefix, tools)
    elif kind == "a":
        _link_object(objects, directory / f"{prefix}.o", prefix, tools)
        archive([directory / f"{prefix}.o", runtime], output, directory, target)
    else:
        _link_shared([*objects, runtime], output, prefix, soname, tools, libraries)


def archive(members: Sequence[Path], output: Path, directory: Path, target: Target) -> None:
    """Writes the objects to a static archive, each under its name and once; always the same bytes."""
    once = {member.name: member for member in members}
    output.unlink(missing_ok=True)  # the archiver would add to what is there
    tool = find_archiver(find_compiler(target))
    start([*tool, "rcsD", str(output), *map(str, once.values())], output, directory).wait()


def unarchive(path: Path, directory: Path, target: Target) -> list[Path]:
    """The objects in an archive, written to the folder."""
    tool = find_archiver(find_compiler(target))
    start([*tool, "x", str(path)], path, directory).wait()
    return sorted(directory.glob("*.o"))


#: What names of files that are neither objects nor libraries end in.
_MODELS = (".onnx", ".ort", ".pb")
_LIBRARIES = (".lib", ".obj", ".dll", ".pyd", ".dylib", ".exe", ".wasm")
_TEXTS = (".c", ".h", ".cc", ".cpp", ".hpp", ".py", ".txt", ".json")
_DATA = (".npz", ".npy", ".zip")


def output_kind(output: Path) -> str:
    """`o` for one object, `a` for a static archive, `so` for a shared library. Raises UsageError for a name
    that says otherwise."""
    if output.suffix.lower() in (*_MODELS, *_LIBRARIES, *_TEXTS, *_DATA):
        raise UsageError(
            f"would be a library under a name that ends in {output.suffix}",
            "a shared library is called OUT.so, one object for static linking OUT.o, an archive OUT.a",
            origin=Origin(os.fspath(output)),
        )
    return output.suffix[1:] if output.suffix in (".o", ".a") else "so"


@dataclass(frozen=True)
class _Tools:
    """The compiler with its flags for the target, and where it works."""

    compiler: tuple[str, ...]
    flags: tuple[str, ...]
    directory: Path

    def run(self, *arguments: str, result: Path) -> Path:
        result.unlink(missing_ok=True)  # so that what is there in the end was made by this command
        command = [*self.compiler, *self.flags, *arguments, "-o", str(result)]
        return start(command, result, self.directory).wait()


def _link_shared(
    parts: Sequence[Path],
    output: Path,
    prefix: str,
    soname: str | None,
    tools: _Tools,
    libraries: Sequence[str],
) -> None:
    exports = f"{SYMBOL_VERSION} {{ global: {prefix}_model; onnxc_model; local: *; }};\n"
    (tools.directory / "exports.map").write_text(exports, encoding="ascii")
    script = "-Wl,--version-script=exports.map"  # relative: a comma in the folder's name would cut it
    named = ("-Xlinker", "-soname", "-Xlinker", soname) if soname else ()
    tools.run(*SHARED, script, *named, *map(str, parts), *libraries, *LIBRARIES, result=output)
    append_trailer(output, section_range(output, WEIGHTS_SECTION))


def _link_object(parts: Sequence[Path], output: Path, prefix: str, tools: _Tools) -> None:
    """One object of many. Its hidden symbols begin with the prefix, those of the runtime with a digest of it;
    where `objcopy` is there they become local, so that even models of one prefix clash in nothing but the
    entry."""
    tools.run("-r", "-nostdlib", *map(str, parts), result=output)
    for objcopy in filter(None, map(shutil.which, ("objcopy", "llvm-objcopy"))):
        localise = [objcopy, f"--keep-global-symbol={prefix}_model", "--strip-unneeded", str(output)]
        with contextlib.suppress(CompileError):  # one for another machine does not know the format
            start(localise, output, tools.directory).wait()
            return
