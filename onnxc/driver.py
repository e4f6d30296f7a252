"""The driver of a compilation: from a model to a library, stage after stage.

    import ─▶ optimise (`passes/pipeline.py`) ─▶ lower, for each target ─▶ write weights, generate code, link
Each stage is timed and reported to `progress`; with `dump_ir` the graphs between are written as IR text.
Nothing appears at the output path until the library is complete.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from .codegen.library import custom, files, header, images, link, objects, workers
from .codegen.library.description import describe
from .codegen.library.interface import LibraryDescription, symbol_prefix
from .codegen.library.module import emit_module
from .codegen.library.objects import BASELINE
from .codegen.library.runtime import local_prefix, rename, runtime_prefix, start_runtime
from .codegen.library.tables import entry_points, tables_text
from .codegen.library.weights import LIBRARY_LIMIT, Weights, constant_bytes, weights_object, write_weights
from .codegen.library.worker import CODE, DATA, QUICK
from .codegen.lowering.arithmetic import summary, unmeasured
from .codegen.lowering.lower import Lowered, lower
from .codegen.lowering.tuned import Tuned
from .errors import CompileError, Origin, UsageError
from .facts import measured_facts
from .frontend.figures import library_details
from .frontend.importer import Imported, import_model
from .frontend.tensors import DTYPE_NAMES
from .frontend.walk import all_tensors
from .given import given_operators
from .ir import dims
from .ir.dtypes import ALL, itemsize
from .ir.graph import Graph, walk
from .options import DEFAULTS, Options
from .passes.narrow_weights import Narrowing
from .passes.pipeline import optimise
from .records import dataclass
from .target import Target, find_targets


@dataclass
class Report:
    """What a compilation did: seconds of each stage, and sizes in bytes."""

    seconds: dict[str, float] = field(default_factory=dict)
    output: str = ""
    target: str = ""
    library_bytes: int = 0
    weights_bytes: int = 0
    weights_file: str | None = None  # beside the library, where the weights are not in it
    initializer_bytes: int = 0
    workspace_bytes: int | None = None  # None where it depends on the inputs' sizes
    kernels: int = 0
    nodes: int = 0
    settled: Mapping[str, tuple[int, str]] = field(
        default_factory=dict
    )  # dimensions that are one number in every run, and the node that needs that
    unmeasured: int = 0  # products that might be faster, had `onnxc calibrate` measured this machine
    tuning: dict[str, object] | None = None  # what was tried, where that was asked for
    sources: list[str] = field(
        default_factory=list
    )  # the files that were read: model, external data, operators

    def as_json(self) -> dict[str, object]:
        return dict(vars(self))


@dataclass(frozen=True)
class Outputs:
    """Where a compilation writes: the library and, where wanted, its header and the side file of its weights.

    Iterating gives the paths that there are, the library last: who finds it finds all."""

    library: Path
    header: Path | None = None
    weights: Path | None = None

    @classmethod
    def of(cls, library: Path, options: Options) -> Outputs:
        """What the options ask for, each of which can be written."""
        named = (options.header, options.weights_file)
        outputs = cls(library, *(None if path is None else Path(path) for path in named))
        for path in (library, *outputs):  # the library is the one that was surely named
            files.check_output(path)
        return outputs

    def __iter__(self) -> Iterator[Path]:
        return (path for path in (self.weights, self.header, self.library) if path is not None)

    def at(self, paths: Sequence[Path]) -> Outputs:
        """The same outputs at other paths, given in the order of iteration."""
        names = dict(zip(self, paths))
        header = None if self.header is None else names[self.header]
        weights = None if self.weights is None else names[self.weights]
        return Outputs(names[self.library], header, weights)

    @property
    def weights_name(self) -> str | None:
        """The path of the side file from the library's folder, links followed."""
        if self.weights is None:
            return None
        return os.path.relpath(self.weights.resolve(), self.library.resolve().parent)

    def refuse_overwriting(self, read: Mapping[str, str], besides: Besides = ()) -> None:
        """Raises UsageError where an output would take the place of what is read or written besides. read:
        what the files are."""
        own = [(name, path) for name, path in vars(self).items() if path is not None]
        files.refuse_overwriting([(what, path) for path, what in read.items()], [*own, *besides])


