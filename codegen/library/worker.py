"""The child process that runs LLVM: `python -m onnxc.codegen.library.worker TARGET IN.ll OUT.o [...]`.

LLVM can abort the process on what it cannot select; here that ends a child, and becomes an error message of
the parent. Kernels come in their final form, so no IR pass runs: the text is parsed, verified and selected.
"""

from __future__ import annotations

import sys
from pathlib import Path


def compile_text(text: str, target_name: str) -> bytes:
    """The object file of a module's text, position-independent."""
    import llvmlite.binding as llvm

    from ...target import TARGETS

    target = TARGETS[target_name]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, opt=2, reloc="pic", codemodel="small"
    )
    module = llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}')
    module.verify()
    return machine.emit_object(module)


def main(arguments: list[str]) -> int:
    target, *paths = arguments
    for source, output in zip(paths[::2], paths[1::2]):
        try:
            data = compile_text(Path(source).read_text(), target)
        except RuntimeError as error:
            print(f"{Path(source).name}: {error}", file=sys.stderr)
            return 1
        Path(output).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
