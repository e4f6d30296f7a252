"""Models as people expect them from Python: pickled, awaited, shown, fed and written to without copies."""

import ast
import asyncio
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from operator import methodcaller
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from support.installed import installed_tree
from support.small_models import parsed

import onnxc
from onnxc import onnxruntime
from onnxc.errors import RunError

X = np.array([1, 2, 3], np.float32)
TYPED = Path(__file__).parents[1] / "support" / "typed_program.py"


@pytest.fixture
def model(affine_path):
    with onnxc.load(affine_path) as loaded:
        yield loaded


def feeds(model) -> dict:
    rng = np.random.default_rng(0)
    return {"x": rng.random(3, np.float32), "b": rng.random(3, np.float32), "fail_at": np.array(1000)}


def test_a_model_is_pickled_as_its_path(model):
    again = pickle.loads(pickle.dumps(model))
    assert again.inputs == model.inputs
    for mine, other in zip(again.run(None, feeds(model)), model.run(None, feeds(model))):
        np.testing.assert_array_equal(mine, other)


def test_a_session_is_pickled_as_what_it_was_opened_of(affine_path):
    session = onnxc.InferenceSession(affine_path, threads=1)
    again = pickle.loads(pickle.dumps(session))
    assert again.model.path == session.model.path
    with again:
        assert again.run([], feeds(again.model))
    with pytest.raises(RunError, match="closed"):
        again.run([], feeds(session.model))


def test_a_run_may_be_awaited(model):
    async def several():
        return await asyncio.gather(*(model.run_async(None, feeds(model)) for _ in range(4)))

    expected = model.run(None, feeds(model))
    for results in asyncio.run(several()):
        for mine, other in zip(results, expected):
            np.testing.assert_array_equal(mine, other)


def test_results_are_written_where_the_caller_wants_them(model):
    expected = model.run(None, feeds(model))
    name = model.outputs[0].name
    memory = np.zeros_like(expected[0])
    results = model.run([name], feeds(model), out={name: memory})
    assert results[0] is memory
    np.testing.assert_array_equal(memory, expected[0])


def opened(tmp_path, text: str):
    path = onnxc.compile(
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'), tmp_path / "m.so"
    )
    return onnxc.load(path)


def test_results_of_open_sizes_are_of_their_own_run(tmp_path):
    text = (
        "g (float[n, 3] x) => (float[m, 3] y, float[3, n] z) { y = Concat<axis = 0>(x, x) z = Transpose(x) }"
    )
    kept = []
    with opened(tmp_path, text) as model:
        for rows in (2, 2, 3, 3, 2, 0, 0, 9000, 9000, 2, 2):
            x = np.random.default_rng(len(kept)).random((rows, 3), np.float32)
            kept.append((x, *model.run(None, {"x": x})))
        for x, y, z in kept:
            np.testing.assert_array_equal(y, np.concatenate([x, x]))
            np.testing.assert_array_equal(z, x.T)


def test_sizes_that_data_decide_may_differ_where_shapes_do_not(tmp_path):
    text = "g (float[n] x, bool[n] c) => (float[n] y, float[n] z) { y = Compress<axis = 0>(x, c) z = Neg(x) }"
    x = np.arange(4, dtype=np.float32)
    with opened(tmp_path, text) as model:
        for count in (2, 2, 4, 1, 0, 3):
            y, z = model.run(None, {"x": x, "c": np.arange(4) < count})
            np.testing.assert_array_equal(y, x[:count])
            np.testing.assert_array_equal(z, -x)


@pytest.mark.parametrize(
    "spoil",
    [lambda a: a.astype(np.int64), lambda a: a.reshape(-1)[::2], lambda a: a.tolist(), lambda a: a[None]],
)
def test_memory_that_does_not_fit_is_refused(model, spoil):
    name = model.outputs[0].name
    expected = model.run([name], feeds(model))[0]
    with pytest.raises(RunError, match=r"its memory|bytes are needed"):
        model.run(None, feeds(model), out={name: spoil(expected)})
    np.testing.assert_array_equal(model.run([name], feeds(model))[0], expected)


def test_outputs_that_are_no_numbers_take_no_memory(tmp_path):
    text = """g (string[n] s, float[n] x) => (string[n] t, seq(float[n]) l)
        { t = Identity(s) l = SequenceConstruct(x) }"""
    given = {"s": np.array(["a"], object), "x": X[:1]}
    with opened(tmp_path, text) as model:
        for name in ("t", "l"):
            sentence = f"output '{name}': outputs of strings, sequences, optionals and maps take no memory"
            with pytest.raises(RunError, match=sentence):
                model.run(None, given, out={name: np.empty(1, object)})


