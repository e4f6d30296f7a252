"""The pipeline: from a model to a library, stage after stage, in the one order there is.

Each stage is timed, reported to `progress`, verified, and, with `dump_ir`, written as IR text. Nothing
appears at the output path until the library is complete.
"""
from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from . import dims
from .codegen import link, model_c, objects
from .codegen.description import describe
from .codegen.kernel import Code
from .codegen.module import emit_module
from .dtypes import ALL, itemsize
from .errors import CompileError, LimitError, Origin
from .frontend.importer import Imported, Options, import_model
from .frontend.tensors import DTYPE_NAMES
from .frontend.walk import all_tensors
from .ir import Graph, Node, walk
from .passes import (
    absorb_transposes,
    eliminate_common,
    eliminate_dead,
    expand_recurrent,
    fold_affine,
    fold_constants,
    fold_pads,
    fuse_attention,
    fuse_epilogues,
    fuse_maps,
    fuse_rows,
    inline_scalars,
)
from .passes.plan_memory import Plan, plan_memory
from .passes.select_kernels import select_kernels
from .target import Target, find_target
from .verify import verify

#: Every pass on core ops, in order.
PASSES: tuple[Callable[[Graph, Target], Graph], ...] = (
    eliminate_dead.eliminate_dead,
    expand_recurrent.expand_recurrent,
    fold_constants.fold_constants,
    inline_scalars.inline_scalars,
    eliminate_common.eliminate_common,
    fold_pads.fold_pads,
    absorb_transposes.absorb_transposes,
    eliminate_dead.eliminate_dead,
    fuse_attention.fuse_attention,
    eliminate_dead.eliminate_dead,
    fuse_maps.fuse_maps,
    eliminate_dead.eliminate_dead,
    fuse_maps.fuse_maps,  # what a Map took in may leave another with a single reader
    fold_affine.fold_affine,
    eliminate_dead.eliminate_dead,
    fuse_epilogues.fuse_epilogues,
    fuse_rows.fuse_rows,
    eliminate_dead.eliminate_dead,
)

ARENA_LIMIT = 8 << 30  # bytes of a static arena


@dataclass
class Report:
    """What a compilation did: seconds of each stage, and sizes in bytes."""

    seconds: dict[str, float] = field(default_factory=dict)
    output: str = ""
    target: str = ""
    library_bytes: int = 0
    weights_bytes: int = 0
    initializer_bytes: int = 0
    workspace_bytes: int | None = None  # None where it depends on the inputs' sizes
    kernels: int = 0
    nodes: int = 0

    def as_json(self) -> dict[str, object]:
        return dict(vars(self))


Progress = Callable[[str], None]


class _Stages:
    """Times stages one after the other and tells progress of each."""

    def __init__(self, report: Report, progress: Progress | None):
        self.report, self.progress = report, progress or (lambda stage: None)
        self.name, self.began = "", 0.0

    def __call__(self, name: str) -> None:
        now = time.perf_counter()
        if self.name:
            self.report.seconds[self.name] = self.report.seconds.get(self.name, 0.0) + now - self.began
        self.name, self.began = name, now
        if name:
            self.progress(name)


