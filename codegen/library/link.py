"""From objects to one library.

`cc` links a shared library, whose exported names are the model's and the loaders' entry, and appends the
trailer that loaders check; or it makes one object for static linking, in which all else becomes local.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ...errors import CompileError, Origin
from ...loading.trailer import append_trailer
from ...records import dataclass
from ...target import Target
from .compiler import TIMEOUT, find_compiler, start, target_flags
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


def link(
    objects: Sequence[Path],
    output: Path,
    *,
    directory: Path,
    kind: str,
    prefix: str,
    target: Target,
    compiler: Sequence[str] | None = None,
    timeout: float = TIMEOUT,
    libraries: Sequence[str] = (),
) -> None:
    """Links code, tables, weights and runtime into the file `output`: one object for static linking if `kind`
    is `o`, a shared library if it is `so`.

    directory: where the compiler works. libraries: further ones that a shared library needs; whoever links an
    object names them himself."""
    compiler = compiler or find_compiler()
    tools = _Tools(tuple(compiler), target_flags(compiler, target), directory, timeout)
    if kind == "o":
        _link_object(objects, output, prefix, tools)
    else:
        _link_shared(objects, output, prefix, tools, libraries)


#: What names of files that are neither objects nor libraries end in.
_MODELS = (".onnx", ".ort", ".pb")
_LIBRARIES = (".a", ".lib", ".obj", ".dll", ".pyd", ".dylib", ".exe", ".wasm")
_TEXTS = (".c", ".h", ".cc", ".cpp", ".hpp", ".py", ".txt", ".json")
_DATA = (".npz", ".npy", ".zip")


def output_kind(output: Path) -> str:
    """`o` for one object, `so` for a shared library. Raises CompileError for a name that says otherwise."""
    if output.suffix.lower() in (*_MODELS, *_LIBRARIES, *_TEXTS, *_DATA):
        raise CompileError(
            f"would be a library under a name that ends in {output.suffix}",
            "a shared library is called OUT.so, one object for static linking OUT.o",
            origin=Origin(os.fspath(output)),
        )
    return "o" if output.suffix == ".o" else "so"


@dataclass(frozen=True)
class _Tools:
    """The compiler with its flags for the target, where it works and how long it may."""

    compiler: tuple[str, ...]
    flags: tuple[str, ...]
    directory: Path
    timeout: float

    def run(self, *arguments: str, result: Path) -> Path:
        result.unlink(missing_ok=True)  # so that what is there in the end was made by this command
        command = [*self.compiler, *self.flags, *arguments, "-o", str(result)]
        return start(command, result, self.directory).wait(self.timeout)


def _link_shared(
    parts: Sequence[Path], output: Path, prefix: str, tools: _Tools, libraries: Sequence[str]
) -> None:
    exports = f"{{ global: {prefix}_model; onnxc_model; local: *; }};\n"
    (tools.directory / "exports.map").write_text(exports, encoding="ascii")
    script = "-Wl,--version-script=exports.map"  # relative: a comma in the folder's name would cut it
    tools.run(*SHARED, script, *map(str, parts), *libraries, *LIBRARIES, result=output)
    append_trailer(output, section_range(output, WEIGHTS_SECTION))


def _link_object(parts: Sequence[Path], output: Path, prefix: str, tools: _Tools) -> None:
    """One object of many. Its hidden symbols begin with the prefix, those of the runtime with a digest of it;
    where `objcopy` is there they become local, so that even models of one prefix clash in nothing but the
    entry."""
    tools.run("-r", "-nostdlib", *map(str, parts), result=output)
    for objcopy in filter(None, map(shutil.which, ("objcopy", "llvm-objcopy"))):
        localise = [objcopy, f"--keep-global-symbol={prefix}_model", "--strip-unneeded", str(output)]
        with contextlib.suppress(CompileError):  # one for another machine does not know the format
            start(localise, output, tools.directory).wait(tools.timeout)
            return
