"""Random: numbers from a counter, so that parts and threads do not matter.

The element's index, the seed and the number of runs of the context are mixed by the finaliser of SplitMix64
(Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators"); normal numbers come in pairs of
uniform ones by Box and Muller's formula.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence

from ...ir import dims, dtypes, expr
from ...ir.dims import ceil_divide
from ...ir.expr import Expr
from ...ir.graph import Node
from ...ir.ops import Random
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Argument, Choice, Code, KernelText, Offer, as_it_is, single
from ..nests.operands import each_vector, vector_lanes
from ..text.emitter import vector_constant
from ..text.memory import store_lanes
from ..text.scalar import lower

PART = 4096
_GOLDEN = 0x9E3779B97F4A7C15


def candidates(node: Node, target: Target) -> Iterable[Offer[None]]:
    if isinstance(node.op, Random):
        yield Offer(_cost(node, target), None)


pack = as_it_is


def emit(node: Node[Random], choice: Choice[None], target: Target) -> Code:
    op, output = node.op, node.outputs[0]
    count, width = output.tensor.count, dtypes.itemsize(op.dtype)
    k = KernelText(target)
    body, lanes = _body(op), vector_lanes(target, _body(op))
    with k.entry() as f:
        run = f.word(Argument("run"), "i64") if op.seed is None else "0"
        (seed,) = lower(f, [_seed(op)], lambda _: run, 1)
        begin = f.mul("%first", PART)

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            for at in indices:
                place = f.add(begin, at)
                index = f.broadcast("i64", place, lanes)
                if lanes > 1:
                    index = f.binary("add", index, vector_constant("i64", range(lanes)))
                (value,) = lower(f, [body], [index, f.broadcast("i64", seed, lanes)].__getitem__, lanes)
                store_lanes(f, op.dtype, value, f.element(f.output(), place, width), lanes, mask)

        stop = f.minimum(f.mul("%last", PART), f.size(count))
        each_vector(f, f.sub(stop, begin), lanes, 1, vectors)
    return single(k.step(ceil_divide(count, PART), costs.work(_cost(node, target), count)))


def _cost(node: Node, target: Target) -> Estimate:
    return costs.overhead(target, costs.RANDOM * dims.typical(node.outputs[0].tensor.count)) + costs.step(
        target
    )


def _body(op: Random) -> Expr:
    """The number at index operand 0 with the seed operand 1, both uint64."""
    wide = op.dtype if op.dtype in ("float32", "float64") else "float32"
    index, seed = expr.input_(0, "uint64"), expr.input_(1, "uint64")
    if op.kind == "uniform":
        result = _unit(_mixed(index * _GOLDEN + seed), wide) * (op.b - op.a) + op.a
    else:
        # in (0, 1], so that its logarithm is finite
        one = 1 - _unit(_mixed(index * 2 * _GOLDEN + seed), wide)
        two = _unit(_mixed((index * 2 + 1) * _GOLDEN + seed), wide)
        result = expr.sqrt(expr.log(one) * -2) * expr.apply("cos", two * (2 * math.pi)) * op.b + op.a
    return result.cast(op.dtype)


def _seed(op: Random) -> Expr:
    """Of the run operand 0, uint64. Runs count from 1, since 0 mixed is 0."""
    return _mixed((expr.input_(0, "uint64") + 1) * _GOLDEN + _seed_bits(op.seed))


def _seed_bits(seed: float | None) -> int:
    return 0x5DEECE66D if seed is None else struct.unpack("<Q", struct.pack("<d", seed))[0]


def _mixed(x: Expr) -> Expr:
    """64 bits that depend on every bit of x."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


def _unit(x: Expr, dtype: str) -> Expr:
    """A number in [0, 1) from the upper bits."""
    digits = 24 if dtype == "float32" else 53
    return (x >> (64 - digits)).cast(dtype) * 2.0**-digits