Progress = Callable[[str], None]
Besides = Sequence[files.Named]  # files that a caller writes, too

#: What LLVM does, by how much is to be done for the speed of runs.
CODE_LEVELS = {"full": CODE, "fast": QUICK}

LARGE_WEIGHTS = 64 << 20  # bytes with which the linker needs the memory that idle workers hold


class _Stages:
    """Times stages one after the other and tells progress of each. `check_unchanged` refuses a model whose
    files changed before a stage reads them: who reads a mapping of a file that was cut is ended."""

    def __init__(self, report: Report, progress: Progress | None):
        self.report, self.progress = report, progress or (lambda stage: None)
        self.name, self.began = "", 0.0
        self.check_unchanged: Callable[[], None] = lambda: None

    def __call__(self, name: str) -> None:
        now = time.perf_counter()
        if self.name:
            self.report.seconds[self.name] = self.report.seconds.get(self.name, 0.0) + now - self.began
        self.name, self.began = name, now
        if name:
            self.progress(name)
            self.check_unchanged()


def compile_model(
    model: object,
    output: str | os.PathLike,
    options: Options = DEFAULTS,
    *,
    dump_ir: str | os.PathLike | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    tuned: Tuned | None = None,
    besides: Besides = (),
) -> Report:
    """Compiles a model (path, bytes or ModelProto) to `output`: a .so or, for static linking, a .o or .a.

    dump_ir: a folder for the IR text after each stage. jobs: child processes that generate code. progress: is
    told each stage. tuned: what was seen of kernels, and who is told what they are given. besides: what the
    caller writes. What is written appears whole or not at all. Errors are of the `OnnxcError` family.
    """
    report = Report(output=os.fspath(output))
    outputs = Outputs.of(Path(output), options)
    if isinstance(model, (str, os.PathLike)) and "\0" not in os.fspath(model):
        outputs.refuse_overwriting({os.fspath(model): "model"})
    kind = link.output_kind(outputs.library)  # refuses a name that says something else
    if options.soname is not None and kind != "so":
        raise UsageError("a soname is a shared library's", "call it OUT.so", origin=Origin(report.output))
    targets = find_targets(options.target)
    report.target = ",".join(chosen.name for chosen in targets)
    workers.start(jobs)
    stages = _Stages(report, progress)
    dump = _Dump(dump_ir)
    with (
        tempfile.TemporaryDirectory(prefix="onnxc-") as work,
        objects.CodeGeneration(Path(work), jobs, CODE_LEVELS[options.optimize]) as generation,
    ):
        stages("import")
        given = given_operators(options.operators, Path(work), targets[0])
        imported = import_model(model, options, given.operators)
        stages.check_unchanged = imported.model.check_unchanged
        outputs.refuse_overwriting(_read(imported, options), besides)
        report.initializer_bytes = initializer_bytes(imported)
        report.settled = imported.settled
        again = partial(import_model, model, options, given.operators)
        lowered = _lower_all(imported.graph, again, targets, options, generation, stages, dump, tuned)
        _build(imported, lowered, generation, outputs, stages, report, options, given.code)
        report.sources = [os.path.abspath(path) for path in _read(imported, options)]
    stages("")
    report.nodes = sum(1 for _ in walk(lowered[0].graph))
    if options.target == "native" and measured_facts(targets[0].name) is None:
        report.unmeasured = unmeasured(lowered[0].graph, targets[0])
    return report


def _read(imported: Imported, options: Options) -> dict[str, str]:
    """The files that were read, and what they are."""
    model = {} if imported.model.path is None else {os.fspath(imported.model.path): "model"}
    external = {file.path: "external data" for file in imported.model.external.opened()}
    return {**model, **external, **{os.fspath(path): "operators" for path in options.operators}}


