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

#: Of the elements of sequences.
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
TYPES = ["float", "double", "float16", "bool", "complex64", "complex128", "string", *INTEGERS]


def each(form):
    return " ".join(form.format(type_) for type_ in TYPES)


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
    "joined": """g (seq(float[n, 3]) x) => (float[m, 3] y, seq(float[k, 3]) z)
        { y = ConcatFromSequence <axis = 0> (x) z = SequenceInsert (x, y) }""",
    "lists": f"""g ({each("seq({0}[n]) i_{0},")[:-1]}) => ({each("seq({0}[n]) o_{0},")[:-1]})
        {{ {each("o_{0} = Identity (i_{0})")} }}""",
    "parts": """g (float[n, m] x, string[k] t)
            => (seq(float[m]) rows, seq(float[n]) columns, seq(float) numbers, seq(string) texts)
        { rows = SplitToSequence <axis = 0, keepdims = 0> (x)
          columns = SplitToSequence <axis = 1, keepdims = 0> (x)
          all = Constant <value_ints = [-1]> () flat = Reshape (x, all)
          numbers = SplitToSequence <axis = 0, keepdims = 0> (flat)
          texts = SplitToSequence <axis = 0, keepdims = 0> (t) }""",
    "rows": "g (float[n, m] x) => (seq(float[m]) y) { y = SplitToSequence <axis = 0, keepdims = 0> (x) }",
    "unlike": """g (float[n, m] x) => (seq(float[k, l]) y)
        { t = Transpose (x) a = Neg (x) y = SequenceConstruct (x, t, a, t, x, t) }""",
    "held": """g (optional(float[n]) x, optional(seq(float[n])) s, optional(string[n]) t, int64[n] i)
            => (optional(float[n]) y, optional(seq(float[n])) z, optional(string[n]) w, int64[n] j)
        { y = Identity (x) z = Identity (s) w = Identity (t) j = Neg (i) }""",
    "any rank": "g (float[] x, int64[n] i) => (float[] y, int64[n] j) { y = Neg (x) j = Neg (i) }",
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quick")
    head = '<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3]> '
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


def words(n):
    return np.array([f"wört {k}" for k in range(n)], object)


def of_each_type(sizes):
    """Sequences of arrays of these sizes."""
    named = {"float": "float32", "double": "float64", "string": "object"}
    return {
        f"i_{t}": [words(n) if t == "string" else np.ones(n, named.get(t, t)) for n in sizes] for t in TYPES
    }


def held(x, s, t):
    return {"x": x, "s": s, "t": t, "i": np.arange(3)}


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
    ("joined", {"x": [rows(2), rows(0), rows(3)]}),
    ("joined", {"x": (rows(2),)}),
    ("joined", {"x": [rows(LARGE), rows(1)]}),
    *(("lists", of_each_type([2, 0, 1][:n])) for n in (0, 1, 3)),
    *(("parts", {"x": rows(n), "t": words(n)}) for n in (1, 2, 5, 3000)),
    *(("parts", {"x": np.ones((n, m), np.float32), "t": words(1)}) for n, m in [(3000, 9), (9, 9000)]),
    ("parts", {"x": np.ones((6, 0), np.float32), "t": words(0)}),
    *(("unlike", {"x": np.ones((n, 20), np.float32)}) for n in (0, 3, 20, 900)),
    ("held", held(None, None, None)),
    ("held", held(np.ones(2, np.float32), [], np.array("ä", object))),
    ("held", held(np.array(3, np.float32), [np.ones(2, np.float32), np.zeros(3, np.float32)], words(2))),
    ("held", held(np.ones(LARGE, np.float32), [np.ones(LARGE, np.float32)] * 2, None)),
    *(("any rank", {"x": np.ones(s, np.float32), "i": np.arange(2)}) for s in ((), (2, 3), (LARGE,))),
]


