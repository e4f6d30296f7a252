"""`onnxc compile --weights`: what outputs lose is measured, and layers that cost too much stay."""

import json

import numpy as np
import onnx
import pytest
from support import small_models

import onnxc
from onnxc.commands.cli import main
from onnxc.narrowing import lost
from onnxc.passes.round_rows import MULTIPLIED
from onnxc.target import TARGETS, find_target, runs_here

MODEL = """g (float[n, 64] x) => (float[n, 80] y)
    { h = MatMul (x, a)  r = Relu (h)  y = MatMul (r, b) }"""

ALIKE = [name for name, target in TARGETS.items() if target.triple == find_target().triple]
ELSEWHERE = next((name for name in ALIKE if not runs_here(TARGETS[name])), None)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model of two layers, and inputs for it."""
    folder, w = tmp_path_factory.mktemp("narrow"), small_models.Weights(3)
    w.add("a", 64, 96)
    w.add("b", 96, 80)
    onnx.save(small_models.parsed(MODEL, w), folder / "m.onnx")
    np.savez(folder / "x.npz", x=w.rng.standard_normal((5, 64)).astype(np.float32))
    return folder


def narrowed(files, capsys, *options):
    out = ["-o", str(files / "m.so"), "--calibration", str(files / "x.npz"), "--json"]
    assert main(["compile", str(files / "m.onnx"), *out, *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_the_error_that_is_told_is_that_of_the_library(files, capsys, precision):
    options = "--weights", "int4", "--weights-error", "0.5", "--precision", precision
    report = narrowed(files, capsys, *options)
    found = report["narrowed"]
    assert (found["layers"], found["kept"]) == (2, [])
    assert found["bytes_before"] == 4 * 64 * 96 + 4 * 96 * 80 > 6 * found["bytes_after"]
    assert report["weights_bytes"] < found["bytes_before"] / 5
    x = np.load(files / "x.npz")["x"]
    exact = onnxc.load(onnxc.compile(files / "m.onnx", files / "exact.so")).run(None, {"x": x})[0]
    got = onnxc.load(files / "m.so").run(None, {"x": x})[0]
    assert np.abs(got - exact).max() / np.abs(exact).max() == pytest.approx(found["errors"]["y"], rel=0.01)


@pytest.mark.slow
def test_layers_stay_until_no_output_loses_too_much(files, capsys):
    for error, kept in ((1e-9, ["a", "b"]), (1.0, [])):
        found = narrowed(files, capsys, "--weights", "int8", "--weights-error", str(error))["narrowed"]
        assert found["kept"] == kept and found["errors"]["y"] <= error


@pytest.mark.slow
def test_layers_stay_until_rounded_rows_do_not_lose_too_much_either(files, capsys):
    loses = {}
    for precision in ("float32", "int8"):
        asked = "--weights", "int8", "--precision", precision
        loses[precision] = narrowed(files, capsys, *asked, "--weights-error", "1")["narrowed"]["errors"]["y"]
    if find_target("native").byte_dot(*MULTIPLIED) is None:  # then no row is rounded
        assert loses["int8"] == loses["float32"]
        return
    assert loses["int8"] > loses["float32"]
    between = str((loses["int8"] + loses["float32"]) / 2)
    found = narrowed(files, capsys, *asked, "--weights-error", between)["narrowed"]
    assert found["kept"] and found["errors"]["y"] <= float(between)


@pytest.mark.slow
def test_python_asks_for_the_same(files, capsys):
    kept = narrowed(files, capsys, "--weights", "int4", "--weights-error", "0.05")["narrowed"]["kept"]
    assert kept
    command = (files / "m.so").read_bytes()
    x = np.load(files / "x.npz")["x"]
    for calibration in ({"x": x}, [str(files / "x.npz")]):
        options = {"weights": "int4", "weights_error": 0.05, "calibration": calibration}
        assert onnxc.compile(files / "m.onnx", files / "m.so", **options).read_bytes() == command
    for options in ({"weights_error": 0.1}, {"weights": "int8", "calibration": {"x": x}}):
        with pytest.raises(onnxc.CompileError, match="give weights"):
            onnxc.compile(files / "m.onnx", files / "none.so", **options)


@pytest.mark.slow
def test_profile_expects_the_weights_that_a_library_has(files, capsys):
    narrowed(files, capsys, "--weights", "int4", "--weights-error", "0.5")
    model = ["--model", str(files / "m.onnx"), "--dim", "n=4", "--runs", "1", "--json"]
    assert main(["profile", str(files / "m.so"), *model]) == 0
    kernels = [node["kernel"] for node in json.loads(capsys.readouterr().out)["nodes"]]
    assert kernels.count("gemm_stored") == 2


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ([2.0, -4.0], [2.5, -4.0], 0.125),
        ([2.0, -np.inf, np.nan], [1.0, -np.inf, np.nan], 0.5),
        ([2.0, -np.inf], [2.0, np.inf], np.inf),
        ([2.0, -np.inf], [2.0, 0.0], np.inf),
        ([2.0, 1.0], [2.0, np.nan], np.inf),
        ([np.nan, np.nan], [np.nan, np.nan], np.inf),
        ([], [], 0.0),
    ],
)
def test_infinities_and_nans_are_to_be_the_same(before, after, told):
    assert lost(np.array(before, np.float32), np.array(after, np.float32)) == told


TABLE = """g (int64[n] i) => (float[n, 64] y) { e = Gather (t, i)  y = MatMul (e, a) }"""


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[], ["--dim", "n=3"], ["--shape", "i=3"], ["--typical", "n=3"]], ids=str)
def test_generated_inputs_are_those_that_the_graph_expects_of_the_sizes_compiled_in(tmp_path, capsys, sizes):
    w = small_models.Weights(4)
    w.add("t", 2, 2048)
    w.add("a", 2048, 64)
    onnx.save(small_models.parsed(TABLE, w), tmp_path / "m.onnx")
    command = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so"), "--weights", "int8", *sizes]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert f"of i int64[{3 if sizes else 1}] (generated)" in told and "in 2 layers" in told


@pytest.mark.skipif(ELSEWHERE is None, reason="this machine runs code for every target")
def test_weights_are_narrowed_for_processors_that_are_elsewhere(files, capsys):
    arguments = "--weights", "int8", "--weights-error", "1", "--target", str(ELSEWHERE)
    assert narrowed(files, capsys, *arguments)["narrowed"]["layers"] == 2
    with pytest.raises(onnxc.LoadError, match="this one lacks"):
        onnxc.load(files / "m.so")
    assert main(["compile", str(files / "m.onnx"), "-o", str(files / "n.so"), "--tune", "1", *arguments]) == 3
    assert f"this machine runs no code for {ELSEWHERE}" in capsys.readouterr().err


def test_calibration_that_is_not_there_is_one_sentence(files, capsys):
    arguments = ["compile", str(files / "m.onnx"), "-o", str(files / "n.so"), "--weights", "int8"]
    assert main([*arguments, "--calibration", str(files / "none.npz")]) == 1
    assert capsys.readouterr().err.strip().endswith("none.npz: no such file")
    assert not (files / "n.so").exists()