def _lower_all(
    graph: Graph,
    again: Callable[[], Imported],
    targets: Sequence[Target],
    options: Options,
    generation: objects.CodeGeneration,
    stages: _Stages,
    dump: _Dump,
    tuned: Tuned | None,
) -> list[Lowered]:
    """The graph lowered for each target, whose kernels are compiled meanwhile. again: imports it once more,
    for passes that another target needs: a value knows one graph's nodes."""
    lowered = []
    optimised: dict[object, Graph] = {}
    for target in targets:
        each = dump if len(targets) == 1 else dump.of(target.name)
        if target.seen_by_passes not in optimised:
            source = again().graph if optimised else graph
            stages("optimise")
            optimised[target.seen_by_passes] = optimise(source, target, each, options)
        emitted = partial(generation.add_kernels, target=target)
        lowered.append(lower(optimised[target.seen_by_passes], target, stages, each, emitted, tuned))
    return lowered


def compile_archive(
    models: Mapping[str, str | os.PathLike],
    output: str | os.PathLike,
    options: Options = DEFAULTS,
    *,
    headers: str | os.PathLike | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    besides: Besides = (),
) -> list[Report]:
    """Compiles models, given by their names, to one static archive in which they share a runtime.

    headers: the folder of their C headers, NAME.h each. besides: what the caller writes. What is written
    appears whole or not at all."""
    places = [Path(headers) / f"{name}.h" for name in models] if headers is not None else []
    for path in (Path(output), *places):
        files.check_output(path)
    machine = find_targets(options.target)[0]
    prefixes = {symbol_prefix(name): name for name in models}
    for name in models:
        if prefixes[symbol_prefix(name)] != name:
            raise UsageError(
                f"'{name}' and '{prefixes[symbol_prefix(name)]}' would have the same symbols",
                remedy="give the models other names",
            )
    written = [*(("header", place) for place in places), ("archive", output), *besides]
    reports = []
    with (
        tempfile.TemporaryDirectory(prefix="onnxc-") as work,
        files.replacing(*places, Path(output)) as temporaries,
    ):
        members: list[Path] = []
        for number, (name, model) in enumerate(models.items()):
            folder = Path(work) / str(number)
            folder.mkdir()
            header = temporaries[number] if places else None
            each = options.with_(name=name, header=header)
            made = folder / "model.a"
            report = compile_model(model, made, each, jobs=jobs, progress=progress, besides=written)
            if report.weights_file is not None:
                raise CompileError(
                    f"the weights of '{name}' need a file of their own",
                    remedy="compile it to an archive of its own, with --weights-file",
                )
            reports.append(replace(report, output=os.fspath(output)))
            members += link.unarchive(made, folder, machine)
        link.archive(members, temporaries[-1], Path(work), machine)
    return reports


def _asked(options: Options) -> dict[str, object]:
    """In which numbers the model was to be computed and stored, as its library tells it."""
    weights = Narrowing.of(options.weights)
    return {"precision": options.precision, "weights": None if weights is None else weights.as_json()}


