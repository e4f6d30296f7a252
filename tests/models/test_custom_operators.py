"""Operators that users bring: C functions, Python rules and operator set documents, in compiled models."""

from __future__ import annotations

import subprocess
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxc
from onnxc import custom
from onnxc.codegen.library.compiler import find_compiler
from onnxc.commands.cli import main
from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import run_graph

SOURCE = Path(__file__).parent / "custom_operators.c"
FLOAT, DOUBLE, INT64, STRING = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
value = helper.make_tensor_value_info
x = np.float32([[-3, 2], [5, 9]])


def model(nodes, inputs, outputs, version=1, domain="my.domain"):
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(domain, version)]
    return helper.make_model(
        helper.make_graph(nodes, "custom", inputs, outputs), opset_imports=imports, ir_version=10
    )


def node(op_type, inputs, outputs, domain="my.domain", **attributes):
    return helper.make_node(op_type, inputs, outputs, name="it", domain=domain, **attributes)


def clamp(version=1, **attributes):
    """Clamp behind one core op and before another."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        node("Clamp", ["a"], ["b"], **attributes),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    return model(nodes, [value("x", FLOAT, ["n", 2])], [value("y", FLOAT, None)], version)


def everything():
    """Every operator of the C file in one model."""
    nodes = [
        *clamp(low=-4.0).graph.node,
        node("Words", ["text"], ["found", "places", "sizes"], letter="b"),
        node("Words", ["text", "text"], ["", "", "sizes2"], lengths=[7]),
        helper.make_node("Concat", ["q", "r"], ["qr"], axis=1),
        node("Dots", ["p", "qr"], ["dots"]),
    ]
    inputs = [
        value("x", FLOAT, ["n", 2]),
        value("text", STRING, ["words"]),
        value("p", DOUBLE, ["rows", "k"]),
        value("q", DOUBLE, ["rows", "few"]),
        value("r", DOUBLE, ["rows", "more"]),
    ]
    names = ["y", "found", "places", "sizes", "sizes2", "dots"]
    return model(nodes, inputs, [onnx.ValueInfoProto(name=name) for name in names])


FEEDS = {
    "x": x,
    "text": np.array(["bear", "ant", "bee", ""], object),
    "p": np.arange(6.0).reshape(2, 3),
    "q": np.ones((2, 1)),
    "r": np.ones((2, 2)),
}


def check_everything(library):
    found = onnxc.load(library)
    y, words, places, sizes, more, dots = found.run(None, FEEDS)
    np.testing.assert_array_equal(y, -np.clip(-x, -4, 6))
    assert words.tolist() == ["bear", "bee"] and places.tolist() == [0, 2]
    assert sizes.tolist() == [1, -1] and more.tolist() == [7, 4]
    assert dots.tolist() == [3, 12]
    with pytest.raises(onnxc.RunError, match=r"it \(Dots\): dimensions do not match: expected 3, got 4"):
        found.run(None, FEEDS | {"q": np.ones((2, 2))})
    y, words, *_ = found.run(None, FEEDS | {"x": x[:0], "text": FEEDS["text"][1:2]})
    assert y.shape == (0, 2) and words.shape == (0,)


def compiled(source, tmp_path, *flags, suffix=".o"):
    made = tmp_path / f"operators{suffix}"
    command = [*find_compiler(), "-fPIC", f"-I{onnxc.get_include()}", *flags, str(source), "-o", str(made)]
    subprocess.run(command, check=True)
    return made


@pytest.mark.parametrize("form", ["source", "object", "archive", "shared library"])
def test_operators_in_c_come_as_source_object_archive_or_shared_library(form, tmp_path):
    file = SOURCE
    if form in ("object", "archive"):
        file = compiled(SOURCE, tmp_path, "-c")
    if form == "archive":
        archive = tmp_path / "operators.a"
        subprocess.run(["ar", "rcs", str(archive), str(file)], check=True)
        file = archive
    if form == "shared library":
        file = compiled(SOURCE, tmp_path, "-shared", suffix=".so")
    check_everything(onnxc.compile(everything(), tmp_path / "model.so", operators=[file]))


def test_a_library_does_not_take_the_place_of_its_operators(tmp_path):
    file = compiled(SOURCE, tmp_path, "-c")
    before = file.read_bytes()
    with pytest.raises(onnxc.CompileError, match="the library would be written over the operators"):
        onnxc.compile(everything(), file, operators=[file])
    assert file.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
def test_a_c_program_runs_a_model_with_operators_of_its_own(shared, tmp_path):
    onnx.save(clamp(low=-4.0, high=1.0), tmp_path / "clamped.onnx")
    operators = compiled(SOURCE, tmp_path, "-shared", suffix=".so") if shared else SOURCE
    kind = "so" if shared else "o"
    library = tmp_path / f"clamped.{kind}"
    command = ["compile", str(tmp_path / "clamped.onnx"), "-o", str(library), "--dim", "n=2"]
    assert main([*command, "--operators", str(operators)]) == 0
    (tmp_path / "main.c").write_text(
        """#include "clamped.h"
        #include <stdio.h>
        int main(void) {
            float x[4] = {-3, 2, 5, 9}, y[4];
            onnxc_context *context;
            if (clamped_model()->create(NULL, &context) != ONNXC_OK) return 1;
            if (clamped_run(context, x, y) != ONNXC_OK) return 2;
            for (int i = 0; i < 4; i++) printf("%g ", y[i]);
            clamped_model()->destroy(context);
            return 0;
        }"""
    )
    flags = [str(library), f"-Wl,-rpath,{tmp_path}", "-lm", "-pthread"]
    subprocess.run(
        [*find_compiler(), str(tmp_path / "main.c"), f"-I{tmp_path}", *flags, "-o", str(tmp_path / "main")],
        check=True,
    )
    assert subprocess.run([tmp_path / "main"], capture_output=True, check=True).stdout == b"-1 2 4 4 "


def test_a_failing_operator_fails_the_run_with_its_sentence(tmp_path):
    proto = everything()
    proto.graph.node[1].attribute.append(helper.make_attribute("high", -9.0))
    found = onnxc.load(onnxc.compile(proto, tmp_path / "model.so", operators=[SOURCE]))
    with pytest.raises(onnxc.RunError, match=r"it \(Clamp\): low is above high$"):
        found.run(None, FEEDS)


def test_an_operator_that_makes_no_output_or_only_a_status_fails_the_run(tmp_path):
    nodes = [node("Dots", ["a", "b"], ["y"]), node("Dots", ["c", "d"], ["z"])]
    inputs = [value(name, type_, ["k"]) for name, type_ in zip("abcd", [FLOAT, FLOAT, INT64, INT64])]
    for output, said in (("y", "did not make output 0"), ("z", r"failed|pointer|status")):
        proto = model(nodes, inputs, [onnx.ValueInfoProto(name=output)])
        found = onnxc.load(onnxc.compile(proto, tmp_path / f"{output}.so", operators=[SOURCE]))
        feeds = {
            i.name: np.zeros(3, helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)) for i in inputs
        }
        with pytest.raises(onnxc.RunError, match=said):
            found.run(None, feeds)


def test_the_operator_set_that_is_imported_decides_which_form_is_called(tmp_path):
    found = onnxc.InferenceSession(clamp(2).SerializeToString(), operators=[SOURCE])
    assert found.run(None, {"x": x})[0].tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    "proto, said",
    [
        (clamp(low=[1.0]), "attribute 'low'"),
        (clamp(knob=1.0), "attribute 'knob'"),
        (
            model([node("Clamp", ["x"], ["y"])], [value("x", DOUBLE, [2])], [value("y", DOUBLE, [2])]),
            "tensor",
        ),
        (model([node("Dots", ["x"], ["y"])], [value("x", DOUBLE, [2])], [value("y", DOUBLE, [2])]), "input"),
        (
            model(
                [node("Dots", ["x", "z"], ["y"])],
                [value("x", FLOAT, [2]), value("z", FLOAT, [3])],
                [value("y", FLOAT, [])],
            ),
            "its input 'B' is float32[3], a size 3 where 2 is needed",
        ),
        (
            model([node("Words", ["x"], ["y"])], [value("x", STRING, [2, 2])], [value("y", STRING, ["m"])]),
            "its input 'text' is string[2, 2] where 1 axes are needed",
        ),
        (
            model([node("Other", ["x"], ["y"])], [value("x", FLOAT, [2])], [value("y", FLOAT, [2])]),
            "--operators",
        ),
    ],
)
def test_a_node_that_contradicts_the_declaration_is_refused(proto, said, tmp_path):
    with pytest.raises(onnxc.ModelErrors) as refused:
        onnxc.compile(proto, tmp_path / "model.so", operators=[SOURCE])
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("a.c", "int f( {", "cc"),
        ("a.c", "int f(void) { return 0; }", "declares no operator"),
        ("gone.c", None, "there is no such file"),
        ("gone.bin", None, "cannot be read"),
        ("a.bin", "what?", "neither C source"),
        ("a.py", "1 / 0", "running it failed: division by zero"),
        ("a.py", "import onnxc\nonnxc.operator('ai.onnx.ml')", "the domain 'ai.onnx.ml' is ONNX's own"),
    ],
)
def test_a_file_that_brings_no_operators_is_refused_in_a_sentence(name, text, said, tmp_path):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(onnxc.OnnxcError) as refused:
        onnxc.compile(clamp(), tmp_path / "model.so", operators=[tmp_path / name])
    assert said.replace("cc", "'") in str(refused.value) and name in str(refused.value)
    assert "\n" not in str(refused.value)


# Python rules ------------------------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch):
    """The process's registry, empty for a test."""
    monkeypatch.setattr(custom, "_registered", {})
    custom.load_entry_points.cache_clear()
    yield
    custom.load_entry_points.cache_clear()


