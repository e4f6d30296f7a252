"""The command line: what each command prints, its exit status, and what becomes of bad input."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.bad_models import BAD, ODD, OPENS_ONLY, external, write
from support.caches import with_runtime
from support.few_nodes import model, node, relu, saved
from support.small_models import parsed

import onnxc.__main__
import onnxc.demo
from onnxc import cache as cache_folders
from onnxc import console
from onnxc.commands import actions as commands
from onnxc.commands import comparison
from onnxc.commands.cli import main
from onnxc.errors import PATH_LIMIT, CompileError, shorten
from onnxc.passes.pipeline import passes
from onnxc.target import find_target

DIGITS = str(Path(onnxc.demo.__file__).parent / "digits.onnx")
#: Odd models that are sound but for the sizes of what they add, which checks of structure do not see.
MISFITS = ("empty tensor", "external data of no elements")
SKIPPED_IMPORTS = ("onnx", "llvmlite", "google.protobuf")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache of its own for the commands that compile."""
    folder = with_runtime(tmp_path_factory.mktemp("cache"))
    previous = os.environ.get("ONNXC_CACHE")
    os.environ["ONNXC_CACHE"] = str(folder)
    yield folder
    if previous is None:
        del os.environ["ONNXC_CACHE"]
    else:
        os.environ["ONNXC_CACHE"] = previous


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("library") / "digits.so"
    assert main(["compile", DIGITS, "-o", str(path), "--json"]) == 0
    return path


@pytest.fixture(scope="module")
def optional(tmp_path_factory):
    """A library of a model with an input that may be left out."""
    path = tmp_path_factory.mktemp("optional") / "model.so"
    text = "g (optional(float[K]) o, float[n] x) => (bool there, float[n] y) {"
    proto = parsed(f"{text} there = OptionalHasElement (o) y = Exp (x) }}")
    onnx.save(proto, path.with_suffix(".onnx"))
    assert main(["compile", str(path.with_suffix(".onnx")), "-o", str(path), "--json"]) == 0
    return path


@pytest.fixture
def command(capsys, monkeypatch):
    """Runs a command: (exit status, standard output, lines of standard error), none of them of progress."""
    monkeypatch.setattr(console, "PATIENCE", 600)

    def run(*arguments):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            status = ended.code
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err + printed.out
        return status, printed.out, printed.err.splitlines()

    return run


@pytest.mark.parametrize(
    "arguments",
    ["inspect {} --state q=x", "inspect {} --shape q=1", "run {} --shape q=1", "run {} --dim q=1",
     "profile {} --shape q=1", "run {} --input q=1"],
)  # fmt: skip
def test_what_a_model_does_not_have_is_told_with_its_file(command, tmp_path, arguments):
    path = tmp_path / "relu.onnx"
    onnx.save(relu(), path)
    status, _, errors = command(*arguments.format(path).split())
    assert status == 1 and len(errors) == 1
    assert errors[0].startswith(f"onnxc: error: {path}: ") and "'q'" in errors[0]


@pytest.mark.parametrize(
    "option", ["--threads １", "--threads 1_0", "--seed １", "--dim n=１", "--shape x=１"]
)
def test_numbers_are_written_in_digits_of_ascii(command, tmp_path, option):
    onnx.save(relu(), tmp_path / "relu.onnx")
    status, _, errors = command("run", tmp_path / "relu.onnx", *option.split())
    assert status == 2 and option.split()[0] in errors[-1]


def test_a_value_makes_an_input_a_constant(command, tmp_path):
    onnx.save(relu(), tmp_path / "relu.onnx")
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    for value in ("[1, -2.5]", tmp_path / "x.npy"):
        status, out, _ = command("inspect", tmp_path / "relu.onnx", "--value", f"x={value}", "--json")
        assert status == 0 and json.loads(out)["inputs"] == []
    assert command("check", tmp_path / "relu.onnx", "--value", "x=[1, 2, 3]")[0] == 1
    for value in ("x", "=1", "x=one", "x=none.npy"):
        assert command("check", tmp_path / "relu.onnx", "--value", value)[0] == 2


def onnxc_process(*arguments, **settings):
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "onnxc", *map(str, arguments)],
        text=True,
        stderr=subprocess.PIPE,
        **settings,
    )


# compile


