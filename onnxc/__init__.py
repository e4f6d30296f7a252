"""onnxc: compiles ONNX models ahead of time to native shared libraries.

    onnxc.compile("model.onnx", "model.so")
    outputs = onnxc.load("model.so").run(None, {"x": array})

Loading and running need numpy and the standard library only: the compiler is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from .custom import operator
    from .diagnostics import ModelErrors
    from .errors import (
        CompileError,
        LimitError,
        LoadError,
        ModelError,
        OnnxcError,
        RunError,
        UnsupportedError,
    )
    from .loading.loader import Model, load
    from .onnxruntime.session import InferenceSession
    from .version import __version__

#: Where each public name is: it is imported when it is first asked for.
_PLACES = {
    "CompileError": "errors",
    "InferenceSession": "onnxruntime.session",
    "LimitError": "errors",
    "LoadError": "errors",
    "Model": "loading.loader",
    "ModelError": "errors",
    "ModelErrors": "diagnostics",
    "OnnxcError": "errors",
    "RunError": "errors",
    "UnsupportedError": "errors",
    "__version__": "version",
    "load": "loading.loader",
    "operator": "custom",
}

__all__ = [
    "CompileError",
    "InferenceSession",
    "LimitError",
    "LoadError",
    "Model",
    "ModelError",
    "ModelErrors",
    "OnnxcError",
    "RunError",
    "UnsupportedError",
    "__version__",
    "compile",
    "get_include",
    "load",
    "operator",
]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_PLACES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def compile(
    model: object,
    output: str | os.PathLike[str],
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    states: Mapping[str, str] | None = None,
    values: Mapping[str, object] | None = None,
    target: str | Sequence[str] = "native",
    threads: int | None = None,
    name: str | None = None,
    header: str | os.PathLike[str] | None = None,
    weights: str | None = None,
    weights_error: float | None = None,
    calibration: Mapping[str, object] | Sequence[str] = (),
    weights_file: str | os.PathLike[str] | None = None,
    typical: Mapping[str, int] | None = None,
    precision: str = "float32",
    optimize: str = "full",
    overridable: bool | Collection[str] = False,
    operators: Sequence[str | os.PathLike[str]] = (),
    soname: str | None = None,
    debug: bool = False,
    dump_ir: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
    tune: float | None = None,
) -> Path:
    """Compiles `model` (a path, bytes or an onnx.ModelProto) to the library `output`; its path.

    dims: sizes for named dimensions, `{"batch": 1}`. shapes: whole input shapes, `{"x": (1, 3, 224, 224)}`,
    None leaving an axis as it is. states: inputs and the outputs that are their next values, `{"past":
    "present"}` or, for many, `{"past.*": "present.*"}`: see `Model.stateful`. values: inputs that become
    constants, `{"sr": 16000}`; branches that they leave out are not looked at. target: "native", a name that
    `onnxc compile --help` lists, or several. threads: how many the library uses unless told otherwise (None:
    one a processor). name: prefix of its exported symbol (None: the output's stem). header: where to write
    the C header. weights: "f16", "bf16", "int8" or "int4": float32 weights of products, and tables, are
    stored so, whatever the outputs lose by it (None), or but for layers without which no output loses more
    than `weights_error` of its largest magnitude on the inputs of `calibration` (arrays by name, or files as
    for `onnxc compile --calibration`; the others are generated). weights_file: a file of their own for the
    weights, which the library then looks for at the same place beside it (None: the library itself, or
    `OUTPUT.weights` for more than 2 GB). typical: sizes that named dimensions have most of the time: the
    library takes any, and is fastest there. precision: "bf16" lets a float32 model multiply weights, queries,
    keys and values as bfloat16s, where the processor is faster so; sums stay float32; "int8" rounds rows that
    are multiplied with weights of 8 bits or fewer to 8 bits, where it multiplies bytes. optimize: "fast"
    compiles in less time to code that takes 1.1 to 1.3 times as long; a session's is replaced in the cache by
    that of "full", which a process of its own makes meanwhile. overridable: True lets runs give all
    initializers that are also inputs, names those. operators: files with operators that onnxc
    lacks: see docs/custom_operators.md. soname: what programs linked with the library look for (None: its
    file's name). debug: contexts that are destroyed, or another model's, get a status. dump_ir: a folder for
    the intermediate code after every stage. jobs: processes that generate code (None: one a processor).
    progress: called with the name of each stage. tune: about so many seconds are spent on measuring which
    kernels are the fastest for the slowest nodes, on this machine and generated inputs. Raises ModelErrors
    with everything that is wrong with the model, or another OnnxcError; then nothing is written.
    """
    given = dict(locals())
    import os
    from pathlib import Path

    from .options import Options, checked, unmeasured

    output = checked("output", output)
    if isinstance(model, (str, os.PathLike)):
        model = os.fsdecode(checked("model", model))
    given = {name: checked(name, given[name]) for name in given.keys() - {"model", "output"}}
    from .codegen.library import workers

    workers.start(given["jobs"])  # first, so that LLVM is loaded beside the rest of the compiler
    from .driver import compile_model

    options = Options.of(given)
    how = {name: given[name] for name in ("jobs", "progress")}
    error, measured, seconds = (given[name] for name in ("weights_error", "calibration", "tune"))
    if error is not None and weights is not None:
        from .narrowing import choose_layers

        chosen = choose_layers(model, options, error, measured or (), **how)
        options = options.with_(weights=chosen.narrowing)
    elif error is not None or measured:
        raise unmeasured("weights" if weights is None else "weights_error")
    if seconds is not None:
        from .tuning import compile_tuned

        compile_tuned(model, output, options, seconds, dump_ir=given["dump_ir"], **how)
    else:
        compile_model(model, output, options, dump_ir=given["dump_ir"], **how)
    return Path(output)


def get_include() -> str:
    """The folder of the C headers: onnxc.h, and onnxc_operator.h for operators of your own."""
    from pathlib import Path

    from . import runtime_c

    return str(Path(runtime_c.__file__).parent / "include")
