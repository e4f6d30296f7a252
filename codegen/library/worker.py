"""The child process that runs LLVM, a script of its own: it needs llvmlite alone and imports nothing of
onnxc. Its argument is the folder where that is.

LLVM can abort the process on what it cannot select; here that ends a child, and becomes an error message of
the parent. Kernels come in their final form, so no IR pass runs: a text is parsed, verified and selected.
Standard input is a socket, over which requests and answers go (workers.py); who hears nothing for a while, or
lost its parent, ends.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

REQUEST = struct.Struct("<IIII")  # the level, and bytes of triple, processor and texts, which follow
SEPARATOR = "\0"  # between texts
ANSWER = struct.Struct("<II")  # whether it is an object (1) or a message (0), and its bytes, which follow
IDLE_SECONDS = 60
CODE, QUICK, DATA = 2, 0, 0  # LLVM's levels, of functions, of those that are wanted soon, and of tables
LEAN = 3  # that of functions without loop strength reduction

#: At the level 0 values stay in registers, as kernels are written, and what selects is the same as above.
OPTIONS = ("-optimize-regalloc=1", "-global-isel=0")


def compile_texts(texts: Sequence[str], triple: str, processor: str, level: int = CODE) -> bytes:
    """The object file of all modules' texts, position-independent, for a `Target.processor`. RuntimeError
    where LLVM does not take one."""
    import llvmlite.binding as llvm

    modules = [llvm.parse_assembly(f'target triple = "{triple}"\n{text}') for text in texts]
    for module in modules:
        module.verify()
    for module in modules[1:]:
        modules[0].link_in(module)
    machine = _machine(triple, processor, CODE if level == LEAN else level)
    llvm.set_option("onnxc", f"-disable-lsr={'true' if level == LEAN else 'false'}")
    return machine.emit_object(modules[0])


@cache
def _machine(triple: str, processor: str, level: int) -> Any:
    import llvmlite.binding as llvm

    _initialise()
    target = llvm.Target.from_triple(triple)
    cpu, _, features = processor.partition(",")
    return target.create_target_machine(cpu, features, opt=level, reloc="pic", codemodel="small")


@cache
def _initialise() -> None:
    import llvmlite.binding as llvm

    for option in OPTIONS:
        llvm.set_option("onnxc", option)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def read(channel: int, count: int) -> bytes:
    """That many bytes; EOFError where they end."""
    data = bytearray()
    while len(data) < count:
        block = os.read(channel, min(count - len(data), 1 << 20))
        if not block:
            raise EOFError
        data += block
    return bytes(data)


def write(channel: int, data: bytes) -> None:
    """Writes all of the data."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(channel, rest) :]


def answer(channel: int) -> None:
    """Compiles what one request asks for, and writes the object or the error."""
    level, *counts = REQUEST.unpack(read(channel, REQUEST.size))
    triple, processor, texts = (read(channel, count).decode() for count in counts)
    try:
        good, data = 1, compile_texts(texts.split(SEPARATOR), triple, processor, level)
    except RuntimeError as error:
        good, data = 0, str(error).encode()
    write(channel, ANSWER.pack(good, len(data)) + data)


def main(channel: int = 0) -> None:
    """Answers requests until the parent is gone, or has asked nothing for long."""
    parent = os.getppid()
    sys.path.extend(sys.argv[1:])
    import llvmlite.binding  # noqa: F401, while the parent is still busy with the model

    last = time.monotonic()
    while os.getppid() == parent and time.monotonic() < last + IDLE_SECONDS:
        if select.select([channel], [], [], 1)[0]:
            try:
                answer(channel)
            except (EOFError, ConnectionError):
                return
            last = time.monotonic()


if __name__ == "__main__":
    main()
