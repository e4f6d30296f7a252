"""Weighed sums of what a Gather picks, against the interpreter."""

import numpy as np
import pytest
from support import harness
from support.blocked_cases import Case, check, random, same_bits_in_any_cut, symbols
from support.harness import TARGETS

from onnxc.codegen import abi
from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import gathered_sums
from onnxc.ir import dims, dtypes
from onnxc.ir.expr import input_
from onnxc.ir.graph import Graph, TensorType, Value, make_node
from onnxc.ir.ops import Fused, Gather, Reduce


def case(shape, axis, terms, size, dtype=np.float32, known=True, open_=None):
    """A sum of so many terms for each of `size` places of an axis; known: whether the places are constant.
    open_: the shape and the number of terms where the run tells them."""
    x = random(*shape, dtype=dtype)
    low = 0 if known else -shape[axis]
    places = np.random.default_rng(terms).integers(low, shape[axis], (terms, size))
    weights = random(terms, size, *[1] * (len(shape) - 1 - axis), dtype=dtype)
    arrays, kind = [x, places, weights], dtypes.from_numpy(np.dtype(dtype))
    *told, count = open_ or (*shape, terms)
    shapes = [tuple(told), (count, size), (count, *weights.shape[1:])]
    parameters = [Value(TensorType(d, s)) for d, s in zip((kind, "int64", kind), shapes)]
    picked = make_node(Gather("axis", axis), parameters[:2])
    product = input_(0, kind) * input_(1, kind)
    total = make_node(Reduce("sum", (axis,), False, product), (picked.outputs[0], parameters[2]))
    region = Graph(tuple(parameters), total.outputs, (picked, total))
    return Case(
        Fused("gathered sum", region),
        arrays,
        (1, 2) if known else (),
        dict(enumerate(shapes)) if open_ else None,
    )


@TARGETS
@pytest.mark.parametrize("axis", [0, 2, 3])
@pytest.mark.parametrize("terms", [1, 5])
@pytest.mark.parametrize("known", [True, False])
def test_sums_are_gathered_along_every_axis(target, axis, terms, known):
    check(case((2, 3, 7, 21), axis, terms, 18, known=known), gathered_sums, target)


@TARGETS
@pytest.mark.parametrize("axis", [1, 2])
def test_long_rows_and_other_types(target, axis):
    check(case((2, 9, 150), axis, 4, 70, np.float64), gathered_sums, target)


@TARGETS
@pytest.mark.parametrize("axis", [2, 3])
def test_as_many_terms_as_the_run_tells(target, axis):
    open_ = (1, 3, *symbols("h", "w"), dims.symbol("t", 1))
    check(case((1, 3, 9, 40), axis, 6, 35, known=False, open_=open_), gathered_sums, target)


@pytest.mark.parametrize("axis", [2, 3])
def test_places_outside_end_the_run(axis):
    target, given = harness.RUNNABLE[-1], case((1, 2, 5, 5), axis, 3, 20, known=False)
    given.arrays[1][2, 13] = 5
    node = given.node()
    (choice,) = choices_of(gathered_sums, node, target)
    found = harness.run_choice(node, choice, given.arrays, target)
    assert found == (abi.ERRORS["index_out_of_range"], 5)


@pytest.mark.parametrize("axis", [2, 3])
def test_the_same_bits_in_any_cut(axis):
    same_bits_in_any_cut(case((1, 3, 90, 100), axis, 8, 64), gathered_sums, harness.RUNNABLE[-1])
