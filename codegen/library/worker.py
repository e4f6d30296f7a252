"""The child process that runs LLVM, a script of its own: it needs llvmlite alone and imports nothing of
onnxc.

LLVM can abort the process on what it cannot select; here that ends a child, and becomes an error message of
the parent. Kernels come in their final form, so no IR pass runs: a text is parsed, verified and selected.
Standard input is a socket, over which requests and answers go (workers.py); who hears nothing for a while, or
lost its parent, ends.
"""

from __future__ import annotations

import os
import select
import struct
import time
from functools import cache
from typing import Any

REQUEST = struct.Struct("<III")  # bytes of triple, processor and text, which follow
ANSWER = struct.Struct("<II")  # whether it is an object (1) or a message (0), and its bytes, which follow
IDLE_SECONDS = 60


def compile_text(text: str, triple: str, processor: str) -> bytes:
    """The object file of a module's text, position-independent, for a `Target.processor`. RuntimeError where
    LLVM does not take it."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(f'target triple = "{triple}"\n{text}')
    module.verify()
    return _machine(triple, processor).emit_object(module)


@cache
def _machine(triple: str, processor: str) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple)
    cpu, _, features = processor.partition(",")
    return target.create_target_machine(cpu, features, opt=2, reloc="pic", codemodel="small")


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
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(channel, rest) :]


def answer(channel: int) -> None:
    triple, processor, text = (
        read(channel, count).decode() for count in REQUEST.unpack(read(channel, REQUEST.size))
    )
    try:
        good, data = 1, compile_text(text, triple, processor)
    except RuntimeError as error:
        good, data = 0, str(error).encode()
    write(channel, ANSWER.pack(good, len(data)) + data)


def main(channel: int = 0) -> None:
    parent = os.getppid()
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
