"""`onnxc reduce`: the smallest model that still is refused, ends the process, hangs or disagrees.

Delta debugging over nodes (Zeller and Hildebrandt, 2002): ever smaller sets of the nodes are tried, each as
a model of its own. What such a piece reads of the rest are its inputs, with the values that they have in a
run of another implementation; what the rest reads of it are its outputs. Each is compiled and run in a
process that may end as it likes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as Late
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

from .. import console
from ..codegen.library.files import replacing
from ..diagnostics import ModelErrors
from ..errors import CompileError, LimitError, OnnxcError, Origin, RunError, one_line, shorten
from ..options import Options
from ..record import Record
from .actions import OK, compile_options, default_reference
from .comparison import compare, ports_of, reference
from .ending import Ended, ending_clean
from .written import check_written

PROTOBUF_LIMIT = 1 << 31  # bytes of a message
GRACE = 3.0  # seconds that a process has to take away what it began


class Fault(Record):
    """What is wrong, in words that follow "it", and the causes, the first of which counts most. Two pieces
    have the same fault when the second has the first cause of the first, names and numbers aside."""

    kind: str
    causes: tuple[str, ...] = ()

    def same(self, other: Fault | None) -> bool:
        if other is None or self.kind != other.kind:
            return False
        return self.kind == "departs" or set(self.patterns()[:1]) <= set(other.patterns())

    def patterns(self) -> list[str]:
        return [re.sub(r"'[^']*'|\d+", "_", cause) for cause in self.causes]

    def __str__(self) -> str:
        return f"it {self.kind}: {'; '.join(self.causes)}" if self.causes else f"it {self.kind}"


class Trial(Record):
    """What a piece is tried with: values of its inputs, those that its outputs should have, where they are
    known, and how it is compiled and compared."""

    feeds: Mapping[str, Any]
    expected: Mapping[str, Any]
    options: Options
    rtol: float | None = None
    atol: float | None = None


def reduce_command(options: argparse.Namespace) -> int:
    from ..inputs import arrays_of, write_arrays

    options.beside = inputs = options.output.with_suffix(".npz")
    check_written(options, "output", "beside")
    proto = load_model(options.model)
    how = compile_options(options)
    values = values_of(proto, options)
    with (
        ending_clean(),
        console.Progress(f"reduce {shorten(options.model.name)}") as progress,
        Bench(options.seconds) as bench,
    ):
        pieces = Pieces(proto, values)

        def fault(nodes: Sequence[int]) -> Fault | None:
            progress(f"{len(nodes)} of {len(proto.graph.node)} nodes")
            piece = pieces.of(nodes)
            return None if piece is None else bench.fault(piece, pieces.trial(piece, how, options))

        wanted = fault(range(len(proto.graph.node)))
        if wanted is None:
            raise RunError(
                "the model compiles, and runs as it should: there is nothing to reduce",
                remedy="give the inputs with which it fails: --input, --dim, --shape",
            )
        kept = minimal(range(len(proto.graph.node)), lambda nodes: wanted.same(fault(nodes)))
        piece, found = pieces.of(kept), fault(kept) or wanted
    arrays = arrays_of(pieces.trial(piece, how, options).feeds)
    with replacing(*([inputs] if arrays else []), options.output) as temporaries:
        temporaries[-1].write_bytes(piece.SerializeToString())
        if arrays:
            with temporaries[0].open("wb") as file:
                write_arrays(file, arrays)
    before, after = len(proto.graph.node), len(piece.graph.node)
    operators = [node.op_type for node in piece.graph.node]
    if options.json:
        told = {"fault": found.kind, "causes": found.causes, "before": before, "nodes": after}
        files = {"file": str(options.output), "inputs": str(inputs) if arrays else None}
        console.print_json({**told, "operators": operators, **files})
        return OK
    print(f"{shorten(str(options.model))}: {found}")
    print(f"{after} of {before} nodes: {shorten(', '.join(operators), 300)}")
    print(f"written to {options.output}{f', its inputs to {inputs}' if arrays else ''}")
    return OK


def load_model(path: Path) -> Any:
    """The model with its external data, its functions as they are."""
    from ..frontend.model_file import open_model
    from ..frontend.tensors import whole

    proto = whole(open_model(path))
    if proto.ByteSize() >= PROTOBUF_LIMIT:
        raise LimitError("models of 2 GB and more cannot be cut into pieces").at(Origin(os.fspath(path)))
    return proto


def values_of(proto: Any, options: argparse.Namespace) -> dict[str, Any]:
    """The values of the model's inputs and of all that it computes, by another implementation; nothing of
    what that cannot run."""
    import onnx

    from ..inputs import make_inputs

    sizes = options.dims, options.shapes
    feeds = make_inputs(ports_of(proto), options.input, *sizes, options.seed).feeds
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    known = {output.name for output in whole.graph.output}
    computed = [name for node in whole.graph.node for name in node.output if name]
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in computed if name not in known)
    names = [output.name for output in whole.graph.output]
    try:
        return {**feeds, **dict(zip(names, reference(whole, options.against or default_reference())(feeds)))}
    except OnnxcError as error:
        print(f"onnxc: {error}; pieces are compiled and run, not compared", file=sys.stderr)
        return dict(feeds)


# Pieces ------------------------------------------------------------------------------------------


class Pieces:
    """Models of some of the nodes of a model."""

    def __init__(self, proto: Any, values: Mapping[str, Any]):
        from ..frontend.walk import definitions, topological_order

        self.proto, self.values = proto, values
        self.order = {node: place for place, node in enumerate(topological_order(proto.graph.node)[0])}
        self.types = self._types()
        self.known = definitions(proto.graph)

    def _types(self) -> dict[str, Any]:
        """ValueInfoProtos of what can be an input, as far as they are known."""
        import onnx

        try:
            graph = onnx.shape_inference.infer_shapes(self.proto).graph
        except Exception:  # of an invalid model as much is known as it says
            graph = self.proto.graph
        types = {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)}
        for name, value in self.values.items():
            if isinstance(value, np.ndarray):
                types[name] = _array_type(name, value)
        types.update({value.name: value for value in graph.input})
        return types

    def of(self, nodes: Iterable[int]) -> Any:
        """The model of these nodes; None where the type of an input is not known."""
        import onnx

        from ..frontend.walk import captured_names, initializers

        kept = [self.proto.graph.node[k] for k in sorted(nodes, key=lambda k: self.order.get(k, k))]
        names = {name for node in kept for name in node.output if name}
        rest = {id(node) for node in kept}
        read = dict.fromkeys(name for node in kept for name in (*node.input, *captured_names(node)) if name)
        others = [node for node in self.proto.graph.node if id(node) not in rest]
        outside = {name for node in others for name in (*node.input, *captured_names(node))}
        outside |= {output.name for output in self.proto.graph.output}
        piece = onnx.ModelProto()
        piece.CopyFrom(onnx.ModelProto(ir_version=self.proto.ir_version))
        piece.opset_import.extend(self.proto.opset_import)
        piece.functions.extend(self.proto.functions)
        graph = piece.graph
        graph.name = self.proto.graph.name or "piece"
        graph.node.extend(kept)
        stored = self.proto.graph.initializer
        graph.initializer.extend(tensor for tensor in stored if tensor.name in read)
        sparse = self.proto.graph.sparse_initializer
        graph.sparse_initializer.extend(tensor for tensor in sparse if tensor.values.name in read)
        constant = initializers(graph)
        for name in read:
            if name in names or name in constant:
                continue
            if name not in self.known:
                continue  # nobody defines it: what may be wrong with the model
            if name not in self.types:
                return None
            graph.input.append(self.types[name])
        declared = {value.name: value for value in self.proto.graph.output}
        ends = [name for name in names if name in outside or not any(name in node.input for node in kept)]
        for name in sorted(ends):
            graph.output.append(declared.get(name) or self.types.get(name) or onnx.ValueInfoProto(name=name))
        return piece if kept and ends else None

    def trial(self, piece: Any, how: Options, options: argparse.Namespace) -> Trial:
        inputs, outputs = ([value.name for value in them] for them in (piece.graph.input, piece.graph.output))
        feeds = {name: self.values[name] for name in inputs if name in self.values}
        expected = {name: self.values[name] for name in outputs if name in self.values}
        return Trial(feeds, expected, how, options.rtol, options.atol)


def _array_type(name: str, array: np.ndarray) -> Any:
    from onnx import TensorProto, helper

    kind = TensorProto.STRING if array.dtype.kind in "OUS" else helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def minimal(items: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """A subset that fails and of which no item can be left out; `items` fail."""
    kept, parts = list(items), 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        pieces = [kept[begin : begin + size] for begin in range(0, len(kept), size)]
        rests = [[k for k in kept if k not in set(piece)] for piece in pieces] if len(pieces) > 2 else []
        smaller = next((piece for piece in pieces if fails(piece)), None)
        if smaller is not None:
            kept, parts = smaller, 2
            continue
        smaller = next((rest for rest in rests if fails(rest)), None)
        if smaller is not None:
            kept, parts = smaller, max(2, parts - 1)
        elif size == 1:
            break
        else:
            parts = min(len(kept), 2 * parts)
    return kept


# Trials ------------------------------------------------------------------------------------------


def try_piece(content: bytes, trial: Trial) -> Fault | None:
    """Compiles the model, runs it where its inputs are known, and compares what is known of its outputs."""
    from ..driver import compile_model
    from ..loading.loader import load

    with tempfile.TemporaryDirectory(prefix="onnxc-reduce-") as folder:
        source, library = Path(folder) / "model.onnx", Path(folder) / "model.so"
        source.write_bytes(content)
        try:
            compile_model(source, library, trial.options)
            model = load(library)
        except ModelErrors as errors:
            return Fault("is refused", tuple(problem.reason for problem in errors.diagnostics))
        except OnnxcError as error:
            return Fault("is refused", (error.reason,))
        except Exception as error:
            return Fault("fails", (f"{type(error).__name__}: {one_line(str(error), 300)}",))
        if any(port.name not in trial.feeds and not port.optional for port in model.inputs):
            return None
        try:
            results = model.run(None, dict(trial.feeds))
        except OnnxcError as error:
            return Fault("fails when it runs", (error.reason,))
    for port, result in zip(model.outputs, results):
        if port.name in trial.expected:
            difference = compare(port.name, trial.expected[port.name], result, trial.rtol, trial.atol)
            if not difference.agrees:
                return Fault("departs", (f"'{port.name}': {difference.reason}",))
    return None


def _begin(folder: str) -> None:
    """What a process that tries pieces does first. It leaves files in the folder alone, and ends with the
    process that started it."""
    tempfile.tempdir = folder
    starter = multiprocessing.parent_process()
    assert starter is not None

    def end_with(starter: BaseProcess) -> None:
        starter.join()
        os._exit(1)

    with suppress(RuntimeError):  # where no thread can be started a killed starter leaves the process
        threading.Thread(target=end_with, args=(starter,), daemon=True).start()


def _attempted(attempt: Callable[[bytes, Any], Fault | None], content: bytes, trial: Any) -> Fault | None:
    """What the attempt finds. Who asks the process to end has what it began taken away."""
    try:
        with ending_clean():
            return attempt(content, trial)
    except Ended as asked:
        asked.end()
        raise


class Bench:
    """Where pieces are tried: another process, a new one after each that ended or hung. Their temporary files
    are in a folder of the bench."""

    def __init__(self, seconds: float, attempt: Callable[[bytes, Any], Fault | None] = try_piece):
        self.seconds, self.attempt = seconds, attempt
        self.pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Bench:
        self.folder = tempfile.TemporaryDirectory(prefix="onnxc-reduce-", ignore_cleanup_errors=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()
        self.folder.cleanup()

    def fault(self, piece: Any, trial: Any) -> Fault | None:
        try:
            return self._tried(piece.SerializeToString(), trial).result(self.seconds)
        except BrokenProcessPool:
            self._end()
            return Fault("crashes")
        except Late:
            self._end()
            return Fault("hangs", (f"after {self.seconds:g} seconds",))

    def _tried(self, content: bytes, trial: Any) -> Future:
        if self.pool is None:
            context = multiprocessing.get_context("spawn")
            self.pool = ProcessPoolExecutor(1, context, _begin, (self.folder.name,))
        try:
            return self.pool.submit(_attempted, self.attempt, content, trial)
        except BrokenProcessPool:
            raise
        except RuntimeError:  # as `threading` has it
            self._end(begun=False)
            raise CompileError(
                "pieces cannot be tried: no thread can be started", remedy="allow more threads"
            ) from None

    def _end(self, begun: bool = True) -> None:
        """begun: whether there is a thread of the pool's to wait for."""
        pool, self.pool = self.pool, None
        if pool is not None:
            for process in list(pool._processes.values()):
                process.terminate()
                process.join(GRACE)
                process.kill()
            pool.shutdown(wait=begun)
