"""What is read at known places is a part of what it is read from; other places are looked up."""

import onnx
import pytest
from support.pass_text import ops

from onnxc.frontend.importer import import_model


def read(text, shape="float[2, N, 3]", more=""):
    """The ops that reading from x becomes."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({shape} x{more}) => (float y) {{ {text} }}'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return ops(import_model(model).graph)


@pytest.mark.parametrize("place, axis", [(1, 0), (-1, 0), (2, 2), (-3, 2)])
def test_one_known_place_of_an_axis_of_known_size_is_a_slice(place, axis):
    found = read(f"i = Constant <value_int = {place}> () y = Gather <axis = {axis}> (x, i)")
    assert found == ["Slice", "Reshape"]


@pytest.mark.parametrize(
    "text",
    [
        "i = Constant <value_int = 1> () y = Gather <axis = 1> (x, i)",  # N may be 1
        "i = Constant <value_int = 2> () y = Gather <axis = 0> (x, i)",  # which fails the run
        "i = Constant <value_ints = [1, 0]> () y = Gather <axis = 0> (x, i)",
    ],
)
def test_other_places_are_looked_up(text):
    assert read(text) == ["Gather"]


def test_positions_of_one_axis_are_rows():
    found = read("y = GatherND (x, i)", more=", int64[R, 1] i")
    assert found == ["Reshape", "Gather"]
