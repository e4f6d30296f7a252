"""narrow_weights: on request float32 weights of products, and tables of embeddings, are stored in fewer bits.

contract(%x, W: float32[n, k])
    →   contract(%x, map(%q: int8[n, k], %s: float32[n, 1]) { mul(cast($0, float32), $1) })

f16 and bf16 round each weight, int8 has a scale for each sum (of a table: each row), int4 one for every 32
terms, where these divide. Kernels read what is stored; those of convolutions only halves, those of products
one matrix, whose columns are the result's innermost axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import CompileError
from ..ir import dims, dtypes, expr
from ..ir.graph import Constant, Graph, Node, Rewriter, Value, constant_value
from ..ir.interpret import run_op
from ..ir.ops import Contract, Conv, Gather, Map, Op, Reshape, Transpose
from ..ir.stored import stored_weights
from ..records import dataclass

#: The formats, and the types in which they are stored.
FORMATS = {"f16": "float16", "bf16": "bfloat16", "int8": "int8", "int4": "int4"}
HALVES = ("f16", "bf16")
LEAST = 4096  # elements of weights for which it is worth it
BLOCK = 32  # weights of int4 that share a scale


@dataclass(frozen=True)
class Narrowing:
    """In which of FORMATS weights are stored. `kept`: the layers whose weights stay as they are. `given`: is
    told all layers, of which then none is narrowed: their weights are inputs, by the names of the layers."""

    format: str
    kept: frozenset[str] = frozenset()
    given: Callable[[list[Layer]], None] | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise CompileError(f"unknown weights '{self.format}'; known are {', '.join(FORMATS)}")

    @classmethod
    def of(cls, told: Narrowing | str | Mapping[str, Any] | None) -> Narrowing | None:
        """What an option, or a library by `as_json`, says."""
        if isinstance(told, Mapping):
            return cls(told["format"], frozenset(told["kept"]))
        return cls(told) if isinstance(told, str) else told

    def as_json(self) -> dict[str, object]:
        return {"format": self.format, "kept": sorted(self.kept)}


@dataclass(frozen=True)
class Layer:
    """Weights that may be narrowed: `axes` are those that a product sums over, or that make a table's row."""

    name: str
    value: Value
    axes: tuple[int, ...]

    @property
    def array(self) -> np.ndarray:
        return self.value.data.array

    def stored(self, format: str) -> list[tuple[Op, list[Value]]]:
        """The steps that make the weights of what is stored, each of the constants beside the step before."""
        source, dtype = self.value.data, FORMATS[format]
        shape, axis = source.shape, self.axes[-1]
        if format in HALVES:
            narrow = _constant(dtype, shape, lambda: source.array.astype(dtypes.numpy_dtype(dtype)))
            return [(Map(expr.input_(0, dtype).cast("float32")), [narrow])]
        if format == "int4" and shape[axis] % BLOCK == 0:
            order = (*(k for k in range(len(shape)) if k != axis), axis)
            moved = tuple(shape[k] for k in order)
            blocks = (*moved[:-1], moved[-1] // BLOCK, BLOCK)
            steps = _quantised(source, "int4", lambda a: a.transpose(order).reshape(blocks), (-1,))
            turned: list[tuple[Op, list[Value]]] = [(Transpose(order).inverse, [])] * (axis != len(shape) - 1)
            return [*steps, (Reshape(moved), []), *turned]
        return _quantised(source, "int8", lambda a: a, self.axes)

    def narrowed(self, format: str) -> np.ndarray:
        """The numbers that the weights become."""
        found: list[np.ndarray] = []
        for op, constants in self.stored(format):
            found = run_op(op, [*found, *(v.data.array for v in constants)], {})
        return found[0]

    def nbytes(self, format: str | None) -> int:
        """Of what is stored, as panels hold it; None: as they are."""
        if format is None:
            return self.value.data.nbytes
        parts = [v.data for _, constants in self.stored(format) for v in constants]
        return sum(-(-dims.product(c.shape) * dtypes.bits(c.dtype) // 8) for c in parts)


def narrow_weights(graph: Graph, narrowing: Narrowing) -> Graph:
    """graph with its weights stored so."""
    found = {layer.value: layer for layer in layers(graph, narrowing.format)}
    if narrowing.given is not None:
        narrowing.given(list(found.values()))
        given = {v: Value(v.type, layer.name) for v, layer in found.items()}
        nodes = [replace(n, inputs=tuple(given.get(v, v) for v in n.inputs)) for n in graph.nodes]
        return replace(graph, inputs=(*graph.inputs, *given.values()), nodes=tuple(nodes))
    rewriter = Rewriter(graph)
    made: dict[Value, Value] = {}
    for node in graph.nodes:
        inputs = [rewriter.of(v) for v in node.inputs]
        for k, value in enumerate(inputs):
            layer = found.get(value)
            if layer is not None and layer.name not in narrowing.kept:
                if value not in made:
                    made[value] = _written(rewriter, layer, narrowing.format, node.origin)
                inputs[k] = made[value]
        rewriter.copy(node, tuple(inputs))
    return rewriter.finish()


def layers(graph: Graph, format: str) -> list[Layer]:
    """The weights that may be narrowed, named as the model or its node names them."""
    found: dict[Value, Layer] = {}
    names = {v.name for v in graph.inputs}
    for node in graph.nodes:
        for value, axes in _weights(node, format):
            plain = value.constant is not None and value.data.splat is None
            known = plain and value.dtype == "float32" and stored_weights(value.data) is None
            if not known or value in found or dims.product(value.data.shape) < LEAST:
                continue
            if not np.abs(value.data.array).max() <= _greatest(format):
                continue
            name = value.name or node.origin
            while name in names:
                name += "'"
            names.add(name)
            found[value] = Layer(name, value, axes)
    return list(found.values())


def _greatest(format: str) -> float:
    """The greatest magnitude of weights that the format has numbers near all of, which are finite."""
    dtype = dtypes.numpy_dtype(FORMATS[format] if format in HALVES else "float32")
    return float(ml_dtypes.finfo(dtype).max)


def _weights(node: Node, format: str) -> Iterator[tuple[Value, tuple[int, ...]]]:
    """The operands that may be weights of a layer, with their axes (`Layer`)."""
    match node.op:
        case Contract(lhs=lhs, rhs=rhs, out=out, accumulate="float32") if not node.op.exact:
            columns = next((c for c, n in zip(out[::-1], node.outputs[0].shape[::-1]) if n != 1), None)
            for labels, other, value in ((lhs, rhs, node.inputs[0]), (rhs, lhs, node.inputs[1])):
                axes = tuple(k for k, c in enumerate(labels) if c not in out and c in other)
                several = any(c in out and c in other for c, n in zip(labels, value.shape) if n != 1)
                if axes and not several and (columns is None or columns in labels):
                    yield value, axes
        case Conv(groups=1, transposed=False, accumulate="float32", exact=False) if format in HALVES:
            yield node.inputs[1], tuple(range(1, node.inputs[1].rank))
        case Gather(form="axis") if node.inputs[0].rank > 1 and node.op.axis != node.inputs[0].rank - 1:
            yield node.inputs[0], (node.inputs[0].rank - 1,)


def _written(rewriter: Rewriter, layer: Layer, format: str, origin: str) -> Value:
    found: list[Value] = []
    for op, constants in layer.stored(format):
        found = list(rewriter.add(op, [*found, *constants], origin))
    return found[0]


# Quantising --------------------------------------------------------------------------------------


def _quantised(
    source: Constant, dtype: str, view: Callable[[np.ndarray], np.ndarray], axes: tuple[int, ...]
) -> list[tuple[Op, list[Value]]]:
    """Integers and the scales that elements along `axes` share: the number of the greatest magnitude is the
    least integer of int4, and of int8 127 either way."""
    array = view(source.array)
    low, high = dtypes.integer_range(dtype)
    greatest = np.abs(array).max(axis=axes, keepdims=True)
    if dtype == "int4":
        place = np.abs(array).argmax(axis=axes[0], keepdims=True)
        greatest = np.take_along_axis(array, place, axes[0])
    scale = greatest / np.float32(low if dtype == "int4" else high)
    scale[np.abs(scale) < np.finfo(np.float32).tiny] = 1  # such weights are 0

    def make() -> np.ndarray:
        steps = np.rint(view(source.array) / scale)
        return np.clip(steps, low, high).astype(dtypes.numpy_dtype(dtype))

    stored = _constant(dtype, array.shape, make)
    scales = _constant("float32", scale.shape, lambda: scale)
    body = expr.input_(0, dtype).cast("int32").cast("float32") * expr.input_(1, "float32")
    return [(Map(body), [stored, scales])]


def _constant(dtype: str, shape: tuple[int, ...], make: Callable[[], np.ndarray]) -> Value:
    return constant_value(Constant(dtype, shape, make))
