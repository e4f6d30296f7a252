"""What is remembered of a thing goes with it."""

import gc
import sys
import weakref

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxc
from onnxc.ir.remembered import remembered


class Thing:
    pass


def test_a_result_is_found_once_for_each_thing_and_arguments():
    asked = []

    @remembered(2)
    def size(thing, unit, *, more=0):
        asked.append((unit, more))
        return unit + more

    thing, other = Thing(), Thing()
    assert [size(thing, 1), size(thing, 1), size(thing, 1, more=2), size(other, 1)] == [1, 1, 3, 1]
    assert asked == [(1, 0), (1, 2), (1, 0)]


def test_so_many_of_the_last_are_kept():
    asked = []

    @remembered(2)
    def size(thing, unit):
        asked.append(unit)

    thing = Thing()
    for unit in (1, 2, 3, 2, 1):
        size(thing, unit)
    assert asked == [1, 2, 3, 1]


def test_a_thing_is_not_kept():
    size = remembered()(lambda thing: 1)
    thing = Thing()
    size(thing)
    gone = weakref.ref(thing)
    del thing
    assert gone() is None


@pytest.mark.parametrize("stored", ["float", "float16"])
def test_a_model_that_was_compiled_is_let_go(tmp_path, stored):
    """Weights that arrive slowly, and those that are stored in fewer bits, are looked at several times."""
    rows = 3000
    cast = "c = Cast<to=1>(w)" if stored == "float16" else "c = Identity(w)"
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>'
        f"g (float[1,{rows}] x) => (float[1,{rows}] y) {{ {cast} y = MatMul(x, c) }}"
    )
    weights = np.random.default_rng(0).standard_normal((rows, rows))
    kind = np.float16 if stored == "float16" else np.float32
    model.graph.initializer.append(numpy_helper.from_array(weights.astype(kind), "w"))
    data = model.SerializeToString()
    del model
    before = sys.getrefcount(data)
    onnxc.compile(data, tmp_path / "m.so")
    gc.collect()
    assert sys.getrefcount(data) == before
