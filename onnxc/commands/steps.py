"""What the steps of a run are: the node and the kernel behind each, what it computes, moves, and is bound by.

A library tells how long each of its steps took and of which node it is. The rest is found by lowering the
model once more: `expectations` are its nodes in order; `matched` of `loading/timing.py` finds that of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir import dims
from ..ir.dims import Dimension
from ..records import dataclass

if TYPE_CHECKING:
    from ..codegen.lowering.lower import Lowered
    from ..ir.graph import Graph, Node
    from ..target import Target


@dataclass(frozen=True)
class Work:
    """What a node computes, and the bytes that it reads, constants included, and writes. bound: a thread of
    this machine takes at least so many nanoseconds for the products, or for the bytes, whichever is more."""

    multiply_adds: int
    nbytes: int
    bound: float

    def __mul__(self, times: int) -> Work:
        return Work(self.multiply_adds * times, self.nbytes * times, self.bound * times)


@dataclass(frozen=True)
class Expected:
    """A node that a kernel runs, in that many steps: what was estimated of it (nanoseconds, in one thread, at
    typical sizes), and its work at the sizes asked for, None where these do not tell. copies: so many steps
    are left out where the result lies where the operand does."""

    node: str
    kernel: str
    choice: str
    compute: float
    memory: float
    overhead: float
    steps: int
    work: Work | None
    copies: int = 0


def expectations(
    lowered: Lowered, machine: Target, sizes: Mapping[str, int] | None = None
) -> Iterator[Expected]:
    """The nodes that kernels run, in their order. machine: the target whose facts make the bounds; sizes: of
    symbols, as `input_sizes` finds them."""
    from ..codegen.costs import touched
    from ..ir.graph import walk

    among = touched(lowered.graph)
    for node in walk(lowered.graph):
        if node in lowered.codes and node.choice is not None:
            cost, code = node.choice.cost, lowered.codes[node]
            parts = (cost.compute, cost.memory, cost.overhead)
            try:
                work = _work(node, machine, sizes or {}, among)
            except (KeyError, dims.TooComplex):
                work = None
            its = node.origin, node.choice.name, str(node.choice)
            yield Expected(*its, *parts, len(code.steps), work, code.copies)


def input_sizes(graph: Graph, feeds: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of the graph's symbols that these inputs have."""
    from ..ir.graph import TensorType

    return {
        atom.name: number
        for value in graph.inputs
        if isinstance(value.type, TensorType)
        for size, number in zip(value.shape, np.shape(feeds.get(value.name, ())))
        if isinstance(atom := dims.single_atom(size), dims.Symbol)
    }


# Work and bounds ---------------------------------------------------------------------------------


def _work(node: Node, machine: Target, sizes: Mapping[str, int], among: int) -> Work:
    from ..ir.arithmetic import multiply_adds_of

    read, constant, written = (_bytes(values, sizes) for values in _moved(node))
    constant -= _saved(node)
    read, constant = _read(node, read, written), _read(node, constant, written)
    bound = max(_products_ns(node, machine, sizes), _memory_ns(machine, read, constant, written, among))
    return Work(_number(multiply_adds_of(node), sizes), read + constant + written, bound)


def _number(size: Dimension, sizes: Mapping[str, int]) -> int:
    return dims.evaluate(size, sizes)


def _moved(node: Node) -> tuple[set, set, set]:
    """What a node reads that was computed, what it reads of constants, and what it writes: its tensors."""
    from ..ir.graph import TensorType

    tensors = {v for v in node.inputs if isinstance(v.type, TensorType)}
    constants = {v for v in tensors if v.constant is not None}
    return tensors - constants, constants, {v for v in node.outputs if isinstance(v.type, TensorType)}


def _bytes(values: Iterable, sizes: Mapping[str, int]) -> int:
    return sum(_number(v.type.nbytes, sizes) for v in values)


def _saved(node: Node) -> int:
    """The bytes by which packed constants are smaller than their numbers: codes of few bits, halves."""
    choice, saved = node.choice, 0
    if choice is None:
        return 0
    for operand in choice.packed:
        value = node.inputs[operand]
        packed = None if value.constant is None else choice.kernel.pack(node, choice, operand)
        if packed is not None:
            saved += max(0, dims.number(value.tensor.nbytes) - packed.nbytes)
    return saved


def _read(node: Node, nbytes: int, written: int) -> int:
    """Of a table no more is read than what is found there."""
    from ..ir.ops import Gather

    return min(nbytes, written) if isinstance(node.op, Gather) else nbytes


def _memory_ns(machine: Target, read: int, constant: int, written: int, among: int) -> float:
    """Computed values are as near as can be; between two uses of a constant lies all that a run touches."""
    from ..codegen.costs import READ, WRITTEN, rate

    near = (READ * read + WRITTEN * written) / rate(machine, read + written)
    return near + READ * constant / rate(machine, max(constant, among))


def _products_ns(node: Node, machine: Target, sizes: Mapping[str, int]) -> float:
    """The time of a node's products, by the fastest instructions for what its kernel multiplies: Winograd's,
    and those of windows over padding, are fewer. Winograd's transforms are instructions besides."""
    from ..codegen.kernel import Multiplied
    from ..ir.arithmetic import multiply_adds_of
    from ..ir.ops import Fused

    if isinstance(node.op, Fused):
        return sum(_products_ns(inner, machine, sizes) for inner in node.op.region.nodes)
    own = Multiplied() if node.choice is None else node.choice.multiplied(node, machine)
    count = _number(multiply_adds_of(node), sizes)
    if not count * own.share:
        return 0.0
    rate = _products_rate(machine, own.types or _types(node))
    return count * own.share / rate + count * own.besides / machine.facts.instructions


def _types(node: Node) -> tuple[str, str, str]:
    """Of a node's factors and sums."""
    from ..ir.ops import Contract, Conv

    if not isinstance(node.op, (Contract, Conv)):
        return (node.outputs[0].dtype,) * 3
    w = node.inputs[1].dtype
    x = w if isinstance(node.op, Conv) and node.op.narrow else node.inputs[0].dtype
    return x, w, node.op.accumulate


def _products_rate(machine: Target, types: tuple[str, str, str]) -> float:
    """Multiply-adds a nanosecond of the fastest instruction that a thread of the machine has for them."""
    from ..codegen.costs import dot_rate

    facts, lanes = machine.facts, machine.lanes(types[2])
    rates = [facts.multiply_adds * lanes]
    if dot := machine.integer_dot(*types):
        rates.append(facts.multiply_adds * lanes * dot.group * dot_rate(machine, dot))
    if matrix := machine.matrix(*types):
        rates.append(facts.matrix_products * matrix.rows * matrix.columns * matrix.depth)
    return max(rates)