def _build(
    imported: Imported,
    lowered: Sequence[Lowered],
    generation: objects.CodeGeneration,
    outputs: Outputs,
    stages: _Stages,
    report: Report,
    options: Options,
    code: Sequence[custom.CustomCode],
) -> None:
    """The library of what is lowered, whose kernels are being compiled already."""
    work, name = generation.directory, options.name or default_name(outputs.library)
    prefix, kind = symbol_prefix(name), link.output_kind(outputs.library)
    plans, machine = [each.plan for each in lowered], lowered[0].target  # the same kind for all
    kernels = [objects.name_kernels(each) for each in lowered]
    report.kernels = sum(map(len, kernels))
    if outputs.weights is None and constant_bytes(plans) > LIBRARY_LIMIT:
        outputs = replace(outputs, weights=Path(f"{outputs.library}.weights"))
        outputs.refuse_overwriting(_read(imported, options))
    decodes = any(getattr(n.op, "symbol", "") == "decode_image" for each in lowered for n in walk(each.graph))
    if decodes:
        images.require(machine)
    with (
        files.replacing(*outputs) as temporaries,
        start_runtime(
            work, machine, runtime_prefix(kind, prefix), flags=[images.FLAG] if decodes else []
        ) as runtime,
    ):
        made = outputs.at(temporaries)
        stages("write weights")
        weights_path = made.weights or work / "weights.o"
        weights = write_weights(plans, weights_path, made.weights is not None, imported.model.forget)
        report.weights_bytes = weights.nbytes
        stages("generate code")
        weights_name = outputs.weights_name
        description = _emit(imported, lowered, kernels, weights, generation, options, name, weights_name)
        report.workspace_bytes = None if description.workspace_bytes < 0 else description.workspace_bytes
        tables = tables_text(description, runtime.names, kind == "so")
        generation.add("tables", tables, machine.triple, BASELINE, DATA)
        if made.header is not None:
            made.header.write_text(header.model_header(description), encoding="utf-8")
        own = [rename(path, local_prefix(kind, prefix)) for path in generation.finish()]
        parts = [*own, *(part for c in code for part in c.parts(kind))]
        if made.weights is None:
            parts.append(weights_object(weights_path, prefix, like=parts[0]))
        stages("link")
        if report.weights_bytes > LARGE_WEIGHTS:
            workers.stop()
        link.link(
            parts,
            runtime.wait(),
            made.library,
            directory=work,
            kind=kind,
            prefix=prefix,
            target=machine,
            soname=options.soname or outputs.library.name,
            libraries=[
                *(images.LINKED if decodes else ()),
                *(flag for c in code for flag in c.flags(kind, outputs.library)),
            ],
        )
    report.library_bytes = outputs.library.stat().st_size
    report.weights_file = None if outputs.weights is None else os.fspath(outputs.weights)


def _emit(
    imported: Imported,
    lowered: Sequence[Lowered],
    kernels: Sequence[Mapping[str, str]],
    weights: Weights,
    generation: objects.CodeGeneration,
    options: Options,
    name: str,
    weights_file: str | None,
) -> LibraryDescription:
    """Hands `bind` and `run` of each target to code generation; what the library's tables then tell.
    kernels: for each target the names of its kernels' texts."""
    prefix, modules = symbol_prefix(name), []
    for number, (each, names, offsets) in enumerate(zip(lowered, kernels, weights.offsets)):
        entries = entry_points(prefix, number)
        modules.append(emit_module(each, names, offsets, entries))
        generation.add(entries[1], modules[-1].text, each.target.triple, each.target.processor)
    return describe(
        lowered,
        modules,
        output_names=[o.name for o in imported.model.proto.graph.output],
        dim_names=imported.dim_names,
        details=library_details(imported, lowered[0].graph) | summary(lowered[0].graph) | _asked(options),
        prefix=prefix,
        name=name,
        threads=options.threads,
        weights=weights,
        weights_file=weights_file,
        checks_handles=options.debug,
    )


def initializer_bytes(imported: Imported) -> int:
    """Bytes of the model's stored tensors, those of Constant nodes included."""
    return sum(
        dims.product(t.dims) * itemsize(DTYPE_NAMES[t.data_type])
        for t in all_tensors(imported.model.proto)
        if DTYPE_NAMES.get(t.data_type) in ALL
    )


def default_name(output: Path) -> str:
    """The library's name when none is given: the file's stem."""
    return output.name.split(".")[0] or "model"


class _Dump:
    """Writes the graph after each stage to DIR/NN_stage.txt."""

    def __init__(self, directory: str | os.PathLike | None):
        self.directory = Path(directory) if directory is not None else None
        self.count = 0
        if self.directory is None:
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:  # a NUL in its name
            reason = f"cannot be made: {getattr(error, 'strerror', None) or error}"
            raise CompileError(reason, origin=Origin(str(self.directory))) from None

    def of(self, target: str) -> Callable[[str, Graph], None]:
        """The same for one of several targets."""
        return lambda name, graph: self(f"{name}_{target}", graph)

    def __call__(self, name: str, graph: Graph) -> None:
        if self.directory is not None:
            path = self.directory / f"{self.count:02}_{name}.txt"
            try:
                path.write_text(str(graph), encoding="utf-8")
            except OSError as error:
                raise CompileError(
                    f"cannot be written: {error.strerror}", origin=Origin(os.fspath(path))
                ) from error
            self.count += 1
