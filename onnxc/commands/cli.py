"""The command line: its arguments, errors and exit status. `actions.py` and others have what commands do.

Whatever fails is one line `onnxc: error: ...` on standard error for each problem, and with --json also an
object with "errors" on standard output. A traceback is never shown.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from .. import console
from ..diagnostics import Diagnostic, ModelErrors
from ..errors import CacheError, CompileError, OnnxcError, UsageError, one_line
from ..options import OPTIMIZE, PRECISIONS, plain
from ..target import TARGETS
from ..version import __version__
from . import streams
from .argument_types import (
    byte_count,
    dimension,
    path,
    positive,
    rivals,
    seconds,
    seed,
    shape,
    state,
    target,
    targets,
    tolerance,
    value,
)
from .ending import Ended, raise_asked

#: Where commands are that are not among `actions.py`'s; each is imported when it is given.
FILES = {
    "cache": "caching",
    "compile": "compilation",
    "completion": "completion",
    "profile": "profile",
    "reduce": "reduction",
}

FAULT, USAGE, ENVIRONMENT, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 130, 141

#: What errors mean, the first that fits; whatever else fails is onnxc's or the system's fault.
STATUSES = (
    (UsageError, USAGE),
    ((CompileError, CacheError), ENVIRONMENT),
    (OnnxcError, FAULT),
    (Exception, ENVIRONMENT),
)
EXIT_CODES = textwrap.dedent("""\
    exit status:
      0    done
      1    the model, the library or the inputs are at fault, or verification failed
      2    wrong usage of the command line
      3    the C compiler, a missing package, the file system or onnxc itself is at fault
      130  interrupted
      141  nobody reads the output any more
    """)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; its exit status."""
    streams.take_anything()
    given = sys.argv[1:] if arguments is None else list(arguments)
    with streams.named_output(), streams.plain_warnings():
        try:
            options = _parsed(given)
            with streams.standard_streams(options):
                status = _run(options)
            sys.stdout.flush()
            return status
        except BrokenPipeError:
            streams.drop_output()
            return PIPE_CLOSED
        except KeyboardInterrupt:
            return INTERRUPTED
        except Ended as asked:
            asked.end()
            raise
        except Exception as error:
            return report(error, _as_json(given))


def _as_json(given: Sequence[str]) -> bool:
    return "--json" in given


def _parsed(given: Sequence[str]) -> argparse.Namespace:
    """The options, where the parser does not end the process: then what it printed is written before."""
    try:
        return make_parser(_as_json(given)).parse_args(given)
    except SystemExit:
        sys.stdout.flush()
        raise


def _run(options: argparse.Namespace) -> int:
    try:
        return int(options.command(options))
    except BrokenPipeError:
        raise
    except Exception as error:
        raise_asked()
        return report(error, getattr(options, "json", False))


def report(error: Exception, as_json: bool = False) -> int:
    """Prints an error, one line a problem; the exit status that it means."""
    lines = error.lines() if isinstance(error, ModelErrors) else [describe(error)]
    for line in lines:
        print(f"onnxc: error: {line}", file=sys.stderr)
    if as_json:
        known = (
            error.diagnostics
            if isinstance(error, ModelErrors)
            else (
                [Diagnostic.of(error)]
                if isinstance(error, OnnxcError)
                else [Diagnostic(lines[0], "internal")]
            )
        )
        entries = [{**found.to_dict(), "message": line} for found, line in zip(known, lines)]
    try:
        if as_json:
            console.print_json({"errors": entries})
        sys.stdout.flush()
    except OSError:  # standard output is what fails
        streams.drop_output()
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def describe(error: Exception) -> str:
    """The error in one line. One that is not of onnxc's own family says where it came from."""
    if isinstance(error, OnnxcError):
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror:
        return one_line(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}" if frame else "onnxc"
    cause = f"{type(error).__name__}: {error}"
    return one_line(f"internal error in {where}: {cause}; please report it with the model")


# Arguments ---------------------------------------------------------------------------------------