@pytest.mark.parametrize("kind", ["object", "U", "S", "StringDType"])
def test_texts_are_taken_in_each_of_numpys_types(tmp_path, kind):
    if kind == "StringDType":
        kind = getattr(np.dtypes, kind, lambda: pytest.skip("this numpy has no such type"))()
    plain = ["a", "", "a text of more than sixteen bytes", "b"]
    texts = np.array(plain, kind)
    with opened(tmp_path, "g (string[n] s) => (string[n] t) { t = Identity(s) }") as model:
        for step, count in ((1, 4), (2, 4), (1, 0)):
            assert model.run(None, {"s": texts[:count:step]})[0].tolist() == plain[:count:step]
    with pytest.raises(RuntimeError, match="only supported from non-string numpy arrays"):
        onnxruntime.OrtValue.ortvalue_from_numpy(texts)


class Converted:
    """What becomes an array only when a call asks for it, and does something else then."""

    def __init__(self, array, action):
        self.array, self.action = array, action

    def __array__(self, dtype=None, copy=None):
        self.action()
        return self.array


def test_a_call_whose_inputs_are_still_being_converted_can_be_cancelled(model):
    given = feeds(model)
    with pytest.raises(RunError, match="cancelled") as caught:
        model.run(None, {**given, "x": Converted(given["x"], model.cancel)})
    assert caught.value.status == 17
    model.cancel()  # nothing that is under way
    np.testing.assert_array_equal(model.run(None, given)[0], model.run(None, given)[0])


class Tensor:
    """A tensor of another library."""

    def __init__(self, array):
        self.array, self.asked = array, 0

    def __dlpack__(self, **how):
        self.asked += 1
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_tensors_of_other_libraries_are_read_where_they_are(model):
    tensors = {name: Tensor(array) for name, array in feeds(model).items()}
    for mine, other in zip(model.run(None, tensors), model.run(None, feeds(model))):
        np.testing.assert_array_equal(mine, other)
    assert all(tensor.asked for tensor in tensors.values())


def test_a_model_shows_what_it_takes_and_gives(model):
    for port in (*model.inputs, *model.outputs):
        assert f"{port.name}: {port.type_text()}" in repr(model)
        assert port.type_text() in model._repr_html_()


def test_a_model_tells_what_its_kernels_were_chosen_for(tmp_path):
    model = parsed("m (float[n, length] x, float[3] b) => (float[n, length] y) { y = Abs (x) }")
    onnxc.compile(model, tmp_path / "m.so", typical={"n": 8})
    x, b = onnxc.load(tmp_path / "m.so").inputs
    assert x.typical == (8, 128) and b.typical is None


def test_the_package_shows_its_public_names_alone():
    assert dir(onnxc) == sorted(onnxc.__all__)
    assert all(getattr(onnxc, name) is not None for name in onnxc.__all__)


def test_the_program_with_types_uses_every_public_name():
    tree = ast.parse(TYPED.read_text())
    used = {
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    public = [("onnxc", name) for name in onnxc.__all__] + [("ort", name) for name in onnxruntime.__all__]
    assert not [entry for entry in public if entry not in used]


@pytest.mark.slow
def test_a_program_with_types_passes_the_strict_checker(tmp_path):
    tree = installed_tree(tmp_path / "tree")
    shutil.copy(TYPED, tmp_path / "program.py")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", "--strict", "--follow-imports=silent", "program.py"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(tree)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_processes_share_a_model_by_pickling(model):
    run = methodcaller("run", None, feeds(model))
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for results in pool.map(run, [model, model]):
            assert all(map(np.array_equal, results, run(model)))


def test_results_that_no_memory_holds_are_refused_in_one_sentence(tmp_path):
    """Whether the loader makes their memory, as of known sizes, or the library does."""
    square = parsed(
        "square (float[n] x) => (float[n, n] y) { column = Constant <value = int64[2] {-1, 1}> ()"
        " tall = Reshape (x, column) y = Add (x, tall) }"
    )
    n = 1 << 23
    for dims in ({}, {"n": n}):
        with onnxc.load(onnxc.compile(square, tmp_path / "square.so", dims=dims)) as model:
            with pytest.raises(RunError, match=r"^out of memory: \d{15}"):
                model.run(None, {"x": np.zeros(n, np.float32)})
            if dims:
                with pytest.raises(RunError, match=r"^out of memory: \d+ bytes are needed$"):
                    model.bind()
