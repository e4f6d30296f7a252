"""Operands with the most extreme numbers in every place: each run ends with a status and a sentence or with
what the reference computes, and the next run works. And operands without elements but with huge sizes."""

import resource
import warnings

import numpy as np
import onnx.reference
import pytest
from support.small_models import parsed

import onnxc
from onnxc.errors import RunError

WHOLE = [
    sign * number + more
    for number in (0, 1 << 31, 1 << 32, 1 << 61, 1 << 62, (1 << 63) - 1)
    for sign in (1, -1)
    for more in (-1, 0, 1, 2)
]
REAL = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, -0.0, 2.0**31, -(2.0**63), 2.0**64, 1.0, -1.0, 0.5]


def f(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def i(*values):
    return np.array(values, np.int64)


def square(*values):
    return i(*values).reshape(2, 2)


def unsigned(dtype):
    return {"x": np.array([1, 2, 200], dtype), "s": np.array([1, 2, 3], dtype)}


SLICE = """g (float[N] x, int64[1] a, int64[1] e, int64[1] s) => (float[A] y) {
    axis = Constant <value = int64[1] {0}> () y = Slice (x, a, e, axis, s) }"""
PAD = 'g (float[N] x, int64[2] p) => (float[A] y) { y = Pad <mode = "MODE"> (x, p) }'
SHIFT = """g (TYPE[N] x, TYPE[N] s) => (TYPE[N] l, TYPE[N] r) {
    l = BitShift <direction = "LEFT"> (x, s) r = BitShift <direction = "RIGHT"> (x, s) }"""
RECURRENT = """g (float[T,B,3] x, float[1,8,3] w, float[1,8,2] r, int32[B] n) => (float[T,1,B,2] y) {
    y = LSTM <hidden_size = 2> (x, w, r, , n) }"""

#: name → (model, good inputs, the inputs that vary, whether the reference agrees wherever both give results)
CASES = {
    "Slice": (SLICE, {"x": f(7), "a": i(1), "e": i(6), "s": i(2)}, "aes", True),
    "Slice along any axis": (
        "g (float[N,M] x, int64[1] a, int64[1] e, int64[1] k) => (float[A,B] y) { y = Slice (x, a, e, k) }",
        {"x": f(7, 3), "a": i(1), "e": i(6), "k": i(0)},
        "aek",
        True,
    ),
    "Pad": (PAD.replace("MODE", "constant"), {"x": f(4), "p": i(1, 2)}, "p", True),
    "Pad of reflections": (PAD.replace("MODE", "reflect"), {"x": f(4), "p": i(1, 2)}, "p", False),
    "Pad of edges": (PAD.replace("MODE", "edge"), {"x": f(4), "p": i(1, 2)}, "p", False),
    "Pad of repeats": (PAD.replace("MODE", "wrap"), {"x": f(4), "p": i(1, 2)}, "p", False),
    "Tile": (
        "g (float[N,M] x, int64[2] r) => (float[A,B] y) { y = Tile (x, r) }",
        {"x": f(4, 2), "r": i(2, 1)},
        "r",
        True,
    ),
    "Expand": (
        "g (float[N] x, int64[2] s) => (float[A,B] y) { y = Expand (x, s) }",
        {"x": f(1), "s": i(2, 3)},
        "s",
        True,
    ),
    "Reshape": (
        "g (float[N] x, int64[2] s) => (float[A,B] y) { y = Reshape (x, s) }",
        {"x": f(6), "s": i(2, 3)},
        "s",
        True,
    ),
    "Range": (
        "g (int64 a, int64 b, int64 c) => (int64[N] y) { y = Range (a, b, c) }",
        {"a": i(0)[0], "b": i(5)[0], "c": i(1)[0]},
        "abc",
        False,
    ),
    "Range of floats": (
        "g (float a, float b, float c) => (float[N] y) { y = Range (a, b, c) }",
        {"a": f(1)[0] * 0, "b": f(1)[0] * 40, "c": f(1)[0]},
        "abc",
        False,
    ),
    "TopK": (
        "g (float[N] x, int64[1] k) => (float[K] v, int64[K] at) { v, at = TopK (x, k) }",
        {"x": f(5), "k": i(2)},
        "k",
        True,
    ),
    "OneHot": (
        "g (int64[N] at, int64 d, float[2] v) => (float[N,D] y) { y = OneHot (at, d, v) }",
        {"at": i(0, 1, 2), "d": i(3)[0], "v": f(2)},
        ("at", "d"),
        True,
    ),
    "GatherND": (
        "g (float[N,M] x, int64[K,2] at) => (float[K] y) { y = GatherND (x, at) }",
        {"x": f(3, 4), "at": square(0, 1, 1, 0)},
        ("at",),
        True,
    ),
    "GatherElements": (
        "g (float[N,M] x, int64[K,L] at) => (float[K,L] y) { y = GatherElements <axis = 1> (x, at) }",
        {"x": f(2, 4), "at": square(0, 1, 1, 0)},
        ("at",),
        True,
    ),
    "ScatterElements": (
        """g (float[N,M] x, int64[K,L] at, float[K,L] u) => (float[N,M] y) {
            y = ScatterElements <axis = 1, reduction = "add"> (x, at, u) }""",
        {"x": f(3, 4), "at": square(0, 1, 1, 0), "u": f(2, 2)},
        ("at",),
        True,
    ),
    "ScatterND": (
        "g (float[N,M] x, int64[K,2] at, float[K] u) => (float[N,M] y) { y = ScatterND (x, at, u) }",
        {"x": f(3, 4), "at": square(0, 1, 1, 0), "u": f(2)},
        ("at",),
        True,
    ),
    "MaxUnpool": (
        """g (float[1,1,2,2] x, int64[1,1,2,2] at, int64[4] s) => (float[A,B,H,W] y) {
            y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, at, s) }""",
        {"x": f(1, 1, 2, 2), "at": i(0, 2, 8, 10).reshape(1, 1, 2, 2), "s": i(1, 1, 5, 5)},
        ("at", "s"),
        False,
    ),
    "Trilu": (
        "g (float[N,M] x, int64 k) => (float[N,M] y) { y = Trilu (x, k) }",
        {"x": f(3, 4), "k": i(1)[0]},
        "k",
        False,
    ),
    "ReverseSequence": (
        "g (float[T,B] x, int64[B] n) => (float[T,B] y) { y = ReverseSequence (x, n) }",
        {"x": f(3, 2), "n": i(1, 2)},
        "n",
        True,
    ),
    "CenterCropPad": (
        "g (float[N,M] x, int64[2] s) => (float[A,B] y) { y = CenterCropPad (x, s) }",
        {"x": f(3, 4), "s": i(2, 6)},
        "s",
        True,
    ),
    "TensorScatter": (
        """g (float[B,S,D] x, float[B,T,D] u, int64[B] at) => (float[B,S,D] y, float[B,S,D] z) {
            y = TensorScatter <mode = "linear"> (x, u, at)
            z = TensorScatter <mode = "circular"> (x, u, at) }""",
        {"x": f(2, 4, 3), "u": f(2, 1, 3), "at": i(0, 1)},
        ("at",),
        False,
    ),
    "RoiAlign": (
        """g (float[N,C,H,W] x, float[R,4] r, int64[R] at) => (float[R,C,P,Q] y) {
            y = RoiAlign <output_height = 2, output_width = 2> (x, r, at) }""",
        {"x": f(1, 2, 4, 4), "r": f(2, 4), "at": i(0, 0)},
        ("r", "at"),
        False,
    ),
    "GridSample": (
        """g (float[1,1,H,W] x, float[1,P,Q,2] at) => (float[1,1,P,Q] y, float[1,1,P,Q] z) {
            y = GridSample (x, at)
            z = GridSample <padding_mode = "reflection", mode = "cubic"> (x, at) }""",
        {"x": f(1, 1, 3, 4), "at": f(1, 2, 2, 2)},
        ("at",),
        False,
    ),
    "Resize": (
        "g (float[1,1,H,W] x, int64[4] s) => (float[A,B,C,D] y) { y = Resize (x, , , s) }",
        {"x": f(1, 1, 3, 4), "s": i(1, 1, 5, 5)},
        "s",
        False,
    ),
    "Resize by factors": (
        'g (float[1,1,H,W] x, float[4] s) => (float[A,B,C,D] y) { y = Resize <mode = "cubic"> (x, , s) }',
        {"x": f(1, 1, 3, 4), "s": np.array([1, 1, 2, 1.5], np.float32)},
        "s",
        False,
    ),
    "NonMaxSuppression": (
        "g (float[1,N,4] b, float[1,C,N] s, int64 k) => (int64[K,3] y) { y = NonMaxSuppression (b, s, k) }",
        {"b": f(1, 3, 4), "s": f(1, 2, 3), "k": i(1)[0]},
        "bsk",
        False,
    ),
    "DFT": (
        """g (float[B,N,1] x, int64 n) => (float[B,M,2] y) {
        axis = Constant <value = int64 {1}> () y = DFT (x, n, axis) }""",
        {"x": f(1, 5, 1), "n": i(4)[0]},
        "n",
        False,
    ),
    "axes": (
        "g (float[N,M] x, int64[1] a) => (float[A,B] y) { y = ReduceSum <keepdims = 1> (x, a) }",
        {"x": f(3, 4), "a": i(0)},
        "a",
        True,
    ),
    "list positions": (
        "g (float[N] x, int64 at) => (float[A] y) { s = SequenceConstruct (x, x) y = SequenceAt (s, at) }",
        {"x": f(3), "at": i(0)[0]},
        ("at",),
        True,
    ),
    "rounds": (
        """g (int64 n) => (int64 y) {
        go = Constant <value = bool {1}> () zero = Constant <value = int64 {0}> ()
        y = Loop (n, go, zero) <body = round (int64 i, bool c, int64 have) => (bool c_out, int64 more) {
            most = Constant <value = int64 {100}> () c_out = Less (have, most) more = Add (have, i) }> }""",
        {"n": i(3)[0]},
        "n",
        True,
    ),
    "lengths of sequences": (
        RECURRENT,
        {"x": f(4, 2, 3), "w": f(1, 8, 3), "r": f(1, 8, 2), "n": np.array([2, 4], np.int32)},
        "n",
        False,
    ),
    "shifts of 8 bits": (SHIFT.replace("TYPE", "uint8"), unsigned(np.uint8), "xs", True),
    "shifts of 32 bits": (SHIFT.replace("TYPE", "uint32"), unsigned(np.uint32), "xs", True),
    "shifts of 64 bits": (SHIFT.replace("TYPE", "uint64"), unsigned(np.uint64), "xs", True),
    "integer quotients": (
        "g (int64[N] x, int64[N] d) => (int64[N] q, int64[N] r) { q = Div (x, d) r = Mod (x, d) }",
        {"x": i(7, -7), "d": i(2, 3)},
        "xd",
        False,
    ),
    "sizes that are quotients": (
        """g (float[N] x, int64[1] q) => (float[A] y) {
            s = Shape (x) k = Div (s, q) m = Mod (s, q) n = Add (k, m) l = Abs (n)
            one = Constant <value = float[1] {1.0}> () y = Expand (one, l) }""",
        {"x": f(3), "q": i(2)},
        "q",
        False,
    ),
    "sizes that are products": (
        """g (float[N] x, int64[1] q) => (float[A] y) {
            s = Shape (x) k = Mul (s, q) m = Sub (k, q) n = Neg (m) l = Abs (n)
            one = Constant <value = float[1] {1.0}> () y = Expand (one, l) }""",
        {"x": f(3), "q": i(2)},
        "q",
        False,
    ),
    "sizes that were floats": (
        """g (float[N] x, float q) => (float[A] y) {
            s = Shape (x) r = Cast <to = 1> (s) p = Mul (r, q) k = Cast <to = 7> (p)
            one = Constant <value = float[1] {1.0}> () y = Expand (one, k) }""",
        {"x": f(3), "q": f(1)[0] * 30},
        "q",
        False,
    ),
}


@pytest.fixture
def little_memory():
    """No more than a gigabyte: what is too large for that is not made."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


def hostile(feeds, names):
    """The good inputs with an extreme number in one place, in the last, and in all of them."""
    for name in names:
        good = np.asarray(feeds[name])
        for number in REAL if good.dtype.kind == "f" else WHOLE:
            if good.dtype.kind != "f" and not np.iinfo(good.dtype).min <= number <= np.iinfo(good.dtype).max:
                continue
            for place in {0: slice(0, 1), 1: slice(-1, None), 2: slice(None)}.values():
                changed = good.copy().reshape(-1)
                changed[place] = number
                yield {**feeds, name: changed.reshape(good.shape)}


def expected_of(reference, feeds, results):
    """What the reference gives, or nothing where it gives up or would take too much."""
    if sum(r.nbytes for r in results) > 1 << 20:
        return None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return reference.run(None, feeds)
        except Exception:
            return None


@pytest.mark.parametrize("name", CASES)
def test_extreme_numbers_give_a_sentence_or_a_result(name, tmp_path, request):
    text, good, varied, exact = CASES[name]
    model = parsed(text, opset=24)
    compiled, reference = onnxc.load(onnxc.compile(model, tmp_path / "model.so"), threads=2), None
    request.getfixturevalue("little_memory")
    if exact:
        reference = onnx.reference.ReferenceEvaluator(model)
    before = compiled.run(None, good)
    for feeds in hostile(good, varied):
        try:
            results = compiled.run(None, feeds)
        except RunError as error:
            assert "\n" not in str(error) and len(str(error)) < 300
        else:
            expected = expected_of(reference, feeds, results) if exact else None
            for x, y in zip(results, expected or results, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5, err_msg=str(feeds))
        for x, y in zip(compiled.run(None, good), before, strict=True):
            assert np.array_equal(x, y, equal_nan=True)


# Empty operands of huge sizes: to walk along the axes that have a size would take years

EMPTY = {
    "product": (
        "float[N,K] x, float[K,M] w",
        "float[N,M] y",
        "y = MatMul (x, w)",
        [{"N": 0, "K": 0, "M": 1 << 40}, {"N": 0, "K": 1 << 50, "M": 0}, {"N": 1 << 40, "K": 0, "M": 0}],
    ),
    "sums": (
        "float[N,M] x",
        "float[N,M] y",
        "k = Constant <value = int64 {1}> () y = CumSum (x, k)",
        [{"N": 1 << 50, "M": 0}, {"N": 0, "M": 1 << 50}],
    ),
    "best": (
        "float[N,M] x",
        "float[N,K] y, int64[N,K] at",
        "k = Constant <value = int64[1] {0}> () y, at = TopK (x, k)",
        [{"N": 1 << 40, "M": 0}, {"N": 0, "M": 1 << 40}],
    ),
    "rows": (
        "float[N,M] x, float[M] s",
        "float[N,M] y",
        "y = LayerNormalization (x, s)",
        [{"N": 1 << 50, "M": 0}],
    ),
    "writes": (
        "float[N,M] x, int64[K,1] at, float[K,M] u",
        "float[N,M] y",
        "y = ScatterND (x, at, u)",
        [{"N": 0, "M": 1 << 40, "K": 0}, {"N": 1 << 40, "M": 0, "K": 0}],
    ),
    "lists": (
        "float[N,M] x",
        "float[N,A] y",
        "s = SequenceConstruct (x, x) y = ConcatFromSequence <axis = 1> (s)",
        [{"N": 1 << 50, "M": 0}],
    ),
}


@pytest.mark.parametrize("name", EMPTY)
def test_results_without_elements_take_no_time(name, tmp_path):
    inputs, outputs, body, sizes = EMPTY[name]
    compiled = onnxc.load(
        onnxc.compile(parsed(f"g ({inputs}) => ({outputs}) {{ {body} }}", opset=24), tmp_path / "model.so"),
        threads=2,
    )
    for known in sizes:
        feeds = {p.name: np.zeros([known.get(d, d) for d in p.shape], p.dtype) for p in compiled.inputs}
        try:
            results = compiled.run(None, feeds)
        except RunError as error:  # some kernels need memory along the axis that has a size
            assert "out of memory" in str(error)
        else:
            assert all(result.size == 0 for result in results)
