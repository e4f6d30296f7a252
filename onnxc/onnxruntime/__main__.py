"""`python -m onnxc.onnxruntime PROGRAM ARGUMENTS...`: runs a program that uses ONNX Runtime with onnxc.

python -m onnxc.onnxruntime program.py ARGUMENTS
python -m onnxc.onnxruntime -m MODULE ARGUMENTS
python -m onnxc.onnxruntime -c 'import onnxruntime; ...'
python -m onnxc.onnxruntime COMMAND ARGUMENTS     a command that a package has installed
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys

from .installation import install


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help") or arguments in (["-m"], ["-c"]):
        print(__doc__, file=sys.stdout if arguments[:1] in (["-h"], ["--help"]) else sys.stderr)
        raise SystemExit(0 if arguments[:1] in (["-h"], ["--help"]) else 2)
    install()
    first = arguments[0]
    if first == "-c":
        sys.argv = ["-c", *arguments[2:]]
        scope = {"__name__": "__main__", "__builtins__": __builtins__}
        exec(compile(arguments[1], "<string>", "exec"), scope)
    elif first == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        path = first if os.path.exists(first) else shutil.which(first)
        if path is None:
            print(f"onnxc: error: there is no program '{first}'", file=sys.stderr)
            raise SystemExit(2)
        sys.argv = [path, *arguments[1:]]
        if not sys.flags.safe_path:
            sys.path[0] = os.path.dirname(os.path.abspath(path))
        runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main()
