"""Every option is said once: what takes options takes those of the record, as it has them by default."""

import inspect
import json

import numpy as np
import pytest

import onnxc
from onnxc import CompileError
from onnxc.commands.cli import make_parser
from onnxc.errors import UsageError
from onnxc.options import Options, checked

#: How it is compiled, which changes nothing of what is made.
OF_THE_COMPILATION = {"model", "output", "dump_ir", "jobs", "progress", "tune"}
#: By which it is measured what `weights` is to be.
MEASURED = {"weights_error", "calibration"}


def test_compile_takes_the_options_of_the_record():
    parameters = inspect.signature(onnxc.compile).parameters
    assert parameters.keys() == {*Options._fields, *OF_THE_COMPILATION, *MEASURED}
    for name in Options._fields:
        assert (parameters[name].default or None) == (getattr(Options, name) or None), name


def test_the_command_line_takes_the_options_of_the_record():
    given = make_parser().parse_args(["compile", "model.onnx", "-o", "model.so"])
    assert vars(given).keys() >= set(Options._fields)
    assert Options.of(vars(given)).told() == {}


def test_the_command_line_gathers_pairs():
    given = "compile m.onnx -o m.so --dim a=1 --dim b=2 --shape x=1,? --state p=q --value y=[1] --typical c=3"
    asked = Options.of(vars(make_parser().parse_args(given.split())))
    tables = (asked.dims, asked.shapes, asked.states, asked.values, asked.typical)
    assert tables == ({"a": 1, "b": 2}, {"x": (1, None)}, {"p": "q"}, {"y": [1]}, {"c": 3})


def test_sizes_are_integers_of_any_kind():
    two = np.int64(2)
    asked = Options.of(
        {
            "dims": {"a": two, "b": True},
            "shapes": {"x": np.array([2, 3]), "y": (None, two)},
            "typical": {"b": two},
        }
    )
    assert asked == Options(dims={"a": 2, "b": 1}, shapes={"x": (2, 3), "y": (None, 2)}, typical={"b": 2})
    assert type(asked.dims["b"]) is int
    assert json.loads(json.dumps(asked.told()))["shapes"] == {"x": [2, 3], "y": [None, 2]}


@pytest.mark.parametrize(
    "given",
    [
        {"dims": {"a": 2.0}},
        {"dims": {"a": None}},
        {"dims": 2},
        {"shapes": {"x": 2}},
        {"shapes": {"x": "23"}},
        {"shapes": {"x": ("a", 3)}},
        {"typical": {"a": "2"}},
        {"threads": 2.5},
    ],
    ids=str,
)
def test_what_is_no_size_is_refused_in_one_sentence(given):
    with pytest.raises(CompileError, match="has something else than integers"):
        Options.of(given)


@pytest.mark.parametrize("given", [{"threads": -1}, {"typical": {"a": 3, "b": -3}}], ids=str)
def test_what_is_negative_is_refused_in_one_sentence(given):
    with pytest.raises(CompileError, match="is negative"):
        Options.of(given)


#: Of each kind of option what it is not.
WRONG = {
    "states": ("p=q", {"p": 1}, ["p"]),
    "values": (1, [1], {1: 2}),
    "overridable": ("x", 2, [1]),
    "operators": ("rules.py", 1, [1]),
    "target": (1, b"native", [1]),
    "precision": (1, np.ones(2)),
    "model": ("a\ud800",),
    "output": (1, []),
    "weights": (8, {"format": "int8"}),
    "weights_error": (-1, float("nan"), "0.1", [0.1]),
    "calibration": ("x.npz", 1, [1], {1: np.ones(2)}),
    "debug": ("yes", 2, np.ones(2)),
    "name": (1, b"a", "a\0"),
    "soname": (1, b"a", "a\0", "\ud800"),
    "header": (1, []),
    "dump_ir": (1, []),
    "jobs": (0, -1, 2.0, "2"),
    "progress": ("shown",),
    "tune": (-1, 0, float("nan"), float("inf"), "1"),
}


@pytest.mark.parametrize(
    ("name", "given"), [(name, value) for name in WRONG for value in WRONG[name]], ids=repr
)
def test_what_compile_does_not_take_is_refused_in_one_sentence(name, given):
    with pytest.raises(CompileError, match=rf"^{name}=") as raised:
        onnxc.compile(**{"model": "none.onnx", "output": "none.so", name: given})
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("name", ["precision", "optimize"])
def test_a_name_that_is_not_known_is_refused_as_all_else_is(name):
    with pytest.raises(UsageError, match=f"^unknown {name} 'half'; known are "):
        Options.of({name: "half"})


def test_who_writes_a_file_says_what_is_wrong_with_its_path():
    with pytest.raises(CompileError, match="cannot be written: embedded null byte"):
        onnxc.compile("none.onnx", "none.so", header="a\0")


def test_numbers_and_paths_are_of_any_kind():
    taken = {"weights_error": np.float32(0.5), "tune": np.int64(2), "jobs": np.uint8(3), "debug": np.True_}
    assert {name: checked(name, value) for name, value in taken.items()} == {
        "weights_error": 0.5,
        "tune": 2.0,
        "jobs": 3,
        "debug": True,
    }
    assert checked("header", b"a.h") == "a.h" and checked("overridable", ("x",)) == {"x"}


@pytest.mark.parametrize("given", [1, None, []], ids=repr)
def test_what_is_no_model_is_refused_in_one_sentence(given):
    with pytest.raises(onnxc.ModelError, match="a model is a path, bytes or an"):
        onnxc.compile(given, "none.so")


def test_what_is_told_of_options_is_json_and_leaves_out_defaults():
    assert Options(dims={}, target="native").told() == {}
    asked = Options(dims={"b": 2, "a": 1}, values={"x": np.ones(2, "i2")}, overridable=frozenset("yx"))
    assert asked.told() == {
        "dims": {"a": 1, "b": 2},
        "values": {"x": {"dtype": "<i2", "shape": [2], "values": [1, 1]}},
        "overridable": ["x", "y"],
    }