@pytest.mark.slow
def test_compile_writes_the_library_and_its_header_and_nothing_else(command, tmp_path):
    status, out, errors = command("compile", DIGITS, "-o", tmp_path / "a.so")
    assert status == 0
    assert not [line for line in errors if "error" in line]
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.so", "a.h"}
    for word in ("a.so", "a.h", "library", "packed weights", "initializers", "workspace", "import", "link"):
        assert word in out


@pytest.mark.parametrize("known", [None, object()], ids=["not measured", "measured"])
def test_compile_advises_to_calibrate_where_that_may_make_products_faster(
    command, tmp_path, monkeypatch, known
):
    monkeypatch.setattr("onnxc.driver.measured_facts", lambda target: known)
    monkeypatch.setattr("onnxc.driver.unmeasured", lambda graph, target: 2)
    status, out, _ = command("compile", DIGITS, "-o", tmp_path / "a.so")
    assert status == 0
    assert ("`onnxc calibrate`" in out and "2 products" in out) == (known is None)


def test_compile_tells_which_dimensions_are_numbers_and_why(command, tmp_path):
    text = "m (float[batch, 4] x) => (float y) { s = Constant <value_ints = [2, 2]> () y = Reshape (x, s) }"
    onnx.save(parsed(text), tmp_path / "a.onnx")
    status, out, _ = command("compile", tmp_path / "a.onnx", "-o", tmp_path / "a.so")
    assert status == 0
    assert "batch is 1: node y (Reshape) needs it" in out


def test_compile_json_is_the_report(command, tmp_path):
    status, out, _ = command("compile", DIGITS, "-o", tmp_path / "a.so", "--json")
    report = json.loads(out)
    assert status == 0
    assert report["library_bytes"] == (tmp_path / "a.so").stat().st_size
    assert 0 < report["initializer_bytes"] <= report["weights_bytes"] * 1.1
    assert tuple(report["seconds"]) == console.STAGES


def test_compile_places_the_header_where_it_is_asked_to(command, tmp_path):
    command("compile", DIGITS, "-o", tmp_path / "a.so", "--header", tmp_path / "b.h", "--name", "my-model")
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.so", "b.h"}
    assert "my_model_model(void)" in (tmp_path / "b.h").read_text()


def test_a_pinned_model_has_a_typed_wrapper_and_a_known_workspace(command, tmp_path):
    _, out, _ = command("compile", DIGITS, "-o", tmp_path / "a.so", "--dim", "batch=2", "--json")
    assert json.loads(out)["workspace_bytes"] > 0
    assert "a_run(" in (tmp_path / "a.h").read_text()


def test_the_text_of_a_pass_that_cannot_be_written_names_its_file(command, tmp_path):
    (tmp_path / "ir").mkdir()
    full = tmp_path / "ir" / "00_import.txt"
    full.symlink_to("/dev/full")
    status, _, (error,) = command("compile", DIGITS, "-o", tmp_path / "a.so", "--dump-ir", tmp_path / "ir")
    assert (status, error) == (3, f"onnxc: error: {full}: cannot be written: No space left on device")


@pytest.mark.slow
def test_compile_to_one_object(command, tmp_path):
    assert command("compile", DIGITS, "-o", tmp_path / "a.o")[0] == 0
    assert (tmp_path / "a.o").read_bytes()[:4] == b"\x7fELF"


def test_dump_ir_writes_the_text_after_every_pass(command, tmp_path):
    command("compile", DIGITS, "-o", tmp_path / "a.so", "--dump-ir", tmp_path / "ir")
    stages = ["import", *(step.__name__ for step in passes(find_target())), "select_kernels", "share_code"]
    names = sorted(entry.name for entry in (tmp_path / "ir").iterdir())
    assert names == [f"{k:02}_{stage}.txt" for k, stage in enumerate(stages)]
    assert all((tmp_path / "ir" / name).read_text().startswith("graph ") for name in names)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("{}/gone/a.so", "folder"),
        ("{}", "is a folder"),
        (".", "is a folder"),
        ("/dev/null", "no regular file"),
        ("{}/" + "a" * 300 + ".so", "too long"),
        ("{}/a\0.so", "cannot be written"),
        (DIGITS + "/a.so", "Not a directory"),
        ("/proc/a.so", "cannot be written"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_at_once(command, tmp_path, output, words):
    status, out, errors = command("compile", DIGITS, "-o", output.format(tmp_path))
    assert (status, out, len(errors)) == (3, "", 1)
    assert words in errors[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dim", "width=3"], "'width'"),
        (["--typical", "width=3"], "'width'"),
        (["--shape", "x=1,2"], "'x'"),
        (["--shape", "image=1,8"], "2 axes"),
    ],
)
def test_sizes_that_the_model_does_not_have_are_refused(command, tmp_path, arguments, words):
    status, _, errors = command("compile", DIGITS, "-o", tmp_path / "a.so", *arguments)
    assert (status, len(errors)) == (1, 1)
    assert words in errors[0]
    assert not list(tmp_path.iterdir())


