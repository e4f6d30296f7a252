"""`onnxc compile`: one model to a library, or several to one archive, and the rule that says what they were
made of."""

from __future__ import annotations

import argparse
import gc
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import console
from ..errors import UsageError, shorten
from ..options import Options, unmeasured
from .ending import ending_clean
from .written import check_written, file_of

if TYPE_CHECKING:
    from pathlib import Path

    from ..driver import Report
    from ..narrowing import Narrowed
    from ..tuning import Finding, Tuning

WEIGHTS_ERROR = 0.05  # what an output may lose by --weights unless told otherwise
SURPRISES = 10  # of tuning that are printed; --json tells all


def compile_command(options: argparse.Namespace) -> int:
    with ending_clean():
        return _compile(options)


def _compile(options: argparse.Namespace) -> int:
    from ..codegen.library import workers

    workers.start(options.jobs)  # first, so that LLVM is loaded beside the rest of the compiler
    gc.disable()  # importing leaves no garbage, and what it makes stays: no collection need look at it
    from ..driver import compile_model
    from .actions import OK, compiling

    gc.freeze()
    gc.enable()
    if options.weights is None and (options.weights_error is not None or options.calibration):
        raise unmeasured("--weights")
    if options.others:
        return _compile_archive(options)
    beside = options.output.with_suffix(".h") if options.output.name else None  # none beside "." and "/"
    options.header = header = options.header or (None if options.streamed else beside)
    check_written(options)
    (name,) = _names(options, [None])
    asked = Options.of({**vars(options), "name": name, "header": header})
    with compiling(options.model) as progress:
        narrowed = None
        if options.weights:
            from ..narrowing import choose_layers

            narrowed = choose_layers(
                options.model,
                asked,
                WEIGHTS_ERROR if options.weights_error is None else options.weights_error,
                options.calibration,
                jobs=options.jobs,
                progress=progress,
            )
        settings = asked.with_(weights=narrowed and narrowed.narrowing)
        others: dict[str, Any] = {"dump_ir": options.dump_ir, "jobs": options.jobs, "progress": progress}
        others["besides"] = _besides(options)
        tuning = None
        if options.tune is None:
            report = compile_model(options.model, options.output, settings, **others)
        else:
            from ..tuning import compile_tuned

            report, tuning = compile_tuned(options.model, options.output, settings, options.tune, **others)
    _write_depfile(options, report.sources)
    if options.json:
        found = {"narrowed": narrowed.as_json()} if narrowed else {}
        told = {"header": header and str(header), "options": asked.told()}
        console.print_json({**report.as_json(), **told, **found})
        return OK
    _print_compiled(options.output, report, header, narrowed, tuning)
    return OK


def _print_compiled(
    output: Path, report: Report, header: Path | None, narrowed: Narrowed | None, tuning: Tuning | None
) -> None:
    """What `compile` tells where no JSON is asked for."""
    stages = "\n".join(f"{name:16} {console.time_text(seconds)}" for name, seconds in report.seconds.items())
    workspace = (
        "depends on the inputs' sizes"
        if report.workspace_bytes is None
        else (console.bytes_text(report.workspace_bytes))
    )
    print(f"{output} for {report.target}, {report.nodes} nodes, {report.kernels} kernels")
    console.print_fields(
        [
            *[("header", str(header))] * (header is not None),
            ("library", console.bytes_text(report.library_bytes)),
            (
                "packed weights",
                console.bytes_text(report.weights_bytes)
                + (f" in {report.weights_file}" if report.weights_file else ""),
            ),
            ("initializers", console.bytes_text(report.initializer_bytes)),
            *(_narrowed_fields(narrowed) if narrowed else ()),
            *((("tuned", _tuned(tuning)),) if tuning else ()),
            *((("sizes", _settled(report.settled)),) if report.settled else ()),
            ("workspace", workspace),
            ("time", f"{console.time_text(sum(report.seconds.values()))}\n{stages}"),
            *[("advice", _advice(report.unmeasured))] * bool(report.unmeasured),
        ]
    )
    if tuning is not None:
        _print_findings(tuning.findings)


def _settled(settled: Mapping[str, tuple[int, str]]) -> str:
    """Which dimensions are one number in every run, and why."""
    return "\n".join(f"{name} is {size}: node {node} needs it" for name, (size, node) in settled.items())


def _advice(unmeasured: int) -> str:
    """What may make products faster."""
    products = "a product" if unmeasured == 1 else f"{unmeasured} products"
    return f"run `onnxc calibrate` once on this machine: its matrix registers may multiply {products} faster"


