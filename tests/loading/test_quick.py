"""The usual call in C (`loading/quick.c`) gives what Python's gives, to which it leaves what is unusual."""

import gc
import sys
import threading

import numpy as np
import onnx.parser
import pytest

import onnxc
from onnxc.errors import RunError
from onnxc.loading import context as contexts
from onnxc.loading._quick import Caller
from onnxc.loading.c_values import LARGE

MODELS = {
    "fixed": "g (float[2, 3] x) => (float[3, 2] y, float[2, 3] z) { y = Transpose (x) z = Neg (x) }",
    "open": """g (float[n, 3] x) => (float[m, 3] y, float[3, n] z)
        { y = Concat <axis = 0> (x, x) z = Transpose (x) }""",
    "scalars": """g (int64 i, bool b, float16 h) => (int64 y, bool z, float16 w)
        { y = Neg (i) z = Not (b) w = Abs (h) }""",
    "spread": "g (float[n, 3] a, float[m, 3] b) => (float[k, 3] y) { y = Add (a, b) }",
    "data": "g (float[n] x, bool[n] c) => (float[] y) { y = Compress <axis = 0> (x, c) }",
    "ends": "g (int64[n] a, int64[k] b) => (int64[m] y) { y = Concat <axis = 0> (a, b) }",
    "large": f"g (float[{LARGE}] x) => (float[{LARGE}] y) {{ y = Neg (x) }}",
    "reshape": "g (float[n] x, int64[k] s) => (float[] y) { y = Reshape (x, s) }",
    "labels": """g (float[n, 3] x) => (string[n] y, seq(map(int64, float)) z, seq(map(string, float)) w)
        { i = ArgMax <axis = 1, keepdims = 0> (x)
          y = ai.onnx.ml.LabelEncoder <keys_int64s = [0, 1, 2], values_strings = ["ä", "", "c"]> (i)
          z = ai.onnx.ml.ZipMap <classlabels_int64s = [7, -3, 5]> (x)
          w = ai.onnx.ml.ZipMap <classlabels_strings = ["ä", "", "c"]> (x) }""",
    "names": """g (string[n] t, float[n] x) => (int64[n] y, string[n] z, float[n] w)
        { y = ai.onnx.ml.LabelEncoder <keys_strings = ["ä", "", "c"], values_int64s = [4, 5, 6]> (t)
          z = Identity (t) w = Neg (x) }""",
    "map": """g (float[2] x) => (map(int64, float) y)
        { y = ai.onnx.ml.ZipMap <classlabels_int64s = [1, 2]> (x) }""",
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quick")
    head = '<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]> '
    return {
        n: onnxc.compile(onnx.parser.parse_model(head + t), folder / f"{n}.so") for n, t in MODELS.items()
    }


@pytest.fixture
def load(paths, monkeypatch):
    """(loads a model whose calls are counted, those that were left to Python)"""
    left = []
    run_any = contexts.Context.run_any

    def counting(self, values, memory=None):
        left.append(values)
        return run_any(self, values, memory)

    monkeypatch.setattr(contexts.Context, "run_any", counting)
    return (lambda name: onnxc.load(paths[name], threads=1)), left


def caller_of(model):
    context = model.acquire()
    model.give_back(context)
    return context.caller


def in_python(path, feeds):
    """The results without the module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contexts, "Caller", None)
        with onnxc.load(path, threads=1) as model:
            assert caller_of(model) is None
            return model.run(None, feeds)


def rows(n):
    return np.random.default_rng(n).random((n, 3), np.float32)


USUAL = [
    ("fixed", {"x": rows(2)}),
    ("open", {"x": rows(5)}),
    ("open", {"x": rows(0)}),
    ("scalars", {"i": np.array(7), "b": np.array(True), "h": np.array(-2, np.float16)}),
    ("data", {"x": rows(4)[:, 0].copy(), "c": np.array([True, False, True, True])}),
    ("data", {"x": rows(4)[:, 0].copy(), "c": np.zeros(4, bool)}),
    ("ends", {"a": np.arange(3), "b": np.arange(0)}),
    ("reshape", {"x": np.ones(6, np.float32), "s": np.array([2, 3, 1])}),
    ("reshape", {"x": np.ones(1, np.float32), "s": np.zeros(0, np.int64)}),
    ("names", {"t": np.array(["ä", "c", "", "no", "\0"], object), "x": rows(5)[:, 0].copy()}),
    ("names", {"t": np.array([], object), "x": rows(0)[:, 0].copy()}),
    *(("labels", {"x": rows(n)}) for n in (0, 1, 3, 5000)),
    ("map", {"x": rows(2)[0, :2].copy()}),
]


@pytest.mark.parametrize("name, feeds", USUAL)
def test_usual_calls_are_made_in_c_with_the_same_results(load, paths, name, feeds):
    expected = in_python(paths[name], feeds)
    open_model, left = load
    left.clear()
    with open_model(name) as model:
        for _ in range(3):
            for got, wanted in zip(model.run(None, feeds), expected, strict=True):
                if not isinstance(wanted, np.ndarray):  # maps
                    assert got == wanted
                    continue
                assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
                assert got.flags.c_contiguous and got.flags.writeable
                np.testing.assert_array_equal(got, wanted)
    assert left == []


def test_texts_and_maps_are_their_owners_alone(load):
    open_model, _ = load
    with open_model("labels") as model:
        model.run(None, {"x": rows(2)})
        gc.collect()
        before = sys.getrefcount(None)
        kept = [model.run(None, {"x": rows(n)}) for n in range(50)]
        for _, numbered, named in kept:
            assert not numbered or numbered[0] is not named[0]
        again = model.run(None, {"x": rows(9)})
        assert [list(map(type, value)) for value in again[1:]] == [[dict] * 9] * 2
        del kept, again, numbered, named
        gc.collect()
        assert abs(sys.getrefcount(None) - before) < 500  # of 1,234 texts


def read_only(x):
    x.flags.writeable = False
    return x


READ = {"read only": read_only, "native": lambda x: x.astype("=f4"), "its own": np.ascontiguousarray}


@pytest.mark.parametrize("form", READ)
def test_arrays_that_are_only_read_are_usual(load, form):
    open_model, left = load
    with open_model("fixed") as model:
        np.testing.assert_array_equal(model(READ[form](rows(2)))[1], -rows(2))
    assert left == []


OTHER_TEXTS = {
    "a list": ["ä", "c"],
    "bytes": np.array([b"c", "c"], object),
    "bytes of a width": np.array([b"c", b""]),
    "surrogates": np.array(["c", "\udcff"], object),
    "surrogates of a width": np.array(["c", "\udcff"]),
    "no text": np.array(["c", 7], object),
    "nothing": np.array(["c", None], object),
}


@pytest.mark.parametrize("form", OTHER_TEXTS)
def test_what_is_no_array_of_texts_is_left_to_python(load, paths, form):
    feeds = {"t": OTHER_TEXTS[form], "x": rows(2)[:, 0].copy()}
    open_model, left = load

    def found(call):
        try:
            return [value.tolist() for value in call()]
        except RunError as error:
            return str(error)

    expected = found(lambda: in_python(paths["names"], feeds))
    left.clear()
    with open_model("names") as model:
        assert found(lambda: model.run(None, feeds)) == expected
    assert left


@pytest.mark.parametrize("texts", [["ä", "c"], ["", ""], ["c\0", "ä\0c"]])
def test_texts_of_a_width_are_usual(load, paths, texts):
    feeds = {"t": np.array(texts), "x": rows(2)[:, 0].copy()}
    expected = in_python(paths["names"], feeds)
    open_model, left = load
    left.clear()
    with open_model("names") as model:
        for found, wanted in zip(model.run(None, feeds), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert left == []


def test_texts_that_are_lent_are_kept_for_the_call_alone(load):
    open_model, left = load
    text = "some text that is nobody else's"
    with open_model("names") as model:
        feeds = {"t": np.array([text] * 3, object), "x": rows(3)[:, 0].copy()}
        before = sys.getrefcount(text)
        for _ in range(9):
            model.run(None, feeds)
        assert sys.getrefcount(text) == before
        with pytest.raises(RunError):  # its lengths do not agree
            model.run(None, feeds | {"x": rows(2)[:, 0].copy()})
        assert sys.getrefcount(text) == before
    assert left == []


class Mine(np.ndarray):
    """An array of a class of the user's."""


UNUSUAL = {
    "a list": lambda x: x.tolist(),
    "columns": lambda x: np.asfortranarray(x),
    "strides": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "a subclass": lambda x: x.view(Mine),
    "the other order of bytes": lambda x: x.astype(">f4"),
}


@pytest.mark.parametrize("form", UNUSUAL)
def test_other_values_are_left_to_python(load, paths, form):
    value = UNUSUAL[form](rows(2))
    open_model, left = load
    with open_model("fixed") as model:
        try:
            expected = in_python(paths["fixed"], {"x": value})
        except RunError as error:
            with pytest.raises(RunError) as caught:
                model(value)
            assert str(caught.value) == str(error)
        else:
            np.testing.assert_array_equal(model(value)[1], expected[1])
    assert left


@pytest.mark.parametrize(
    "wrong", [rows(2).astype(np.float64), rows(2)[None], rows(3), None, "text", rows(2)[0]]
)
def test_what_is_wrong_is_told_alike(load, paths, wrong):
    def sentence(call):
        with pytest.raises(RunError) as caught:
            call()
        return str(caught.value), caught.value.status

    with load[0]("fixed") as model:
        expected = sentence(lambda: in_python(paths["fixed"], {"x": wrong}))
        assert sentence(lambda: model.run(None, {"x": wrong})) == expected
        np.testing.assert_array_equal(model(rows(2))[1], -rows(2))


def test_a_run_that_fails_tells_why_and_the_next_one_succeeds(load):
    open_model, left = load
    with open_model("reshape") as model:
        for _ in range(2):
            with pytest.raises(RunError, match="Reshape"):
                model(np.ones(6, np.float32), np.array([4, 4]))
            assert model(np.ones(6, np.float32), np.array([6])).shape == (6,)
    assert left == []


def test_large_results_of_open_sizes_are_left_to_python_where_sizes_change(load):
    open_model, left = load
    large = LARGE // 12
    with open_model("open") as model:
        for n in (1, large, large, large, 1, 1, 1, large, large + 1, large + 1):
            y, z = model(rows(n))
            np.testing.assert_array_equal(y, np.concatenate([rows(n), rows(n)]))
            np.testing.assert_array_equal(z, rows(n).T)
    assert [len(values[0]) for values in left] == [1, large + 1]  # C hands the first over and knows them then


def test_large_results_whose_sizes_are_those_of_either_input_are_made_in_c(load):
    open_model, left = load
    x = rows(LARGE)
    with open_model("spread") as model:
        for b in (x, x, x[:1], x[:1]):
            np.testing.assert_array_equal(model(x, b), x + b)
    assert [len(values[1]) for values in left] == [1]


def test_large_results_whose_sizes_are_data_have_these(load):
    open_model, left = load
    x, c = np.arange(2 * LARGE, dtype=np.float32), np.ones(2 * LARGE, bool)
    with open_model("data") as model:
        for count in (2 * LARGE, LARGE, LARGE, 3):
            c[count:] = False
            np.testing.assert_array_equal(model(x, c), x[:count])
    assert left


@pytest.mark.parametrize("name", ["large", "open"])
def test_memory_of_large_results_is_given_again_when_nobody_looks_at_it(load, name):
    x = rows(LARGE // 3 + 1).ravel()[:LARGE] if name == "large" else rows(LARGE)
    with load[0](name) as model:

        def last():
            return model.run(None, {"x": x})[-1]

        for _ in range(2):
            last()  # until its size is known
        first = last()
        place, part = first.ctypes.data, first[..., 1:]
        expected = part.copy()
        del first
        second = last()
        assert second.ctypes.data != place and not np.shares_memory(second, part)
        second[...] = 0
        np.testing.assert_array_equal(part, expected)
        del part
        assert place in {last().ctypes.data for _ in range(2)}
        assert place % 64 == second.ctypes.data % 64 == 0


def test_results_are_their_owners_alone(load):
    with load[0]("open") as model:
        first, second = model(rows(2)), model(rows(3))
        first[0][...] = 0
        np.testing.assert_array_equal(second[0], np.concatenate([rows(3), rows(3)]))
    np.testing.assert_array_equal(second[1], rows(3).T)  # the model is closed


def test_calls_keep_nothing(load):
    x = rows(2)
    with load[0]("open") as model:
        model(x)
        gc.collect()
        references = sys.getrefcount(x), sys.getrefcount(x.dtype), sys.getrefcount(np.empty)
        blocks = sys.getallocatedblocks()
        for _ in range(1000):
            model(x)
        assert sys.getallocatedblocks() - blocks < 100
        after = sys.getrefcount(x), sys.getrefcount(x.dtype), sys.getrefcount(np.empty)
    assert all(b - a < 10 for a, b in zip(references, after))


def test_callers_run_side_by_side(load):
    open_model, _ = load
    wrong = []

    def calls(n):
        for _ in range(300):
            y, _ = model(rows(n))
            if not np.array_equal(y, np.concatenate([rows(n), rows(n)])):
                wrong.append(n)

    with open_model("open") as model:
        threads = [threading.Thread(target=calls, args=(n,)) for n in range(1, 6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_model_is_not_closed_while_a_caller_has_a_context(load):
    with load[0]("open") as model:
        context = model.acquire()
        with pytest.raises(RunError, match="running"):
            model.close()
        assert model(rows(2))[0].shape == (4, 3)
        model.give_back(context)
    with pytest.raises(RunError, match="closed"):
        model(rows(2))


@pytest.mark.parametrize("wrong", [(), (1,), (np.ndarray, np.empty, 0, 0, 0, 0, ((np.float32,),), ())])
def test_a_caller_that_is_described_wrongly_is_refused(wrong):
    with pytest.raises(TypeError):
        Caller(*wrong)