def make_parser(as_json: bool = False) -> argparse.ArgumentParser:
    """The parser of all commands. as_json: wrong usage is told as JSON too."""
    kind = _JsonParser if as_json else _Parser
    parser = kind(
        "onnxc",
        "Compiles ONNX models ahead of time to native shared libraries. A model that is called - comes from "
        "standard input.",
    )
    parser.add_argument("--version", action="version", version=f"onnxc {__version__}")
    for name, what in (
        ("include", "the C and C++ headers"),
        ("cmake", "the CMake package, for onnxc_DIR"),
        ("pkgconfig", "onnxc.pc, for PKG_CONFIG_PATH"),
    ):
        flag = f"--{name}-dir"
        parser.add_argument(
            flag, action=_PrintFolder, const=name, help=f"print the folder of {what}, and exit"
        )
    group = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=kind)

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        command = group.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        command.set_defaults(command=functools.partial(_carry_out, name))
        if name != "completion":
            command.add_argument("--json", action="store_true", help="print JSON, of errors too")
        return command

    _compile_arguments(add("compile", "compile a model to a library"))
    _check_arguments(add("check", "list every node of a model that is invalid or not supported"))
    _inspect_arguments(add("inspect", "show the figures of a model or a library"))
    _run_arguments(add("run", "run a model or a library on files or generated inputs"))
    _verify_arguments(add("verify", "compare a model's outputs with another implementation's"))
    _bench_arguments(add("bench", "measure the latency of a model, alone or against others"))
    _reduce_arguments(add("reduce", "find the smallest part of a model that fails as the whole does"))
    _profile_arguments(add("profile", "show where the time of a run goes, by nodes and kernels"))
    _calibrate_arguments(add("calibrate", "measure how fast this machine is, for the compiler's estimates"))
    _cache_arguments(add("cache", "show, fill and empty the cache of compiled models"))
    _demo_arguments(add("demo", "compile a digit classifier, run it from Python and from C"))
    described = add("completion", "print the script by which a shell completes onnxc's commands")
    _completion_arguments(described)
    described.set_defaults(parser=parser)
    return parser


def _carry_out(name: str, options: argparse.Namespace) -> int:
    module = importlib.import_module(f".{FILES.get(name, 'actions')}", __package__)
    return int(getattr(module, f"{name}_command")(options))


class _Parser(argparse.ArgumentParser):
    """A parser whose help ends with the exit codes; every command has one. None takes the empty text, which
    `Path` has for the folder where it is, for a file."""

    def __init__(self, prog: str, description: str = "", **settings: Any):
        super().__init__(
            prog,
            description=description,
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **settings,
        )
        self.register("type", Path, path)

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse's own takes no notice of what cannot be written."""
        if file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


class _JsonParser(_Parser):
    """One that tells wrong usage as JSON besides."""

    def error(self, message: str) -> NoReturn:
        console.print_json({"errors": [{"kind": "usage", "message": f"{self.prog}: {message}"}]})
        super().error(message)


class _Table(argparse.Action):
    """Pairs as a table."""

    def __init__(self, **settings: Any):
        super().__init__(default={}, **settings)

    def __call__(self, parser: object, options: argparse.Namespace, pair: Any, *_: object) -> None:
        given: dict[str, object] = getattr(options, self.dest)
        if plain(given.get(pair[0], pair[1])) != plain(pair[1]):
            raise argparse.ArgumentError(self, f"'{pair[0]}' is given twice, each time something else")
        setattr(options, self.dest, {**given, pair[0]: pair[1]})


class _Values(_Table):
    """Pairs whose values may lie in files, which are kept, too."""

    def __init__(self, **settings: Any):
        super().__init__(**settings)

    def __call__(self, parser: object, options: argparse.Namespace, pair: Any, *_: object) -> None:
        super().__call__(parser, options, pair)
        options.value_files = [*options.value_files, *pair[2:]]