def compile_model(
    model: object,
    output: str | os.PathLike,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    target: str = "native",
    threads: int | None = None,
    name: str | None = None,
    overridable: bool = False,
    dump_ir: str | os.PathLike | None = None,
    header: str | os.PathLike | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Compiles a model (path, bytes or ModelProto) to `output`, a .so or, for static linking, a .o.

    dims: sizes of named dimensions. shapes: whole shapes of inputs. target: a name of `target.TARGETS` or
    "native". threads: how many the library uses unless told otherwise (None: one a processor). name: prefix
    of the exported symbol. header: where to write the C header. jobs: child processes that generate code.
    Errors are of the `OnnxcError` family.
    """
    output, report = Path(output), Report(output=os.fspath(output))
    written = {"library": output} | ({"header": Path(header)} if header is not None else {})
    for path in written.values():
        link.check_output(path)
    read = {"model": Path(model)} if isinstance(model, (str, os.PathLike)) else {}
    _refuse_same_files(read | written)
    chosen = find_target(target)
    report.target = chosen.name
    stages = _Stages(report, progress)
    dump = _Dump(dump_ir)
    stages("import")
    imported = import_model(model, Options(dims or {}, shapes or {}, overridable))
    for file in imported.model.external.opened():
        _refuse_same_files({"external data": Path(file.path)} | written)
    report.initializer_bytes = initializer_bytes(imported)
    stages("optimise")
    graph = optimise(imported.graph, chosen, dump)
    stages("select kernels")
    graph = select_kernels(graph, chosen)
    dump("select_kernels", graph)
    verify(graph, "kernels")
    stages("emit kernels")
    codes = emit_kernels(graph, chosen)
    stages("plan memory")
    plan = plan_memory(graph, codes)
    check_arena(plan)
    with tempfile.TemporaryDirectory(prefix="onnxc-") as work:
        _build(imported, graph, plan, codes, chosen, Path(work), output, stages, report,
               name=name or default_name(output), threads=threads, header=header, jobs=jobs)
    stages("")
    report.nodes = sum(1 for _ in walk(graph))
    return report


def _refuse_same_files(paths: Mapping[str, Path]) -> None:
    """What is written may not take the place of what is read or written besides."""
    for (one, first), (other, second) in itertools.combinations(paths.items(), 2):
        with contextlib.suppress(ValueError):  # no file has a NUL in its name
            if os.path.realpath(first) == os.path.realpath(second):
                origin = Origin(os.fspath(second))
                raise CompileError(f"the {other} would be written over the {one}", origin=origin)


def optimise(graph: Graph, target: Target, dump: Callable[[str, Graph], None] | None = None) -> Graph:
    """graph after PASSES, verified after each."""
    dump = dump or (lambda name, graph: None)
    verify(graph)
    dump("import", graph)
    for step in PASSES:
        graph = step(graph, target)
        dump(step.__name__, graph)
        try:
            verify(graph)
        except Exception as error:
            raise CompileError(f"the pass {step.__name__} left an invalid graph: {error}") from error
    return graph


def emit_kernels(graph: Graph, target: Target) -> dict[Node, Code]:
    """The code of every node that a kernel runs."""
    return {n: n.choice.kernel.emit(n, n.choice, target) for n in walk(graph) if n.choice is not None}


def _build(
    imported: Imported,
    graph: Graph,
    plan: Plan,
    codes: dict[Node, Code],
    target: Target,
    work: Path,
    output: Path,
    stages: _Stages,
    report: Report,
    *,
    name: str,
    threads: int | None,
    header: object,
    jobs: int | None,
) -> None:
    prefix = model_c.symbol_prefix(name)
    texts = list(dict.fromkeys(step.text for code in codes.values() for step in code.steps))
    kernels = objects.name_kernels(texts, prefix)
    report.kernels = len(kernels)
    stages("write weights")
    offsets = write_constants(plan, work / "weights.bin")
    report.weights_bytes = (work / "weights.bin").stat().st_size
    stages("generate code")
    module = emit_module(graph, plan, codes, kernels, offsets, target, prefix)
    description = describe(
        imported,
        graph,
        plan,
        codes,
        module,
        target,
        prefix=prefix,
        name=name,
        threads=threads,
        weights_bytes=report.weights_bytes,
    )
    report.workspace_bytes = None if description.workspace_bytes < 0 else description.workspace_bytes
    runtime = link.start_compile(
        model_c.model_source(description), work, target, kind=link.output_kind(output)
    )
    try:
        compiled = objects.compile_objects(module.text, kernels, target, work, jobs)
        stages("link")
        imported.model.check_unchanged()
        link.link(compiled, runtime, work / "weights.bin", output, prefix=prefix, target=target)
    except BaseException:
        runtime.stop()
        raise
    if header is not None:
        link.write_beside(Path(header), model_c.model_header(description).encode())
    report.library_bytes = output.stat().st_size


def write_constants(plan: Plan, path: Path) -> list[int]:
    """Writes the constants, equal ones once, each at a multiple of 64 bytes; the offset of each."""
    offsets: list[int] = []
    seen: dict[bytes, int] = {}
    made: dict[int, int] = {}
    with path.open("wb") as file:
        for constant in plan.constants:
            if id(constant) in made:
                offsets.append(made[id(constant)])
                continue
            data = _bytes_of(constant.array)
            digest = hashlib.sha256(data).digest()
            if digest not in seen:
                file.write(b"\0" * (-file.tell() % 64))
                seen[digest] = file.tell()
                file.write(data)
            made[id(constant)] = seen[digest]
            offsets.append(seen[digest])
        # so that even an empty constant has an address, and vector loads at the end stay inside
        file.write(b"\0" * 64)
    return offsets


def _bytes_of(array) -> memoryview:
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def initializer_bytes(imported: Imported) -> int:
    """Bytes of the model's stored tensors, those of Constant nodes included."""
    return sum(
        dims.product(t.dims) * itemsize(DTYPE_NAMES[t.data_type])
        for t in all_tensors(imported.model.proto) if DTYPE_NAMES.get(t.data_type) in ALL
    )


def default_name(output: Path) -> str:
    """The library's name when none is given: the file's stem."""
    return output.name.split(".")[0] or "model"


def check_arena(plan: Plan) -> None:
    """Refuses a static plan over ARENA_LIMIT with LimitError."""
    if plan.static and plan.arena_bytes > ARENA_LIMIT:
        raise LimitError(
            f"the model needs {plan.arena_bytes:,} bytes for its intermediate values, "
            f"more than the limit of {ARENA_LIMIT:,}"
        )


class _Dump:
    """Writes the graph after each stage to DIR/NN_stage.txt."""

    def __init__(self, directory: str | os.PathLike | None):
        self.directory = Path(directory) if directory is not None else None
        self.count = 0
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)

    def __call__(self, name: str, graph: Graph) -> None:
        if self.directory is not None:
            (self.directory / f"{self.count:02}_{name}.txt").write_text(str(graph))
            self.count += 1