def _narrowed_fields(narrowed: Narrowed) -> list[tuple[str, str]]:
    """Which layers are narrowed, and what that came to."""
    before, after = map(console.bytes_text, (narrowed.bytes_before, narrowed.bytes_after))
    told = [f"{name}  {error:.2g}" for name, error in narrowed.errors.items()]
    errors = "\n".join(told) or "no output is of floats"
    kept = "\n".join(sorted(narrowed.narrowing.kept)) or "none"
    return [
        (f"as {narrowed.narrowing.format}", f"{before} → {after} in {narrowed.count} layers"),
        ("relative error", f"{errors}\nof {narrowed.inputs}"),
        ("kept in float32", kept),
    ]


def _tuned(tuning: Tuning) -> str:
    """What tuning came to."""
    tried = f"{len(tuning.findings)} choices tried, {sum(f.won for f in tuning.findings)} are faster"
    if tuning.before is None or tuning.after is None:
        return f"{tried}: the model stays as it was"
    times = " → ".join(map(console.time_text, (tuning.before, tuning.after)))
    return f"{times} a run in one thread{'' if tuning.kept else ', no clear gain: dropped'}\n{tried}"


def _print_findings(findings: Sequence[Finding]) -> None:
    """The choices whose times surprise most: what the cost model is to learn from."""
    found = sorted(findings, key=lambda f: -abs(math.log(f.measured / f.expected)))[:SURPRISES]
    rows = []
    for f in found:
        nodes = shorten(f.nodes[0]) + (f" and {len(f.nodes) - 1} more" if len(f.nodes) > 1 else "")
        rows.append((nodes, f.before, f.tried, f"{f.expected:.2f}", f"{f.measured:.2f}"))
    if rows:
        print()
        console.print_table(
            ("node", "chosen by estimate", "tried", "of its time, expected", "measured"), rows, 3
        )


def _names(options: argparse.Namespace, otherwise: Sequence[str | None]) -> Sequence[str | None]:
    """What the models are to be called."""
    names = options.name or otherwise
    count = 1 + len(options.others)
    if len(names) != count:
        raise UsageError(f"{len(names)} names for {count} models", "give each --name NAME")
    return names


def _compile_archive(options: argparse.Namespace) -> int:
    from ..driver import compile_archive
    from .actions import OK

    if options.output.suffix != ".a":
        raise UsageError("several models are compiled to one archive", "call it OUT.a")
    for option in ("weights", "weights_file", "soname", "dump_ir", "tune"):
        if getattr(options, option) is not None:
            raise UsageError(f"--{option.replace('_', '-')} is for one model", "compile each by itself")
    check_written(options)
    paths = [options.model, *options.others]
    names = _names(options, [path.name.split(".")[0] or "model" for path in paths])
    models = {str(name): path for name, path in zip(names, paths)}
    if len(models) < len(paths):
        raise UsageError("two models have one name", "give each --name NAME, in the order of the models")
    folder = options.header or options.output.parent
    asked = Options.of({**vars(options), "name": None, "header": None})
    with console.Progress(f"compile {len(models)} models") as progress:
        reports = compile_archive(
            models,
            options.output,
            asked,
            headers=folder,
            jobs=options.jobs,
            progress=progress,
            besides=_besides(options),
        )
    _write_depfile(options, [path for report in reports for path in report.sources])
    if options.json:
        found = {"output": str(options.output), "models": [report.as_json() for report in reports]}
        console.print_json({**found, "options": asked.told()})
        return OK
    print(f"{options.output} for {reports[0].target}, {console.bytes_text(options.output.stat().st_size)}")
    rows = [
        (name, str(folder / f"{name}.h"), str(report.nodes), console.bytes_text(report.weights_bytes))
        for name, report in zip(models, reports)
    ]
    console.print_table(("model", "header", "nodes", "packed weights"), rows, 2)
    return OK


def _besides(options: argparse.Namespace) -> list[tuple[str, Path]]:
    """What is written besides libraries and headers, and what it is."""
    return [] if options.depfile is None else [("rule", options.depfile)]


def _write_depfile(options: argparse.Namespace, sources: Sequence[str]) -> None:
    """A rule for make and ninja: the output is made of the files that were read, if not by standard input."""
    if options.depfile is None:
        return
    from ..codegen.library.files import replacing

    given = (*filter(None, map(file_of, options.calibration)), *options.value_files)
    made_of = dict.fromkeys([*sources, *map(os.path.abspath, given)])
    made_of.pop(options.piped, None)
    output, *read = map(_word, (str(options.output), *made_of))
    with replacing(options.depfile) as (temporary,):
        temporary.write_bytes(os.fsencode(f"{output}: " + " \\\n  ".join(read) + "\n"))


def _word(path: str) -> str:
    """A path in a rule, where backslashes are special before a blank or a '#' alone."""
    return re.sub(r"(\\*)([ \t#])", r"\1\1\\\2", path).replace("$", "$$")