class _PrintFolder(argparse.Action):
    """Prints a folder of what the package brings for programs in C and C++."""

    def __init__(self, **settings: Any):
        super().__init__(nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from .. import runtime_c

        print(Path(runtime_c.__file__).parent / str(self.const))
        parser.exit()


def _compile_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", type=Path, metavar="MODEL.onnx")
    command.add_argument(
        "others", type=Path, nargs="*", default=[], metavar="MODEL.onnx", help="further models, for one .a"
    )
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT",
        help="the library: .so, or for static linking .o or .a (models in one .a share the runtime); "
        "- for a .so on standard output",
    )
    _model_arguments(command, "pin")
    _target_argument(command, several=True)
    command.add_argument(
        "--threads",
        type=positive,
        metavar="N",
        help="threads that the library uses unless told otherwise (one a processor)",
    )
    command.add_argument(
        "--name",
        action="append",
        help="prefix of the library's symbols (the stem of OUT); of several models one each (their stems)",
    )
    command.add_argument(
        "--header",
        type=Path,
        metavar="FILE",
        help="the C header (OUT with the suffix .h); of several models the folder of NAME.h (OUT's)",
    )
    command.add_argument(
        "--debug",
        action="store_true",
        help="have C programs told by a status when they give a context that is destroyed or another model's",
    )
    command.add_argument(
        "--depfile", type=Path, metavar="FILE", help="write there what OUT was made of, for make and ninja"
    )
    command.add_argument(
        "--soname", metavar="NAME", help="what programs that are linked with a .so look for (the name of OUT)"
    )
    _weights_arguments(command)
    command.add_argument(
        "--overridable",
        action="store_true",
        help="let runs give the initializers that are also inputs of the model",
    )
    command.add_argument(
        "--typical",
        type=dimension,
        action=_Table,
        dest="typical",
        metavar="NAME=N",
        help="the size that a dimension has most of the time: any may come, this one is served fastest",
    )
    _precision_argument(command)
    command.add_argument(
        "--tune",
        type=seconds,
        metavar="SECONDS",
        help="measure for about so long which kernels are the fastest here for the nodes that take most "
        "time, and compile with those",
    )
    command.add_argument(
        "--optimize",
        choices=OPTIMIZE,
        default="full",
        help="fast: code that is compiled in less time and takes 1.1 to 1.3 times as long (full)",
    )
    command.add_argument(
        "--dump-ir", type=Path, metavar="DIR", help="write the IR text after every stage there"
    )
    command.add_argument(
        "--jobs", type=positive, metavar="N", help="processes that generate code (one a processor)"
    )


def _weights_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--weights",
        choices=("f16", "bf16", "int8", "int4"),
        help="store float32 weights of products, and tables, in fewer bits: int8 with a scale an output, "
        "int4 with one for every 32 weights; the layers that cost an output most stay as they are",
    )
    command.add_argument(
        "--weights-error",
        type=tolerance,
        metavar="R",
        help="what an output may lose by --weights, relative to its largest magnitude (0.05)",
    )
    command.add_argument(
        "--calibration",
        action="append",
        default=[],
        metavar="X=A.npy|INPUTS.npz",
        help="inputs with which --weights measures that; the others are generated",
    )
    command.add_argument(
        "--weights-file",
        type=Path,
        metavar="FILE",
        help="keep the weights in a file of their own (OUT.weights, for more than 2 GB)",
    )


def _check_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", type=Path, metavar="MODEL.onnx")
    _model_arguments(command, "pin")
    _target_argument(command)


def _precision_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="bf16: float32 models multiply weights as bfloat16s, added up in float32, where the processor "
        "is faster so; int8: rows that are multiplied with weights of 8 bits or fewer are rounded to 8 bits, "
        "where it multiplies bytes (float32)",
    )


def _inspect_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help=".onnx or a compiled library")
    _model_arguments(command, "compute arithmetic and peak memory at")
    _target_argument(command)
    _precision_argument(command)


def _run_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file", type=Path, metavar="FILE", help=".onnx, compiled on first use, or a compiled library"
    )
    _input_arguments(command)
    command.add_argument(
        "-o", "--output", type=Path, metavar="OUT.npz", help="write the outputs there, - to standard output"
    )
    command.add_argument(
        "--threads", type=positive, metavar="N", help="threads (as compiled, else one a processor)"
    )


def _verify_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help=".onnx or a compiled library")
    command.add_argument(
        "--model", type=Path, metavar="MODEL.onnx", help="what the other runs, when FILE is a library"
    )
    _comparison_arguments(command)
    command.add_argument("--pin", action="store_true", help="compile for the sizes given, instead of for any")
    command.add_argument("--per-node", action="store_true", help="find the first node whose output departs")


def _comparison_arguments(command: argparse.ArgumentParser) -> None:
    """What a model is compared with, on what, and how near it has to be."""
    command.add_argument(
        "--against",
        choices=("onnxruntime", "reference"),
        help="the other: ONNX Runtime (where installed) or onnx.reference",
    )
    _input_arguments(command)
    command.add_argument(
        "--rtol",
        type=tolerance,
        metavar="R",
        help="what may differ, relative to an output's largest magnitude (1e-3 for float32)",
    )
    command.add_argument(
        "--atol", type=tolerance, metavar="A", help="what may differ besides (1.2e-7 for float32)"
    )
    _target_argument(command)


def _reduce_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", type=Path, metavar="MODEL.onnx")
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT.onnx",
        help="write the part there, its inputs beside",
    )
    _comparison_arguments(command)
    command.add_argument(
        "--seconds", type=seconds, default=120.0, metavar="S", help="what takes longer hangs (120)"
    )


