"""Turns IR text into object files in child processes, several at once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import CompileError
from ...target import Target
from ..text.emitter import ENTRY

TIMEOUT = 600  # seconds, for all of a model's code


def name_kernels(texts: Sequence[str], prefix: str) -> dict[str, str]:
    """The name of each distinct kernel text's entry in the library, made from its content."""
    return {text: f"{prefix}__k{hashlib.sha256(text.encode()).hexdigest()[:12]}" for text in texts}


def compile_objects(
    main: str, kernels: Mapping[str, str], target: Target, directory: Path, threads: int | None = None
) -> list[Path]:
    """Objects of the main module and of every kernel, written into directory. Kernels are dealt out to as
    many children as there are processors, or `threads` says; 0 stays in this process, which an abort of LLVM
    then ends."""
    modules = [("main", main)] + [
        (name, text.replace(f"@{ENTRY}", f"@{name}")) for text, name in kernels.items()
    ]
    if threads == 0:
        return [_compile_here(name, text, target, directory) for name, text in modules]
    workers = max(1, min(threads or os.cpu_count() or 1, len(modules)))
    shares: list[list[tuple[str, str]]] = [[] for _ in range(workers)]
    for module in sorted(modules, key=lambda m: -len(m[1])):
        min(shares, key=lambda share: sum(len(text) for _, text in share)).append(module)
    children, objects = [], []
    for share in shares:
        pairs = []
        for name, text in share:
            source, output = directory / f"{name}.ll", directory / f"{name}.o"
            source.write_text(text)
            pairs += [str(source), str(output)]
            objects.append(output)
        command = [sys.executable, "-P", "-m", "onnxc.codegen.library.worker", target.name, *pairs]
        children.append(
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        )
    _wait(children)
    return objects


def _compile_here(name: str, text: str, target: Target, directory: Path) -> Path:
    from .worker import compile_text

    output = directory / f"{name}.o"
    try:
        output.write_bytes(compile_text(text, target.name))
    except RuntimeError as error:
        raise CompileError(f"code generation failed: {error}") from None
    return output


def _wait(children: Sequence[subprocess.Popen]) -> None:
    """Waits for all; the first that failed becomes the error, and none is left behind."""
    try:
        for child in children:
            _, errors = child.communicate(timeout=TIMEOUT)
            if child.returncode:
                tail = errors.decode(errors="replace").strip().splitlines()[-3:]
                how = f"signal {-child.returncode}" if child.returncode < 0 else f"status {child.returncode}"
                raise CompileError(f"code generation ended with {how}: {' | '.join(tail) or 'no message'}")
    except subprocess.TimeoutExpired:
        raise CompileError(f"code generation took more than {TIMEOUT} seconds") from None
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()
