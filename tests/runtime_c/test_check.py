"""What the run holds lists against: the type that the model declares of what is in them."""

import ctypes

import numpy as np
import pytest
from support.small_models import parsed

import onnxc
from onnxc.codegen.abi import ERRORS, KINDS
from onnxc.errors import RunError
from onnxc.ir.dtypes import NUMBERS
from onnxc.loading.c_values import CValue

X = np.ones(2, np.float32)
TYPES = {
    "tensors": "seq(float[n])",
    "maps": "seq(map(int64, float))",
    "lists": "seq(seq(float[n]))",
    "tensor or nothing": "optional(float[n])",
    "list or nothing": "optional(seq(float[n]))",
    "map": "map(int64, float)",
}


@pytest.fixture(scope="module")
def handed_on(tmp_path_factory):
    """Models that hand a value of each type on."""
    folder = tmp_path_factory.mktemp("lists")
    return {
        name: onnxc.load(onnxc.compile(parsed(f"g ({type_} v) => ({type_} v) {{ }}"), folder / f"{k}.so"))
        for k, (name, type_) in enumerate(TYPES.items())
    }


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("tensors", [X, 2 * X], [[1, 1], [2, 2]]),
        ("tensors", [], []),
        ("maps", [{1: 0.5}, {}], [{1: 0.5}, {}]),
        ("lists", [[X], []], [[[1, 1]], []]),
        ("tensor or nothing", X, [1, 1]),
        ("tensor or nothing", [1.0, 2.0], [1, 2]),
        ("tensor or nothing", [], []),
        ("tensor or nothing", None, None),
        ("list or nothing", [X], [[1, 1]]),
        ("list or nothing", [], []),
        ("map", {1: 0.5}, {1: 0.5}),
    ],
)
def test_values_of_the_declared_type_are_taken(handed_on, name, value, same):
    (found,) = handed_on[name].run(None, {"v": value})
    if name == "tensor or nothing" and value is not None:
        assert found.dtype == np.float32
    assert plain(found) == same


def plain(value):
    if isinstance(value, list):
        return list(map(plain, value))
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("tensors", [X, [X]], "input 'v': item 1: expected a tensor, got a sequence"),
        ("tensors", [[1.0, 2.0]], "input 'v': item 0: expected a tensor, got a sequence"),
        ("tensors", [{1: 0.5}], "input 'v': item 0: expected a tensor, got a map"),
        ("maps", [X], "input 'v': item 0: expected a map, got a tensor"),
        ("lists", [[X], X], "input 'v': item 1: expected a sequence, got a tensor"),
        ("lists", [[[X]]], "input 'v': item 0: expected a tensor, got a sequence"),
        ("list or nothing", [[X]], "input 'v': item 0: expected a tensor, got a sequence"),
        ("list or nothing", X, "input 'v': expected a list of arrays, got a ndarray"),
        ("map", [X, X], "input 'v': expected a dict, got a list"),
    ],
)
def test_values_of_another_kind_are_refused(handed_on, name, value, sentence):
    with pytest.raises(RunError, match=sentence) as caught:
        handed_on[name].run(None, {"v": value})
    assert caught.value.status == ERRORS["wrong_kind"]


@pytest.mark.parametrize(
    ("name", "value", "place", "changed", "status", "sentence"),
    [
        (
            "list or nothing",
            [X],
            0,
            {"kind": KINDS["tensor"]},
            "wrong_kind",
            "expected a sequence, got a tens",
        ),
        ("map", {1: 2.0}, 0, {"dtype": NUMBERS["uint64"]}, "wrong_dtype", "expected int64, got uint64"),
        ("map", {1: 2.0}, 1, {"dtype": NUMBERS["int32"]}, "wrong_dtype", "expected float32, got int32"),
        ("map", {1: 2.0}, 1, {"kind": KINDS["map"]}, "wrong_kind", "item 1: expected a tensor, got a map"),
    ],
)
def test_what_a_program_in_c_puts_into_a_list_is_held_against_it(
    handed_on, name, value, place, changed, status, sentence
):
    model = handed_on[name]
    context, lent = model.acquire(), []
    context.inputs[0].fill(value, lent)
    item = CValue.from_address(context.arrays[0][0].data + place * ctypes.sizeof(CValue))
    for field, number in changed.items():
        setattr(item, field, number)
    with pytest.raises(RunError, match=f"input 'v': .*{sentence}") as caught:
        context.call()
    assert caught.value.status == ERRORS[status]
    model.give_back(context)