def _bench_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help=".onnx or a compiled library")
    command.add_argument(
        "--against", type=rivals, default=(), metavar="RIVAL,...", help="onnxruntime, openvino, ncnn, mnn"
    )
    command.add_argument(
        "--model", type=Path, metavar="MODEL.onnx", help="what the rivals run, when FILE is a library"
    )
    command.add_argument(
        "--pin",
        action="store_true",
        help="compile for the sizes given, instead of for any; the rivals are told them too",
    )
    _input_arguments(command)
    command.add_argument("--threads", type=positive, default=1, metavar="N", help="of every engine (1)")
    command.add_argument(
        "--streams",
        type=positive,
        metavar="N",
        help="measure inferences a second of so many runs side by side, each with --threads",
    )
    limit = command.add_mutually_exclusive_group()
    limit.add_argument("--runs", type=positive, metavar="N", help="timed runs of each engine")
    limit.add_argument(
        "--seconds", type=seconds, default=3.0, metavar="S", help="about how long each engine is timed (3)"
    )


def _profile_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help=".onnx or a compiled library")
    command.add_argument(
        "--model", type=Path, metavar="MODEL.onnx", help="what FILE was compiled from, when it is a library"
    )
    command.add_argument("--pin", action="store_true", help="compile for the sizes given, instead of for any")
    _input_arguments(command)
    command.add_argument("--threads", type=positive, default=1, metavar="N", help="of the run (1)")
    command.add_argument(
        "--runs",
        type=positive,
        default=20,
        metavar="N",
        help="of which the least time of each step counts (20)",
    )
    command.add_argument(
        "--html", type=Path, metavar="OUT.html", help="write a page there: graph, time line, memory, roofline"
    )
    command.add_argument(
        "--trace", type=Path, metavar="OUT.json", help="write the steps there, for Perfetto or Chrome"
    )


def _calibrate_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dry-run", action="store_true", help="measure and print, but keep nothing")


def _cache_arguments(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(title="actions", required=True, metavar="ACTION", dest="action")

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        action.add_argument("--json", action="store_true", help="print JSON, of errors too")
        return action

    add("path", "where the cache is")
    add("list", "the libraries in the cache, those used last first")
    prune = add("prune", "remove what was not used for longest, and what was left by processes that ended")
    prune.add_argument("--to", type=byte_count, metavar="SIZE", help="how much may stay: 500M, 20G")
    add("clear", "remove all compiled models")
    warm = add("warm", "compile models into the cache, as they will be opened")
    warm.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    _size_arguments(warm, "pin")
    _target_argument(warm)


def _demo_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--keep", type=Path, metavar="DIR", help="write the library, its header and the C program there"
    )


def _completion_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh", "powershell"))


def _model_arguments(command: argparse.ArgumentParser, purpose: str) -> None:
    """What a model is read with."""
    _size_arguments(command, purpose)
    _operators_argument(command)
    command.add_argument(
        "--state",
        type=state,
        action=_Table,
        dest="states",
        metavar="INPUT=OUTPUT",
        help="the output is the input's next value and may have its memory; * in both stands for any text",
    )
    command.add_argument(
        "--value",
        type=value,
        action=_Values,
        dest="values",
        metavar="INPUT=V",
        help="make an input a constant: a number, a list as in JSON, or a file .npy",
    )
    command.set_defaults(value_files=[])


def _size_arguments(command: argparse.ArgumentParser, purpose: str) -> None:
    command.add_argument(
        "--dim",
        type=dimension,
        action=_Table,
        dest="dims",
        metavar="NAME=N",
        help=f"{purpose} the size of a named dimension",
    )
    command.add_argument(
        "--shape",
        type=shape,
        action=_Table,
        dest="shapes",
        metavar="INPUT=N,N,...",
        help=f"{purpose} the shape of an input; ? leaves an axis as it is",
    )


def _input_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="X=A.npy|X=NUMBER|INPUTS.npz",
        help="arrays for one input or several, or a number for every element; the others are generated",
    )
    command.add_argument("--seed", type=seed, default=0, metavar="N", help="of the generated inputs (0)")
    _size_arguments(command, "give generated inputs")
    _operators_argument(command)


def _operators_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--operators",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="operators of your own: C source, an object, archive or shared library, a Python file with "
        "rules, or an operator set document",
    )


def _target_argument(command: argparse.ArgumentParser, several: bool = False) -> None:
    known = ", ".join(TARGETS)
    command.add_argument(
        "--target",
        type=targets if several else target,
        default="native",
        metavar="NAME,..." if several else "NAME",
        help=f"the processor: native (the default), {known}"
        + ("; of several the library uses the best that it finds" if several else ""),
    )
