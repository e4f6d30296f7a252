"""Messages: one short printable line with its place, however hostile the names."""

import json
import os
import pickle

import pytest

from onnxc.diagnostics import Diagnostic, DiagnosticList, ModelErrors
from onnxc.errors import (
    LimitError,
    ModelError,
    OnnxcError,
    Origin,
    RunError,
    UnsupportedError,
    quote,
    shorten,
)

PLACE = Origin("m.onnx", "conv1", "Conv", "", 13, 4)


def test_a_message_begins_with_its_place_and_ends_with_the_remedy():
    error = UnsupportedError("no 4-D kernels", origin=PLACE, remedy="use 2-D")
    assert str(error) == "m.onnx: node 'conv1' (Conv of opset 13): no 4-D kernels; use 2-D"


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        (Origin(), "r"),
        (Origin(file="m"), "m: r"),
        (Origin(index=3), "node #3: r"),
        (Origin(op_type="Conv", domain="com.x", opset=1), "com.x.Conv of opset 1: r"),
        (Origin(node="a", index=3), "node 'a': r"),
    ],
)
def test_a_place_may_be_partly_known(origin, text):
    assert str(ModelError("r", origin=origin)) == text


def test_a_place_is_completed_from_outside_and_never_overwritten():
    error = ModelError("r", origin=Origin(node="inner")).at(Origin("m.onnx", "outer", "If"))
    assert error.origin == Origin("m.onnx", "inner", "If")


@pytest.mark.parametrize("name", ["a" * 10**6, "é" * 10**6, "\x1b[31m\n\r" * 1000, "\ud800" * 999])
def test_hostile_names_give_short_printable_lines(name):
    error = ModelError(f"bad {name}", origin=Origin(name, name, name, name), remedy=name)
    errors = ModelErrors([Diagnostic(name, node=name, op_type=name)] * 3, name)
    for line in [str(error), str(errors), *errors.lines()]:
        assert len(line.encode()) <= 1000
        assert line.isprintable()


def test_names_are_cut_in_the_middle():
    assert shorten("a" * 50 + "b" * 50, 11) == "aaaaa…bbbbb"
    assert quote(b"a\xff\n") == "'a\\xff\\x0a'"
    assert quote(os.fsdecode(b"a\xff\x80\n")) == "'a\\xff\\x80\\x0a'"  # a path, as Python has it
    assert quote("\ud800") == "'\\xd800'"


@pytest.mark.parametrize(
    "error",
    [
        RunError("r", status=7, origin=PLACE),
        LimitError("r", remedy="m"),
        ModelErrors([Diagnostic("r", node="n")], "m.onnx"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_the_way_out_of_a_worker_process(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_all_errors_are_of_one_family():
    assert issubclass(ModelErrors, OnnxcError)
    assert RunError("r", status=3).status == 3


def test_an_error_becomes_a_diagnostic_and_prints_the_same():
    error = UnsupportedError("r", origin=Origin("", "conv1", "Conv", "", 13, 4), remedy="m")
    assert str(Diagnostic.of(error)) == str(error)
    assert Diagnostic.of(error).kind == "unsupported"


def test_diagnostics_are_lines_and_json():
    found = DiagnosticList()
    found.add("first", PLACE)
    found.add("second", kind="unsupported", remedy="wait")
    assert str(found) == "node 'conv1' (Conv of opset 13): first\nsecond; wait"
    assert json.loads(found.to_json())[0] == {
        "reason": "first",
        "kind": "invalid",
        "node": "conv1",
        "op_type": "Conv",
        "domain": "",
        "opset": 13,
        "index": 4,
        "remedy": "",
    }
