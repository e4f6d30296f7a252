"""What a graph expects of its integer inputs: rows of a table, masks, the number that a branch waits for.

Found by what reads an input, or a value that only moves or casts one: a Gather's indices; a mask that is
asked whether it is 0, taken from 1, or gives places, or, all ones, lengths; a scalar that equals a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..records import dataclass
from . import dtypes
from .expr import Expr, topological
from .graph import Graph, TensorType, Value
from .ops import MOVING, Cumulate, Gather, If, Map, Op, Reduce


@dataclass(frozen=True)
class Expected:
    """Indices below `rows`; or, of a mask, 0 and 1, the zeros behind the ones along the last axis; or
    everywhere `one` of some numbers."""

    rows: int | None = None
    mask: bool = False
    one: tuple[int, ...] = ()


def expected_of(graph: Graph) -> dict[str, Expected]:
    """What is expected of inputs of integers, by name, where the graph tells."""
    tensors = [v for v in graph.inputs if isinstance(v.type, TensorType)]
    origins = {v: v.name for v in tensors if v.name and dtypes.is_integer(v.dtype)}
    rows: dict[str, int] = {}
    masks: set[str] = set()
    waited: dict[str, set[int]] = {}
    for op, inputs, outputs in _applied(graph, {}):
        read = {k: origins[v] for k, v in enumerate(inputs) if v in origins}
        if not read:
            continue
        if isinstance(op, Gather) and op.form == "axis" and 1 in read:
            size = inputs[0].shape[op.axis]
            if isinstance(size, int) and size:
                rows[read[1]] = min(size, rows.get(read[1], size))
        elif isinstance(op, Cumulate) and 0 in read:
            masks.add(read[0])
        elif isinstance(op, Reduce) and op.kind == "sum" and op.body is None:
            waited.setdefault(read[0], set()).add(1)  # a length: what lies behind it has no meaning
        elif isinstance(op, Map):
            for k, name in read.items():
                if inputs[k].shape == ():
                    waited.setdefault(name, set()).update(_compared(op.body, inputs, k))
                elif _masks(op.body, k):
                    masks.add(name)
        if isinstance(op, MOVING) or (isinstance(op, Map) and _casts(op.body)):
            origins |= {output: name for name in read.values() for output in outputs}
    found = {name: Expected(one=tuple(sorted(numbers))) for name, numbers in waited.items() if numbers}
    found |= {name: Expected(mask=True) for name in masks}
    return found | {name: Expected(rows=count) for name, count in rows.items()}


Applied = tuple[Op, list[Value], tuple[Value, ...]]


def _applied(graph: Graph, outer: Mapping[Value, Value]) -> Iterator[Applied]:
    """(op, inputs, outputs) of each node, also of those in branches; outer: what a branch's inputs are."""
    for node in graph.nodes:
        inputs = [outer.get(v, v) for v in node.inputs]
        for branch in (node.op.then, node.op.otherwise) if isinstance(node.op, If) else ():
            yield from _applied(branch, dict(zip(branch.inputs, inputs[1:])))
        yield node.op, inputs, node.outputs


def _casts(body: Expr) -> bool:
    """Whether it is its operand as another integer type."""
    while body.op == "cast" and dtypes.is_integer(body.dtype):
        body = body.args[0]
    return body.op == "input"


def _operand(e: Expr, k: int) -> bool:
    """Whether e is the k-th operand, maybe cast."""
    while e.op == "cast":
        e = e.args[0]
    return e.op == "input" and e.value == k


def _masks(body: Expr, k: int) -> bool:
    """Whether the operand is asked whether it is 0, or is taken from 1."""
    for e in topological(body):
        if e.op == "cast" and e.dtype == "bool" and _operand(e.args[0], k):
            return True
        if e.op == "sub" and e.args[0].op == "const" and e.args[0].value == 1 and _operand(e.args[1], k):
            return True
    return False


def _compared(body: Expr, inputs: Sequence[Value], k: int) -> Iterator[int]:
    """The numbers that the k-th of a Map's inputs is asked to equal."""
    for e in topological(body):
        if e.op == "eq" and any(_operand(x, k) for x in e.args):
            for other in e.args:
                number = other.value if other.op == "const" else None
                if other.op == "input" and (constant := inputs[other.value].constant) is not None:
                    number = constant.array.item() if constant.array.size == 1 else None
                if number is not None:
                    yield int(number)


def drawn(expected: Expected, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """int64 values that are expected."""
    if expected.one:
        return np.full(shape, generator.choice(expected.one), np.int64)
    if expected.mask:
        length = shape[-1] if shape else 1
        ones = generator.integers((length + 1) // 2, length + 1, (*shape[:-1], 1)) if length else 0
        return np.broadcast_to(np.arange(length) < ones, shape or (1,)).astype(np.int64).reshape(shape)
    return generator.integers(0, expected.rows or 1, shape)
