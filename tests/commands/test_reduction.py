"""`onnxc reduce`: of a model that is refused, ends the process or disagrees the part that does."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.bad_models import download_cache, external
from support.few_nodes import model, node

from onnxc.commands import reduction
from onnxc.commands.cli import main
from onnxc.commands.comparison import compare, ports_of
from onnxc.commands.reduction import Bench, Fault, Pieces, load_model, minimal
from onnxc.errors import CompileError
from onnxc.inputs import read_inputs, save_outputs


@pytest.mark.parametrize("guilty", [{3}, {0, 9}, {2, 5, 6}, set(range(10))])
def test_what_is_left_cannot_be_made_smaller(guilty):
    tried = []

    def fails(items):
        tried.append(tuple(items))
        return guilty <= set(items)

    assert set(minimal(range(10), fails)) == guilty
    assert len(tried) == len(set(tried)) or len(guilty) > 1


def chain(*kinds):
    """x -> one node of each kind -> y, values between them called v0, v1, ..."""
    names = ["x", *(f"v{k}" for k in range(len(kinds) - 1)), "y"]
    nodes = [helper.make_node(kind, [a], [b]) for kind, a, b in zip(kinds, names, names[1:])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    return helper.make_model(helper.make_graph(nodes, "chain", values[:1], values[1:]))


def test_a_piece_reads_the_values_of_the_rest_and_gives_what_the_rest_reads():
    pieces = Pieces(chain("Abs", "Neg", "Exp", "Relu"), {"v0": np.ones(2, np.float32)})
    piece = pieces.of([1, 2])
    onnx.checker.check_model(piece)
    assert [value.name for value in piece.graph.input] == ["v0"]
    assert [value.name for value in piece.graph.output] == ["v2"]


def test_a_piece_keeps_the_constants_that_it_reads_and_no_others():
    whole = chain("Abs", "Neg")
    whole.graph.node[1].CopyFrom(helper.make_node("Add", ["v0", "c"], ["y"]))
    for name in "cd":
        whole.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), name))
    (kept,) = Pieces(whole, {}).of([1]).graph.initializer
    assert kept.name == "c"


def test_branches_take_along_what_they_read():
    whole = chain("Abs", "Neg")
    inner = helper.make_graph([helper.make_node("Exp", ["v0"], ["e"])], "branch", [], [whole.graph.output[0]])
    inner.output[0].name = "e"
    whole.graph.node[1].CopyFrom(helper.make_node("If", ["b"], ["y"], then_branch=inner, else_branch=inner))
    whole.graph.initializer.append(numpy_helper.from_array(np.array(True), "b"))
    assert [value.name for value in Pieces(whole, {}).of([1]).graph.input] == ["v0"]


def test_a_refused_model_is_reduced_to_the_node_that_is_refused(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    onnx.save(model(node("Abs", "x", "a"), node("Frobnicate", "a", "b"), node("Neg", "b", "y")), path)
    assert main(["reduce", str(path), "-o", str(tmp_path / "part.onnx"), "--against", "reference"]) == 0
    (kept,) = load_model(tmp_path / "part.onnx").graph.node
    assert kept.op_type == "Frobnicate"
    assert "it is refused: " in capsys.readouterr().out


def test_inputs_of_a_part_are_written_as_they_are_read(tmp_path):
    """Of a sequence, and of a type that numpy does not have."""
    path, part = tmp_path / "m.onnx", tmp_path / "part.onnx"
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (bfloat16[2] file, seq(float[2]) s) => (float[N] y) { y = Frobnicate (file, s) }""")
    onnx.save(proto, path)
    given = {"file": np.ones(2, ml_dtypes.bfloat16), "s": [np.ones(2, np.float32)]}
    save_outputs(tmp_path / "given.npz", given)
    options = ["--input", str(tmp_path / "given.npz"), "--against", "reference"]
    assert main(["reduce", str(path), "-o", str(part), *options]) == 0
    found = read_inputs([str(part.with_suffix(".npz"))], ports_of(load_model(part)))
    for name, value in given.items():
        assert compare(name, value, found[name]).agrees


@pytest.mark.slow
def test_a_departure_is_reduced_to_the_nodes_that_make_it(tmp_path, monkeypatch, capsys):
    """The other implementation is one that computes Exp wrongly."""
    true = reduction.reference

    def wrong(proto, against):
        def run(feeds):
            values = dict(zip([o.name for o in proto.graph.output], true(proto, against)(feeds)))
            values["v2"] = values["v2"] + 1
            values["y"] = np.abs(values["v2"])
            return [values[o.name] for o in proto.graph.output]

        return run

    monkeypatch.setattr(reduction, "reference", wrong)
    onnx.save(chain("Relu", "Neg", "Exp", "Abs"), tmp_path / "m.onnx")
    part = tmp_path / "part.onnx"
    assert main(["reduce", str(tmp_path / "m.onnx"), "-o", str(part), "--against", "reference"]) == 0
    assert [kept.op_type for kept in load_model(part).graph.node] == ["Exp"]
    assert list(np.load(part.with_suffix(".npz"))) == ["v1"]
    assert "it departs: 'v2'" in capsys.readouterr().out


def test_what_is_no_model_is_told(tmp_path, capsys):
    path = tmp_path / "a.onnx"
    path.write_bytes(b"\x7fELF" + bytes(100))
    assert main(["reduce", str(path), "-o", str(tmp_path / "part.onnx")]) == 1
    assert "the file is a compiled library or program (ELF)" in capsys.readouterr().err


@pytest.mark.parametrize("written", [external(data=bytes(12)), download_cache], ids=["longer", "links"])
def test_external_data_is_read_as_the_compiler_reads_it(written, tmp_path):
    (tensor,) = load_model(written(tmp_path)).graph.initializer
    assert tensor.raw_data == bytes(8)


def test_a_model_without_fault_is_told(tmp_path, capsys):
    onnx.save(chain("Abs", "Neg"), tmp_path / "m.onnx")
    assert main(["reduce", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "p.onnx")]) == 1
    assert "nothing to reduce" in capsys.readouterr().err
    assert not (tmp_path / "p.onnx").exists()


class Statement(str):
    """Stands for a piece: what the other process executes."""

    def SerializeToString(self):
        return self.encode()


@pytest.mark.slow
def test_a_process_that_ends_or_hangs_is_a_fault_and_the_next_piece_is_tried_in_a_new_one():
    with Bench(seconds=5, attempt=exec) as bench:
        assert bench.fault(Statement("import os; os.kill(os.getpid(), 11)"), {}) == Fault("crashes")
        assert bench.fault(Statement("import time; time.sleep(60)"), {}).kind == "hangs"
        assert bench.fault(Statement("pass"), {}) is None


def test_a_piece_that_cannot_be_tried_for_want_of_threads_is_no_fault(threads_left):
    threads_left(0)
    with Bench(seconds=5, attempt=exec) as bench, pytest.raises(CompileError, match="no thread can be star"):
        bench.fault(Statement("pass"), {})


def test_faults_are_the_same_but_for_names_and_numbers():
    a, b = Fault("is refused", ("'x' has 3 axes",)), Fault("is refused", ("other", "'y' has 4 axes"))
    assert a.same(b) and not b.same(a) and not a.same(Fault("crashes")) and not a.same(None)
    assert Fault("departs", ("'u': 3 of 4",)).same(Fault("departs", ("'v': shape",)))


def test_what_nobody_defines_stays_undefined():
    piece = Pieces(chain("Abs", "Neg"), {})
    piece.proto.graph.node[1].input[0] = "nobody"
    assert [value.name for value in piece.of([1]).graph.input] == []
