"""Maps of elements that Gathers pick, against the interpreter."""

import numpy as np
import pytest
from support import harness
from support.blocked_cases import Case, check, random, same_bits_in_any_cut, symbols
from support.harness import TARGETS

from onnxc.codegen import abi
from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import gathered_maps
from onnxc.ir import dtypes, expr
from onnxc.ir.expr import input_
from onnxc.ir.graph import Graph, TensorType, Value, make_node
from onnxc.ir.ops import Broadcast, Fused, Gather, Map


def case(shape, points, dtype=np.float32, word="int32", inside=True, along=1, shared=True, open_=None):
    """x at two computed places a point, times what the point says and what the plane adds. inside: whether
    the places are clipped to be in x. along: how many planes the coordinates are of. open_: the shape of x
    and the number of points where the run tells them."""
    x, bias = random(*shape, dtype=dtype), random(*shape[:2], 1, dtype=dtype)
    low, high = (-2, shape[-1] + 1) if inside else (0, shape[-1] - 1)
    places = np.random.default_rng(points).uniform(low, high, (shape[0], along, points))
    arrays = [places.astype(np.float32), x, x, bias]
    kind = dtypes.from_numpy(np.dtype(dtype))
    *told, count = open_ or (*shape, points)
    whole = (*told[:2], count)
    shapes = [(told[0], along, count), tuple(told), tuple(told), (*told[:2], 1)]
    parameters = [Value(TensorType(d, s)) for d, s in zip(("float32", kind, kind, kind), shapes)]
    coordinates, image, other, added = parameters
    nodes, at = [], expr.floor(input_(0, "float32"))

    def picked(source, step):
        place = (at + step).cast(word)
        if inside:
            place = place.clip(0, expr.size(told[-1]).cast(word) - 1)
        nodes.append(make_node(Map(place), (coordinates,)))
        nodes.append(make_node(Broadcast(whole), nodes[-1].outputs))
        nodes.append(make_node(Gather("elements", 2), (source, nodes[-1].outputs[0])))
        return nodes[-1].outputs[0]

    one, two = picked(image, 0), picked(other, 1)
    a, b, c, d = input_(0, kind), input_(1, kind), input_(2, "float32"), input_(3, kind)
    weight = (c - expr.floor(c)).cast(kind)
    nodes.append(make_node(Map(a * weight + b * (1 - weight) + d), (one, two, coordinates, added)))
    region = Graph(tuple(parameters), nodes[-1].outputs, tuple(nodes))
    return Case(Fused("gathered map", region), arrays, (), dict(enumerate(shapes)) if open_ else None)


@TARGETS
@pytest.mark.parametrize("planes", [1, 3, 17])
@pytest.mark.parametrize("word", ["int32", "int64"])
@pytest.mark.parametrize("inside", [True, False])
def test_elements_are_picked_from_all_planes(target, planes, word, inside):
    check(case((2, planes, 50), 37, word=word, inside=inside), gathered_maps, target)


@TARGETS
@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32])
def test_other_types(target, dtype):
    check(case((1, 2, 20), 70, dtype), gathered_maps, target)


@TARGETS
def test_planes_with_places_of_their_own(target):
    check(case((2, 3, 30), 21, along=3), gathered_maps, target)


@TARGETS
@pytest.mark.parametrize("planes", [2, None])
def test_sizes_that_the_run_tells(target, planes):
    n, c, w, p = symbols("n", "c", "w", "p")
    check(case((2, 2, 40), 35, open_=(n, planes or c, w, p)), gathered_maps, target)


@pytest.mark.parametrize("place", [40, -41])
def test_places_outside_end_the_run(place):
    target, given = harness.RUNNABLE[-1], case((1, 2, 40), 35, inside=False)
    given.arrays[0][0, 0, 33] = place
    node = given.node()
    (choice,) = choices_of(gathered_maps, node, target)
    found = harness.run_choice(node, choice, given.arrays, target)
    assert found == (abi.ERRORS["index_out_of_range"], place)


def test_places_count_from_the_end():
    given = case((1, 2, 40), 35, inside=False)
    given.arrays[0][0, 0, 3:9] = -2
    check(given, gathered_maps, harness.RUNNABLE[-1])


def test_the_same_bits_in_any_cut():
    same_bits_in_any_cut(case((2, 3, 90), 3000), gathered_maps, harness.RUNNABLE[-1])