def plain(value):
    """Texts and numbers in the place of arrays, with their types and shapes."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return (value.dtype, value.shape, value.tolist()) if isinstance(value, np.ndarray) else value


def arrays_in(value):
    if isinstance(value, list):
        return [array for item in value for array in arrays_in(item)]
    return [value] if isinstance(value, np.ndarray) else []


@pytest.mark.parametrize("name, feeds", USUAL)
def test_usual_calls_are_made_in_c_with_the_same_results(load, paths, name, feeds):
    expected = in_python(paths[name], feeds)
    open_model, left = load
    left.clear()
    with open_model(name) as model:
        for _ in range(3):
            results = model.run(None, feeds)
            assert plain(results) == plain(expected)
            assert all(array.flags.c_contiguous and array.flags.writeable for array in arrays_in(results))
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


def test_large_results_of_open_sizes_are_made_in_c_where_sizes_change_too(load):
    open_model, left = load
    large = LARGE // 12
    with open_model("open") as model:
        for n in (1, large, large, large, 1, 1, 1, large, large + 1, large + 1):
            y, z = model(rows(n))
            np.testing.assert_array_equal(y, np.concatenate([rows(n), rows(n)]))
            np.testing.assert_array_equal(z, rows(n).T)
    assert left == []


def test_large_results_whose_sizes_are_those_of_either_input_are_made_in_c(load):
    open_model, left = load
    x = rows(LARGE)
    with open_model("spread") as model:
        for b in (x, x, x[:1], x[:1]):
            np.testing.assert_array_equal(model(x, b), x + b)
    assert left == []


def test_large_results_whose_sizes_are_data_have_these(load):
    open_model, left = load
    x, c = np.arange(2 * LARGE, dtype=np.float32), np.ones(2 * LARGE, bool)
    with open_model("data") as model:
        for count in (2 * LARGE, LARGE, LARGE, 3):
            c[count:] = False
            np.testing.assert_array_equal(model(x, c), x[:count])
    assert left == []


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


UNUSUAL_ITEMS = {
    "numbers": lambda x: [x, [[1, 2, 3]]],
    "columns": lambda x: [x, np.asfortranarray(x)],
    "a subclass": lambda x: [x.view(Mine)],
    "another type": lambda x: [x, x.astype(np.float64)],
    "nothing": lambda x: [x, None],
    "a sequence": lambda x: [x, [x]],
    "an array": lambda x: x,
    "no sequence": lambda x: None,
    "another rank": lambda x: [x, x[0]],
    "other sizes": lambda x: [x, x[:, :2].copy()],
    "no items": lambda x: [],
}


@pytest.mark.parametrize("form", UNUSUAL_ITEMS)
def test_unusual_items_of_sequences_have_the_same_results_and_errors(load, paths, form):
    value = UNUSUAL_ITEMS[form](rows(2))

    def found(call):
        try:
            return plain(call())
        except RunError as error:
            return str(error), error.status

    expected = found(lambda: in_python(paths["joined"], {"x": value}))
    open_model, left = load
    with open_model("joined") as model:
        for _ in range(2):
            assert found(lambda: model.run(None, {"x": value})) == expected
            left.clear()
            assert plain(model(list(rows(4)[:, None]))[0]) == plain(rows(4))
            assert left == []


@pytest.mark.parametrize(
    "wrong", [{"x": [rows(2)]}, {"x": rows(2)}, {"s": rows(2)}, {"s": [None]}, {"t": words(2)[0]}, {"t": [7]}]
)
def test_what_optionals_do_not_hold_is_told_alike(load, paths, wrong):
    feeds = held(None, None, None) | wrong

    def found(call):
        try:
            return plain(call())
        except RunError as error:
            return str(error), error.status

    expected = found(lambda: in_python(paths["held"], feeds))
    open_model, left = load
    with open_model("held") as model:
        assert found(lambda: model.run(None, feeds)) == expected
        left.clear()
        assert plain(model(**held(None, None, None))[3]) == plain(-np.arange(3))
    assert left == []


def test_texts_of_a_width_are_usual_in_lists_and_optionals_too(load, paths):
    open_model, left = load
    with open_model("held") as model:
        found = model.run(None, held(None, None, np.array(["ä", "bc"])))
    assert found[2].tolist() == ["ä", "bc"]
    with open_model("lists") as model:
        found = model.run(None, of_each_type([]) | {"i_string": [np.array(["ä", "bc"]), words(1)]})
    assert [texts.tolist() for texts in found[TYPES.index("string")]] == [["ä", "bc"], words(1).tolist()]
    assert left == []


@pytest.mark.parametrize("n", [3, LARGE])
def test_items_outlive_the_model_and_each_other(load, n):
    open_model, left = load
    x = rows(n)
    with open_model("joined") as model:
        y, z = model([x, x[:1]])
    (optional,) = open_model("held").run(["z"], held(None, [x[:, 0].copy(), x[0]], None))
    expected = np.concatenate([x, x[:1]])
    first, second, third = z
    del z, y, first, model
    gc.collect()
    second[...] = 0
    np.testing.assert_array_equal(third, expected)
    np.testing.assert_array_equal(optional[0], x[:, 0])
    assert left == []


def test_a_part_of_a_large_result_keeps_its_memory_and_nothing_else_does(load):
    open_model, left = load
    x = rows(LARGE)
    with open_model("unlike") as model:
        results = model._library.results
        kept = model(x)[1][:, 5:]
        gc.collect()
        assert len(results) == 1
        np.testing.assert_array_equal(kept, x.T[:, 5:])
        del kept
        gc.collect()
        assert not results
    assert left == []


@pytest.mark.parametrize(
    "n, m, copied", [(9, 9, True), (9, LARGE, False), (9000, 9, True), (9000, 99, False)]
)
def test_large_results_are_copied_only_where_they_are_small_parts(load, n, m, copied):
    open_model, left = load
    x = np.arange(n * m, dtype=np.float32).reshape(n, m)
    with open_model("rows") as model:
        y = model(x)
        assert len(model._library.results) == (not copied)
        np.testing.assert_array_equal(y, x)
    assert left == []


@pytest.mark.parametrize(
    "name, feeds",
    [
        ("lists", of_each_type([2, 1])),
        ("rows", {"x": rows(LARGE)[:900]}),
        ("rows", {"x": np.ones((900, 300), np.float32)}),
        ("parts", {"x": rows(9), "t": words(9)}),
        ("held", held(rows(LARGE)[:, 0].copy(), [rows(LARGE)[:, 0].copy()] * 2, words(2))),
        ("held", held(None, None, None)),
    ],
)
def test_sequences_and_optionals_keep_nothing(load, name, feeds):
    open_model, left = load
    with open_model(name) as model:

        def calls(number):
            for _ in range(number):
                model.run(None, feeds)

        wrong = {**feeds, next(iter(feeds)): [*arrays_in(list(feeds.values()))[:1], None]}
        with pytest.raises(RunError):
            model.run(None, wrong)
        assert left
        left.clear()
        calls(50)
        lent = arrays_in(list(feeds.values()))
        gc.collect()
        references = list(map(sys.getrefcount, [*lent, None, *(a.dtype for a in lent), np.empty]))
        blocks = sys.getallocatedblocks()
        calls(1000)
        assert sys.getallocatedblocks() - blocks < 500
        after = list(map(sys.getrefcount, [*lent, None, *(a.dtype for a in lent), np.empty]))
        assert all(abs(b - a) < 10 for a, b in zip(references, after, strict=True))
        assert not model._library.results
    assert left == []


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


@pytest.mark.parametrize("name", ["open", "joined"])
def test_callers_run_side_by_side(load, name):
    open_model, _ = load
    wrong = []

    def calls(n):
        for _ in range(300):
            y, _ = model(rows(n) if name == "open" else [rows(n), rows(n)])
            if not np.array_equal(y, np.concatenate([rows(n), rows(n)])):
                wrong.append(n)

    with open_model(name) as model:
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


@pytest.mark.parametrize("wrong", [(), (1,), (*[np.empty] * 4, *[0] * 5, ((np.float32,),), ())])
def test_a_caller_that_is_described_wrongly_is_refused(wrong):
    with pytest.raises(TypeError):
        Caller(*wrong)