def outputs_of(proto, *arrays):
    return run_graph(import_model(proto).graph, list(arrays))


def register():
    @onnxc.operator("my.domain", outputs="Y")
    def Clamp(b, X, *, low=0.0, high=6.0):
        return b.map(X, lambda e: e.clip(low, high))

    @onnxc.operator("my.domain", since=2, name="Clamp", outputs="Y")
    def newer(b, X):
        return b.map(X, lambda e: e * 0 + 7)


def test_a_python_rule_is_an_operator_like_any_other(registry, tmp_path):
    register()
    library = onnxc.compile(clamp(low=-4.0), tmp_path / "model.so")
    np.testing.assert_array_equal(onnxc.load(library).run(None, {"x": x})[0], -np.clip(-x, -4, 6))
    assert outputs_of(clamp(2), x)[0].tolist() == [[-7, -7], [-7, -7]]
    with pytest.raises(onnxc.ModelErrors, match="attribute 'knob'"):
        import_model(clamp(knob=1))


def test_the_rules_of_installed_packages_are_found_by_their_entry_points(registry, monkeypatch, tmp_path):
    (tmp_path / "brought.py").write_text(
        "import onnxc\n@onnxc.operator('my.domain')\ndef Clamp(b, X):\n    return b.map(X, lambda e: e + 1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("mine", "brought", custom.GROUP)
    monkeypatch.setattr(custom, "entry_points", lambda group: [entry] if group == custom.GROUP else [])
    np.testing.assert_array_equal(outputs_of(clamp(), x)[0], x - 1)


def test_an_entry_point_that_cannot_be_imported_is_named(registry, monkeypatch):
    entry = EntryPoint("broken", "there_is_no_such_module", custom.GROUP)
    monkeypatch.setattr(custom, "entry_points", lambda group: [entry])
    with pytest.raises(onnxc.CompileError, match="'broken' cannot be imported: No module named"):
        import_model(clamp())


def test_a_python_file_on_the_command_line_registers_its_rules(registry, tmp_path, capsys):
    onnx.save(clamp(), tmp_path / "m.onnx")
    (tmp_path / "rules.py").write_text(
        "import onnxc\n@onnxc.operator('my.domain')\ndef Clamp(b, X, *, low: float):\n    return X\n"
    )
    rules = ["--operators", str(tmp_path / "rules.py")]
    assert main(["check", str(tmp_path / "m.onnx"), *rules]) == 1
    assert "attribute 'low'" in capsys.readouterr().out
    onnx.save(clamp(low=1.0), tmp_path / "m.onnx")
    assert main(["check", str(tmp_path / "m.onnx"), *rules]) == 0


# Operator sets -----------------------------------------------------------------------------------


def operator_set(**changes):
    """A document whose function Clamp is a Clip."""
    nodes = [
        helper.make_node("Constant", [], ["low"], value_float=-1.0),
        helper.make_node("Clip", ["X", "low"], ["Y"]),
    ]
    clip = helper.make_function("my.domain", "Clamp", ["X"], ["Y"], nodes, [helper.make_opsetid("", 20)])
    document = onnx.OperatorSetProto(
        magic="ONNXOPSET", ir_version=10, domain="my.domain", opset_version=1, functions=[clip]
    )
    document.operator.add(op_type="Clamp", since_version=1)
    for name, changed in changes.items():
        setattr(document, name, changed)
    return document


def test_the_functions_of_an_operator_set_are_the_models(tmp_path):
    file = tmp_path / "set.onnxopset"
    file.write_bytes(operator_set().SerializeToString())
    proto = clamp()
    before = proto.SerializeToString()
    library = onnxc.compile(proto, tmp_path / "model.so", operators=[file])
    np.testing.assert_array_equal(onnxc.load(library).run(None, {"x": x})[0], -np.maximum(-x, -1))
    assert proto.SerializeToString() == before


@pytest.mark.parametrize(
    "document, said",
    [
        (operator_set(magic="ONNX"), "neither C source"),
        (operator_set(ir_version=99), "IR version 99 is not supported"),
        (operator_set(domain="ai.onnx"), "the domain 'ai.onnx' is ONNX's own"),
        (operator_set(domain="other"), "is of the domain 'my.domain', the document of 'other'"),
        (operator_set(opset_version=0), "its operator set has the version 0"),
    ],
)
def test_an_operator_set_that_contradicts_itself_is_refused(document, said, tmp_path):
    file = tmp_path / "set.onnxopset"
    file.write_bytes(document.SerializeToString())
    with pytest.raises(onnxc.OnnxcError) as refused:
        onnxc.compile(clamp(), tmp_path / "model.so", operators=[file])
    assert said in str(refused.value) and "set.onnxopset" in str(refused.value)


def test_an_operator_set_older_than_the_one_imported_or_with_a_broken_function_is_refused(tmp_path):
    file = tmp_path / "set.onnxopset"
    file.write_bytes(operator_set().SerializeToString())
    with pytest.raises(
        onnxc.OnnxcError, match=r"imports operator set 2 of 'my.domain', which is only version 1"
    ):
        onnxc.compile(clamp(2), tmp_path / "model.so", operators=[file])
    document = operator_set()
    document.functions[0].node[1].input[0] = "gone"
    file.write_bytes(document.SerializeToString())
    with pytest.raises(onnxc.OnnxcError, match="the input 'gone' is not defined"):
        onnxc.compile(clamp(), tmp_path / "model.so", operators=[file])
    document = operator_set()
    document.functions.append(document.functions[0])
    file.write_bytes(document.SerializeToString())
    with pytest.raises(onnxc.OnnxcError, match="'Clamp' is defined 2 times"):
        onnxc.compile(clamp(), tmp_path / "model.so", operators=[file])