def test_a_missing_compiler_is_the_environments_fault(command, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    status, _, errors = command("compile", DIGITS, "-o", tmp_path / "a.so")
    assert (status, len(errors)) == (3, 1)
    assert "no-such-compiler" in errors[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("output", "header"), [("a.onnx", "a.h"), ("a.h", "a.h"), ("a.so", "./a.onnx")])
def test_nothing_is_written_over_the_model_or_the_library(command, tmp_path, monkeypatch, output, header):
    monkeypatch.chdir(tmp_path)
    onnx.save(relu(), "a.onnx")
    status, _, errors = command("compile", "a.onnx", "-o", output, "--header", header)
    assert (status, len(errors)) == (2, 1)
    assert "would be written over" in errors[0]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.onnx"]
    assert onnx.load("a.onnx") == relu()


def test_the_function_does_not_write_over_the_model_either(tmp_path):
    onnx.save(relu(), tmp_path / "a.onnx")
    with pytest.raises(CompileError, match="would be written over the model"):
        onnxc.compile(tmp_path / "a.onnx", tmp_path / "a.onnx")
    assert onnx.load(tmp_path / "a.onnx") == relu()


def test_nothing_is_written_over_external_data(command, tmp_path):
    path = external()(tmp_path)
    status, _, errors = command("compile", path, "-o", path.parent / "w.bin")
    assert (status, len(errors)) == (2, 1)
    assert "would be written over the external data" in errors[0]
    assert (path.parent / "w.bin").read_bytes() == bytes(8)


# Bad and odd files


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_a_bad_file_is_one_line_a_problem_and_nothing_is_written(command, tmp_path, case):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    path = write(case, tmp_path / "in")
    status, out, errors = command("compile", path, "-o", tmp_path / "out" / "a.so")
    assert (status, out) == (1, "")
    assert errors
    for line in errors:
        assert line.startswith(f"onnxc: error: {shorten(str(path), PATH_LIMIT)}")
        assert len(line.encode()) < 1100
    for word in case.words:
        assert any(word in line for line in errors)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_check_lists_what_compile_refuses(command, tmp_path, case):
    path = write(case, tmp_path)
    status, out, errors = command("check", path)
    *problems, count = out.splitlines()
    assert (status, errors) == (1, [])
    assert problems
    assert all(line.startswith(shorten(str(path), PATH_LIMIT)) for line in problems)
    assert count.startswith(f"{len(problems)} problem")


@pytest.mark.parametrize("case", [c for c in ODD if c.name not in OPENS_ONLY], ids=lambda case: case.name)
def test_check_accepts_an_odd_file(command, tmp_path, case):
    status, out, errors = command("check", write(case, tmp_path))
    if case.name in MISFITS:
        assert (status, errors) == (1, [])
        assert "do not broadcast" in out
    else:
        assert (status, errors) == (0, [])
        assert out.endswith("nodes, all supported\n")


# check


def test_check_lists_every_problem_with_its_node_and_what_to_do(command, tmp_path):
    path = tmp_path / "two.onnx"
    path.write_bytes(
        saved(model(node("Frob", "x", "a"), node("Gelu", "a", "b"), node("Relu", "b", "y"), opset=17))
    )
    status, out, _ = command("check", path, "--json")
    found = json.loads(out)
    assert (status, found["supported"]) == (1, False)
    assert [(p["node"], p["op_type"]) for p in found["problems"]] == [("n_a", "Frob"), ("n_b", "Gelu")]
    for problem in found["problems"]:
        assert problem["opset"] == 17
        assert problem["domain"] == ""
        assert problem["reason"]
        assert problem["remedy"]


def test_check_refuses_what_needs_too_much_memory(command, tmp_path):
    axis = onnx.helper.make_tensor("axis", onnx.TensorProto.INT64, [], [0])
    path = tmp_path / "sums.onnx"
    onnx.save(model(node("CumSum", "x axis", "a"), node("CumSum", "a axis", "y"), initializers=[axis]), path)
    status, out, _ = command("check", path, "--shape", "x=4000000000")
    assert status == 1
    assert out.startswith(f"{path}: ")
    assert "more than the limit" in out
    status, _, errors = command("compile", path, "-o", tmp_path / "a.so", "--shape", "x=4000000000")
    assert status == 1
    assert errors[-1].startswith(f"onnxc: error: {path}: ")


def test_check_counts_the_nodes_of_a_good_model(command):
    assert command("check", DIGITS)[:2] == (0, "8 nodes, all supported\n")


# inspect


def test_inspect_shows_the_figures_of_a_model(command):
    status, out, _ = command("inspect", DIGITS)
    assert status == 0
    for text in (
        "image  float32[batch, 8, 8]",
        "probabilities  float32[batch, 10]",
        "Gemm 3, Relu 2",
        "6,573",
        "6464*batch",
        "ai.onnx 17",
        "accuracy: 0.9",
    ):
        assert text in out


def test_inspect_computes_at_given_sizes(command):
    found = json.loads(command("inspect", DIGITS, "--dim", "batch=3", "--json")[1])
    assert found["multiply_adds"] == "6464*batch"
    assert found["multiply_adds_at"] == 3 * 6464
    assert found["peak_bytes"] > 0


def test_a_library_tells_the_same_figures_as_its_model(command, library):
    ours, theirs = (
        json.loads(command("inspect", file, "--dim", "batch=3", "--json")[1]) for file in (library, DIGITS)
    )
    for key in (
        "inputs",
        "outputs",
        "operators",
        "parameters",
        "multiply_adds",
        "multiply_adds_at",
        "metadata",
    ):
        assert ours[key] == theirs[key]
    assert ours["about"]["library_bytes"] == library.stat().st_size


# run


def test_run_prints_each_output_and_the_inputs_that_it_made(command, library):
    status, out, _ = command("run", library, "--dim", "batch=2")
    assert status == 0
    assert "image float32[2, 8, 8] (generated)" in out
    assert "float32[2, 10]" in out


def test_run_takes_files_and_writes_outputs(command, library, tmp_path):
    images = np.random.default_rng(1).uniform(0, 16, (3, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", images)
    status, out, _ = command(
        "run", library, "--input", f"image={tmp_path / 'x.npy'}", "-o", tmp_path / "y.npz", "--json"
    )
    found = json.loads(out)
    assert status == 0
    assert found["inputs"] == [{"name": "image", "type": "float32[3, 8, 8]", "generated": False}]
    with np.load(tmp_path / "y.npz") as written:
        probabilities = written["probabilities"]
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert found["outputs"][0]["first"] == pytest.approx(probabilities[0, :5].tolist())


def test_a_model_and_its_library_give_the_same(command, library):
    of_library, of_model = (
        json.loads(command("run", file, "--seed", 5, "--json")[1]) for file in (library, DIGITS)
    )
    assert of_library == of_model


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--input", "image=gone.npy"], "gone.npy: no such file"),
        (["--dim", "width=3"], "'width'"),
        (["--shape", "image=1,9,9"], "image"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(command, library, arguments, words):
    status, out, errors = command("run", library, *arguments)
    assert (status, out, len(errors)) == (1, "", 1)
    assert words in errors[0]


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF" + bytes(100)])
def test_a_file_that_is_no_library_is_refused(command, tmp_path, content):
    path = tmp_path / "a.so"
    path.write_bytes(content)
    for name in ("run", "inspect", "bench", "profile"):
        status, out, errors = command(name, path)
        assert (status, out, len(errors)) == (1, "", 1)
        assert str(path) in errors[0]


def test_a_missing_file_is_refused(command, tmp_path):
    for name in ("check", "run", "inspect", "verify", "bench", "profile"):
        for file in ("gone.onnx", "gone.so"):
            status, out, errors = command(name, tmp_path / file)
            assert status == 1
            assert "No such file" in out + "".join(errors)


def test_running_a_library_imports_neither_onnx_nor_llvmlite(library):
    program = (
        "import sys; from onnxc.commands.cli import main; status = main(sys.argv[1:]); "
        f"print([m for m in {SKIPPED_IMPORTS} if m in sys.modules]); sys.exit(status)"
    )
    for name in ("run", "inspect"):
        command = [sys.executable, "-P", "-c", program, name, str(library)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "[]"


# verify


@pytest.mark.parametrize("other", ["onnxruntime", "reference"])
def test_verify_agrees_with_others(command, other):
    status, out, _ = command("verify", DIGITS, "--against", other, "--dim", "batch=4", "--json")
    found = json.loads(out)
    assert (status, found["agrees"]) == (0, True)
    assert [output["name"] for output in found["outputs"]] == ["probabilities"]
    assert found["outputs"][0]["absolute"] < 1e-5


def test_verify_prints_the_three_differences(command):
    status, out, _ = command("verify", DIGITS)
    assert status == 0
    for word in ("absolute", "relative", "ulp", "probabilities", "agrees", "against onnxruntime"):
        assert word in out


def test_verify_compiled_for_the_sizes_alone(command):
    assert command("verify", DIGITS, "--dim", "batch=3", "--pin")[0] == 0


def test_verify_tells_what_narrowed_weights_cost(command, tmp_path):
    library = tmp_path / "digits.so"
    assert command("compile", DIGITS, "-o", library, "--weights", "int8", "--precision", "int8")[0] == 0
    status, out, _ = command("verify", library, "--model", DIGITS, "--rtol", "0.1", "--json")
    assert status == 0
    assert 1e-5 < json.loads(out)["outputs"][0]["relative"] < 0.1
    assert command("verify", library, "--model", DIGITS, "--rtol", "1e-5")[0] == 1


def test_verify_of_a_library_needs_the_model_it_came_from(command, tmp_path):
    library = tmp_path / "digits.so"
    assert command("compile", DIGITS, "-o", library)[0] == 0
    status, _, err = command("verify", library)
    assert status == 1
    assert "give the model that it came from: --model" in err[0]
    status, _, err = command("verify", library, "--model", DIGITS, "--per-node")
    assert status == 1
    assert "a library has no values of nodes" in err[0]


@pytest.mark.parametrize("name", ["verify", "bench"])
def test_the_model_of_another_library_is_refused_before_it_runs(command, library, tmp_path, name):
    other = tmp_path / "other.onnx"
    other.write_bytes(saved(relu()))
    status, _, errors = command(name, library, "--model", other, "--against", "onnxruntime")
    (own,) = onnxc.load(library).inputs
    assert (status, len(errors)) == (1, 1)
    assert errors[0].startswith(
        f"onnxc: error: {other}: the library has the input '{own.name}' and the model"
    )
    assert errors[0].endswith("give the model that the library came from")


def other_results(change):
    """Stands for another implementation: the reference with `change` applied to its outputs by name."""
    real = comparison.reference

    def reference(source, against, threads=0):
        run = real(source, "reference", threads)
        proto = source if isinstance(source, onnx.ModelProto) else onnx.load(source)
        names = [output.name for output in proto.graph.output]
        return lambda feeds: [change(name, value) for name, value in zip(names, run(feeds))]

    return reference


def test_verify_fails_when_an_output_departs(command, monkeypatch):
    monkeypatch.setattr(comparison, "reference", other_results(lambda name, value: value + 0.5))
    status, out, _ = command("verify", DIGITS)
    assert status == 1
    assert "departs: 10 of 10 elements differ by more than" in out
    assert "--per-node compares node by node" in out


def test_a_tolerance_may_be_given(command, monkeypatch):
    monkeypatch.setattr(comparison, "reference", other_results(lambda name, value: value + 0.5))
    assert command("verify", DIGITS, "--atol", "0.6")[0] == 0


def test_per_node_finds_the_first_node_that_departs(command, monkeypatch):
    monkeypatch.setattr(
        comparison,
        "reference",
        other_results(
            lambda name, value: value + 1 if name in ("sum2", "layer2", "probabilities") else value
        ),
    )
    status, out, _ = command("verify", DIGITS, "--per-node", "--json")
    first = json.loads(out)["first_to_depart"]
    assert status == 1
    assert (first["op_type"], first["output"]) == ("Gemm", "sum2")


def test_per_node_tells_when_all_agree(command):
    status, out, _ = command("verify", DIGITS, "--per-node")
    assert status == 0
    assert "8 values of nodes, all agree" in out


# profile


@pytest.fixture(scope="module")
def profiled(library, tmp_path_factory):
    """(what the command says of a library in JSON, the events that it has written)"""
    trace = tmp_path_factory.mktemp("profile") / "trace.json"
    arguments = ["--model", DIGITS, "--dim", "batch=2", "--runs", "2", "--trace", str(trace)]
    with redirect_stdout(io.StringIO()) as out:
        assert main(["profile", str(library), *arguments, "--json"]) == 0
    return json.loads(out.getvalue()), json.loads(trace.read_text())["traceEvents"]


def test_profile_tells_of_every_node_its_work_and_its_share(profiled):
    nodes = profiled[0]["nodes"]
    assert sum(each["multiply_adds"] for each in nodes) == 2 * 6464
    assert sum(each["share"] for each in nodes) == pytest.approx(1)
    assert all(each["parts"] > 0 for each in nodes)
    assert any("Gemm" in each["node"] and each["estimated_ns"] > 0 for each in nodes)


def test_profile_tells_how_near_a_node_is_to_its_bound(profiled):
    timed = [each for each in profiled[0]["nodes"] if each["ns"]]
    assert timed
    for each in timed:
        assert each["bytes"] > 0 and each["gbytes"] == pytest.approx(each["bytes"] / each["ns"])
        assert each["of_peak"] == pytest.approx(each["bound_ns"] / each["ns"])


def test_profile_adds_nodes_up_by_their_kernels(profiled):
    found = profiled[0]
    assert {kernel["kernel"] for kernel in found["kernels"]} == {each["kernel"] for each in found["nodes"]}
    assert sum(kernel["nodes"] for kernel in found["kernels"]) == len(found["nodes"])


def test_a_trace_has_an_event_for_every_node_one_behind_the_other(profiled):
    found, events = profiled
    assert {event["name"] for event in events} == {each["node"] for each in found["nodes"]}
    for event, later in zip(events, events[1:]):
        assert later["ts"] == pytest.approx(event["ts"] + event["dur"])
    assert {event["args"]["kernel"] for event in events} == {each["kernel"] for each in found["nodes"]}


def test_profile_of_a_library_alone_has_times_and_says_what_the_rest_needs(command, library):
    status, out, _ = command("profile", library, "--runs", 1)
    assert status == 0
    assert "Gemm" in out and "gemm" not in out
    assert out.splitlines()[-1].endswith("--model")


def test_profile_refuses_the_model_of_another_library(command, library, tmp_path):
    other = tmp_path / "other.onnx"
    other.write_bytes(saved(relu()))
    status, _, errors = command("profile", library, "--model", other)
    assert (status, len(errors)) == (1, 1)
    assert "no step of the library" in errors[0]


# bench


def test_bench_measures_and_compares(command, library):
    status, out, _ = command(
        "bench", library, "--model", DIGITS, "--against", "onnxruntime", "--runs", 3, "--json"
    )
    found = json.loads(out)
    assert status == 0
    assert [(e["name"], e["runs"]) for e in found["engines"]] == [("onnxc", 3), ("onnxruntime", 3)]
    for engine in found["engines"]:
        assert 0 < engine["min"] <= engine["median"] <= engine["p95"]
    (ratio,) = found["ratios"]
    assert ratio["median"] == pytest.approx(found["engines"][0]["median"] / found["engines"][1]["median"])
    assert ratio["largest_difference"] < 1e-5
    assert found["load_seconds"] > 0
    assert found["workspace_bytes"] > 0


@pytest.mark.parametrize("given", [[], ["--input", "o=o.npy"]], ids=["left out", "given"])
def test_bench_takes_an_optional_input_whose_memory_alone_is_not_told(command, optional, monkeypatch, given):
    monkeypatch.chdir(optional.parent)
    np.save("o.npy", np.ones(3, np.float32))
    status, out, errors = command("bench", optional, "--runs", 1, "--dim", "n=2", *given)
    assert status == 0, errors
    assert ("workspace unknown" in out) == bool(given)


def test_an_optional_input_leaves_the_memory_of_a_library_known(command, optional):
    found = json.loads(command("inspect", optional, "--dim", "n=2", "--json")[1])
    assert found["peak_bytes"] > 0


def test_bench_prints_the_ratio(command):
    status, out, _ = command(
        "bench", DIGITS, "--against", "onnxruntime", "--runs", 2, "--dim", "batch=2", "--pin"
    )
    assert status == 0
    assert "onnxc / onnxruntime:" in out
    assert "workspace" in out


def test_bench_counts_what_runs_side_by_side(command, library):
    asked = ("bench", library, "--model", DIGITS, "--streams", 2)
    status, out, _ = command(*asked, "--against", "onnxruntime", "--seconds", 0.05, "--json")
    found = json.loads(out)
    assert (status, found["streams"]) == (0, 2)
    ours, theirs = found["engines"]
    assert (ours["name"], theirs["name"]) == ("onnxc", "onnxruntime")
    assert found["ratios"] == [
        {"against": "onnxruntime", "rate": pytest.approx(ours["rate"] / theirs["rate"])}
    ]
    for more, told in ((("--runs", 3), "--seconds"), (("--against", "ncnn"), "leave out --streams")):
        status, _, errors = command(*asked, *more)
        assert status and len(errors) == 1 and told in errors[0]


def test_bench_needs_the_model_for_its_rivals(command, library):
    status, _, errors = command("bench", library, "--against", "onnxruntime")
    assert (status, len(errors)) == (1, 1)
    assert "--model" in errors[0]


# Errors and exit codes


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["frobnicate"],
        ["compile"],
        ["compile", DIGITS],
        ["compile", DIGITS, "-o", "a.so", "--dim", "batch"],
        ["compile", DIGITS, "-o", "a.so", "--shape", "x=1,b"],
        ["compile", DIGITS, "-o", "a.so", "--target", "z80"],
        ["compile", DIGITS, "-o", "a.so", "--threads", "0"],
        ["bench", DIGITS, "--against", "nobody"],
        ["bench", DIGITS, "--seconds", "-1"],
        ["reduce", DIGITS, "-o", "part.onnx", "--seconds", "0"],
        ["run", DIGITS, "--seed", "-1"],
        ["verify", DIGITS, "--rtol", "nan"],
        ["verify", DIGITS, "--atol", "-1"],
        ["compile", DIGITS, "-o", "a.so", "--weights", "int8", "--weights-error", "nan"],
        ["compile", DIGITS, "-o", "a.so", "--weights-error", "3"],
        ["compile", DIGITS, "-o", "a.so", "--calibration", "image=none.npy"],
        ["compile", DIGITS, "-o", "a.o", "--soname", "a.so.1"],
        ["compile", DIGITS, "-o", "a.so", "--threads", str(1 << 31)],
        ["compile", DIGITS, "-o", "a.so", "--dim", "batch=4", "--dim", "batch=5"],
        ["run", DIGITS, "--dim", "batch=4", "--shape", "image=5,8,8"],
        ["verify", DIGITS, "--dim", "batch=4", "--shape", "image=5,8,8"],
        ["run", DIGITS, "--input", "image=1", "--input", "image=2"],
        ["run", DIGITS, "--input", "image="],
    ],
)
def test_wrong_usage_is_status_two(command, arguments):
    assert command(*arguments)[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [["compile", "", "-o", "a.so"], ["compile", DIGITS, "-o", ""], ["run", ""], ["cache", "warm", ""],
     ["compile", DIGITS, "", "-o", "a.a"], ["compile", DIGITS, "-o", "a.so", "--header", ""]],
)  # fmt: skip
def test_no_file_is_called_nothing(command, arguments):
    status, _, errors = command(*arguments)
    assert status == 2 and errors[-1].endswith(": the path is empty")


def test_what_is_said_twice_alike_is_taken(command):
    assert command("check", DIGITS, "--dim", "batch=4", "--dim", "batch=4")[0] == 0


def test_a_cache_that_cannot_be_had_is_the_environments_fault(command, monkeypatch):
    monkeypatch.setenv("ONNXC_CACHE", "/dev/null/x")
    status, _, (error,) = command("run", DIGITS)
    assert status == 3 and "the cache folder /dev/null/x cannot be used" in error
    monkeypatch.undo()
    monkeypatch.setenv("ONNXC_CACHE_LIMIT", "-5")
    status, _, (error,) = command("cache", "prune")
    assert status == 3 and "ONNXC_CACHE_LIMIT: '-5' is no size" in error


def test_where_the_cache_is_can_be_asked_before_there_is_one(command, monkeypatch, tmp_path):
    folder = tmp_path / "cache"
    monkeypatch.setenv("ONNXC_CACHE", str(folder))
    assert command("cache", "path") == (0, f"{folder}\n", []) and not folder.exists()


def test_warnings_are_lines_as_errors_are(command, monkeypatch):
    monkeypatch.setattr(cache_folders, "_fallback", None)
    monkeypatch.delenv("ONNXC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    status, _, (line,) = command("cache", "path")
    assert status == 0 and line.startswith("onnxc: warning: there is no cache folder to be had (")


def test_wrong_usage_comes_as_json_too(command):
    status, printed, told = command("compile", "--json")
    assert status == 2 and told[-1].startswith("onnxc compile: error: ")
    (error,) = json.loads(printed)["errors"]
    assert error["kind"] == "usage" and "-o/--output" in error["message"]


def test_errors_come_as_json_too(command, tmp_path):
    path = tmp_path / "a.onnx"
    path.write_bytes(saved(model(node("Frob", "x", "a"), node("Relu", "w", "y"))))
    status, out, errors = command("compile", path, "-o", tmp_path / "a.so", "--json")
    found = json.loads(out)["errors"]
    assert status == 1
    assert [f"onnxc: error: {entry['message']}" for entry in found] == errors
    assert [entry["node"] for entry in found] == ["n_a", "n_y"]


def test_an_error_of_onnxcs_own_is_one_line_too(command, monkeypatch):
    monkeypatch.setattr(commands, "check_command", lambda options: 1 // 0)
    status, out, errors = command("check", DIGITS)
    assert (status, out, len(errors)) == (3, "", 1)
    assert "internal error in test_cli.py" in errors[0]
    assert "ZeroDivisionError" in errors[0]


def test_an_interruption_is_silent(command, monkeypatch):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "check_command", interrupted)
    assert command("check", DIGITS) == (130, "", [])


def test_an_interruption_of_the_first_imports_is_silent(monkeypatch, capfd):
    class Interrupting:
        def find_spec(self, name, *_):
            if name == "onnxc.commands.cli":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "onnxc.commands.cli")
    monkeypatch.delattr(onnxc.commands, "cli")
    assert onnxc.__main__.main() == 130
    assert capfd.readouterr() == ("", "")


def test_a_closed_pipe_is_silent():
    process = onnxc_process("inspect", DIGITS, stdout=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", DIGITS],
        ["inspect", DIGITS, "--json"],
        ["completion", "bash"],
        ["compile", "--json"],
        ["compile", "--help"],
        ["--version"],
        ["--cmake-dir"],
    ],
    ids=" ".join,
)
def test_a_full_standard_output_is_one_line(arguments, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full:
        process = onnxc_process(*arguments, stdout=full)
        *usage, line = process.communicate()[1].splitlines()
    assert process.returncode == 3
    assert line == "onnxc: error: standard output: No space left on device"
    assert not usage or arguments == ["compile", "--json"]


@pytest.mark.parametrize("arguments", [["compile", "--json"], ["--help"], ["--include-dir"]], ids=" ".join)
def test_a_closed_pipe_is_silent_where_no_command_is_given(arguments):
    process = onnxc_process(*arguments, stdout=subprocess.PIPE)
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141


def test_a_closed_standard_output_takes_what_is_printed():
    command = f"{sys.executable} -P -m onnxc inspect {DIGITS}"
    done = subprocess.run(["sh", "-c", f"{command} >&-"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_encoding_of_standard_output_lacks_is_printed_as_its_code(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    process = onnxc_process("compile", DIGITS, "-o", tmp_path / "a.so", stdout=subprocess.PIPE)
    out, errors = process.communicate()
    assert process.returncode == 0 and "write weights" in out and "internal" not in errors


def test_help_tells_the_exit_codes(command):
    for arguments in (["--help"], ["compile", "--help"]):
        status, out, _ = command(*arguments)
        assert status == 0
        assert "verification failed" in out


def test_the_module_runs_as_a_program(tmp_path):
    path = tmp_path / "relu.onnx"
    onnx.save(relu(), path)
    process = onnxc_process("check", path, stdout=subprocess.PIPE)
    out, errors = process.communicate()
    assert (process.returncode, out, errors) == (0, "1 nodes, all supported\n", "")


@pytest.mark.parametrize("name", ["out.onnx", "out.lib", "out.DLL"])
def test_a_name_of_another_kind_of_file_is_refused(command, tmp_path, name):
    status, _, errors = command("compile", DIGITS, "-o", tmp_path / name)
    assert status == 2 and f"ends in {name[3:]}; a shared library is called OUT.so" in errors[0]
    assert not (tmp_path / name).exists()


def test_an_unknown_dimension_is_told_with_those_that_there_are(command, tmp_path):
    status, _, errors = command("compile", DIGITS, "-o", tmp_path / "out.so", "--dim", "bach=1")
    assert status == 1 and "no input of the model has a dimension 'bach'; there is 'batch'" in errors[0]
