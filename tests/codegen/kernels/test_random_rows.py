"""Random groups over rows against the interpreter: what is kept where, which pass computes what, how operands
repeat."""

from random import Random

import numpy as np
import pytest
from support.harness import TARGETS
from support.nests import compare
from support.rows import group, symbolic_types

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import rows
from onnxc.ir import dtypes, expr
from onnxc.ir.graph import TensorType

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 33, 40, 64)
ALONG = (expr.tanh, abs, lambda x: x * x, lambda x: expr.exp(expr.tanh(x)), lambda x: x / 2 + 1)
WITH_NUMBER = (
    lambda x, n: x - n,
    lambda x, n: x / (abs(n) + 1),
    lambda x, n: x / expr.sqrt(abs(n) + 0.5),
    lambda x, n: expr.exp((x - n).minimum(0.5)),
    lambda x, n: expr.tanh(x * n),
)
NUMBERS = (lambda n: expr.log(abs(n) + 1), lambda n: expr.sqrt(abs(n)), lambda n: 1 / (abs(n) + 1))


def operands(random):
    """(shapes of the operands, axes of a row): the first operand is whole, the others repeat somewhere."""
    rank = random.randint(1, 4)
    shape = [random.choice(SIZES) for _ in range(rank)]
    while np.prod(shape) > 20_000:
        shape[random.randrange(rank)] = 2
    shapes = [tuple(shape)]
    for _ in range(random.randint(0, 3)):
        other = tuple(size if random.random() < 0.6 else 1 for size in shape)
        shapes.append(other[random.choice((0, 0, 1)) if rank > 1 else 0 :])
    return shapes, tuple(range(random.randint(max(0, rank - 3), rank - 1), rank))


def written(seed):
    """What writes a region of a few reductions, maps of whole rows and numbers, some of them results."""

    def write(r, whole, *others):
        random = Random(seed)
        wide = [r.map(lambda *all: expr.sum_of(all), whole, *others)]
        numbers = [r.reduce(random.choice(("sum", "max", "min")), wide[0])]
        for _ in range(random.randint(4, 12)):
            value, kind = random.choice(wide[-2:]), random.random()
            if kind < 0.3:
                numbers.append(r.reduce(random.choice(("sum", "max", "min")), value))
            elif kind < 0.5:
                wide.append(r.map(random.choice(ALONG), value))
            elif kind < 0.85:
                wide.append(r.map(random.choice(WITH_NUMBER), value, numbers[-1]))
            elif kind < 0.92:
                numbers.append(r.map(random.choice(NUMBERS), random.choice(numbers)))
            else:
                wide.append(r.map(lambda a, b: expr.tanh(a + b), value, random.choice(wide)))
        share = random.choice((0, 0.3))
        last = random.choice((wide, numbers))[-1]
        return last, *(v for v in (*wide, *numbers) if v is not last and random.random() < share)

    return write


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("seed", range(12))
def test_drawn_groups_of_rows_are_computed_as_written(target, dtype, seed):
    shapes, axes = operands(Random(seed))
    arrays = [
        np.random.default_rng(n).normal(0, 1, shape).astype(dtypes.numpy_dtype(dtype))
        for n, shape in enumerate(shapes)
    ]
    for types in ([TensorType(dtype, a.shape) for a in arrays], symbolic_types(arrays)):
        node = group(types, axes, written(seed))
        choices = choices_of(rows, node, target)
        assert choices or len(axes) > 1  # only rows of short lines are refused
        for choice in choices:
            compare(node, choice, arrays, target, tolerance={"float32": 2e-4, "bfloat16": 0.2}.get(dtype))
