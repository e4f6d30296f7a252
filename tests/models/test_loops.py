"""Loops whose values change in size, nest and hold strings, at several sizes, against onnx.reference or, as
that scans in one direction only and gives numbers that it collects an axis, ONNX Runtime."""

import numpy as np
import onnx.parser
import onnx.reference
import onnxruntime
import pytest
from support.agreement import floats

import onnxc


def strings(*items):
    return [np.array(item, object) for item in items]


LOOPS = {
    "what a body finds is appended to what it carries": (
        """g (float[N] x, int64 n)
            => (float[A] found, int64[B] places, int64[T, 1] counts, int64[1, K] last) {
            none = Constant <value = float[0] {}> () nowhere = Constant <value = int64[0] {}> ()
            flat = Constant <value = int64[1] {-1}> ()
            go = Constant <value = bool {1}> ()
            found, places, counts = Loop (n, go, none, nowhere) <body = b
                (int64 i, bool c, float[H] h, int64[P] p)
                => (bool d, float[J] k, int64[Q] q, int64[1] count) {
                d = Identity (c) least = Cast <to = 1> (i) more = Greater (x, least) at = NonZero (more)
                flat_at = Reshape (at, flat) own = Gather (x, flat_at) k = Concat <axis = 0> (h, own)
                q = Concat <axis = 0> (flat_at, p) count = Shape (k) }>
            none_less = Less (found, found) not_less = Not (none_less) last = NonZero (not_less) }""",
        [{"x": floats(k) * 3, "n": np.int64(n)} for k, n in ((5, 3), (0, 2), (40, 4), (1, 1))],
    ),
    "bodies read a value of the graph around by its name and by what a known branch made of it": (
        """g (float[N] x, int64 n, bool w) => (float[N] y, float[N] z) {
            go = Constant <value = bool {1}> ()
            y, z = Loop (n, go, x, x) <body = b (int64 i, bool c, float[N] a, float[N] f)
                => (bool d, float[N] e, float[N] h) {
                d = Identity (c) yes = Constant <value = bool {1}> ()
                o = If (yes) <then_branch = p () => (float[N] q) { q = Identity (x) },
                    else_branch = r () => (float[N] s) { s = Neg (x) }>
                e = Loop (n, d, a) <body = k (int64 j, bool c_2, float[N] a_2)
                    => (bool d_2, float[N] e_2) {
                    d_2 = Identity (c_2) t = Add (a_2, x) e_2 = Add (t, o) }>
                h = If (w) <then_branch = m () => (float[N] u) { v = Mul (f, x) u = Add (v, o) },
                    else_branch = l () => (float[N] g_2) { g_2 = Sub (f, o) }> }> }""",
        [
            {"x": floats(k), "n": np.int64(n), "w": np.bool_(w)}
            for k, n, w in ((3, 2, True), (1, 3, False), (0, 1, True), (5, 0, False))
        ],
    ),
    "the sizes of what is collected are dropped where they are one": (
        """g (int64 n, float[N, M] x) => (float[] y, float[] less) {
            go = Constant <value = bool {1}> ()
            y = Loop (n, go) <body = b (int64 i, bool c) => (bool d, float[] q) {
                d = Identity (c)
                q = Loop (n, d) <body = e (int64 j, bool f) => (bool h, float[] r) {
                    h = Identity (f) s = Squeeze (x) k = Cast <to = 1> (j) r = Add (s, k) }> }>
            less = Neg (y) }""",
        [
            {"n": np.array(n), "x": floats(*shape)}
            for n, *shape in ((2, 1, 1), (1, 1, 3), (3, 2, 1), (2, 2, 3))
        ],
    ),
    "what is collected has the rank of an input": (
        """g (int64 n, float[] x) => (float[] y, float[] z) {
            go = Constant <value = bool {1}> ()
            y, z = Loop (n, go) <body = b (int64 i, bool c) => (bool d, float[] q, float[] r) {
                d = Identity (c) q = Identity (x) r = Neg (x) }> }""",
        [{"n": np.array(2), "x": floats(*shape)} for shape in ((), (3,), (2, 3))],
    ),
    "a loop ends when what it found is as long as asked": (
        """g (float[N, M] x, int64 most) => (float[A, M] rows, int64[B, 2] places, int64 steps) {
            zero = Constant <value = int64 {0}> () one = Constant <value = int64 {1}> ()
            go = Constant <value = bool {1}> () axis = Constant <value = int64[1] {0}> ()
            empty = Slice (x, axis, axis)
            rows, steps = Loop (, go, empty, zero) <body = b (int64 i, bool c, float[H, M] h, int64 s)
                => (bool d, float[J, M] k, int64 t) {
                k = Concat <axis = 0> (h, x) t = Add (s, one) size = Shape <end = 1> (k)
                count = Squeeze (size) short = Less (count, most) few = Less (t, most) d = And (short, few) }>
            zeros = Constant <value = float {0}> () positive = Greater (rows, zeros)
            found = NonZero (positive) places = Transpose (found) }""",
        [
            {"x": floats(n, m), "most": np.int64(k)}
            for n, m, k in ((2, 3, 5), (1, 1, 1), (0, 2, 3), (7, 4, 30))
        ],
    ),
    "what was collected is read where there is some": (
        """g (float[N, 3] x, int64 n) => (float[A, 3] y, float[B, 3] total) {
            go = Constant <value = bool {1}> () none = SequenceEmpty <dtype = 1> ()
            found, total = Loop (n, go, none, x) <body = b
                (int64 i, bool c, seq(float[H, 3]) s, float[J, 3] t)
                => (bool d, seq(float[K, 3]) r, float[L, 3] u) {
                d = Identity (c) zero = Constant <value = int64 {0}> () begins = Equal (i, zero)
                before = If (begins) <then_branch = p () => (float[P, 3] o) { o = Identity (t) },
                    else_branch = q () => (float[Q, 3] w) {
                        last = Constant <value = int64 {-1}> () w = SequenceAt (s, last) }>
                count = SequenceLength (s)
                all = Loop (count, d, before) <body = e (int64 j, bool f, float[V, 3] m)
                    => (bool g, float[W, 3] k) {
                    g = Identity (f) own = SequenceAt (s, j) k = Add (m, own) }>
                r = SequenceInsert (s, all) u = ConcatFromSequence <axis = 0> (r) }>
            one = SequenceInsert (found, x) y = ConcatFromSequence <axis = 0> (one) }""",
        [{"x": floats(k, 3), "n": np.int64(n)} for k, n in ((2, 0), (1, 3), (0, 2), (4, 1))],
    ),
    "two axes are scanned in opposite directions, with a branch in each step": (
        """g (float[N, L] a, float[L, N] z, float[L] start)
            => (float[L] last, float[L, N] out, float[N] sums) {
            last, out, sums = Scan <num_scan_inputs = 2, scan_input_axes = [0, -1],
                scan_input_directions = [0, 1], scan_output_axes = [1, 0], scan_output_directions = [1, 0],
                body = b (float[L] s, float[L] p, float[L] q) => (float[L] t, float[L] o, float sum) {
                    sum = ReduceSum <keepdims = 0> (p) zero = Constant <value = float {0}> ()
                    c = Less (sum, zero)
                    t = If (c) <then_branch = yes () => (float[L] u) { u = Add (s, p) },
                        else_branch = no () => (float[L] v) {
                            large = Less (s, q)
                            w = Where (large, s, q)
                            last_of = ReduceMax <keepdims = 0> (q) d = Less (last_of, sum)
                            v = If (d) <then_branch = yes_2 () => (float[L] m) { m = Neg (w) },
                                else_branch = no_2 () => (float[L] k) { k = Mul (w, sum) }> }>
                    o = Sub (t, q) }> (start, a, z) }""",
        [
            {"a": floats(n, k), "z": floats(k, n, seed=1), "start": floats(k, seed=2)}
            for n, k in ((4, 3), (1, 1), (9, 17))
        ],
    ),
    "a sequence of strings is walked and another one built": (
        """g (seq(string[M]) words, string[K] before)
            => (string[A] all, seq(string[B]) longer, int64[T, 1] sizes) {
            n = SequenceLength (words) first = SequenceEmpty <dtype = 8> ()
            go = Constant <value = bool {1}> ()
            all, longer, sizes = Loop (n, go, before, first) <body = b
                (int64 i, bool c, string[H] h, seq(string[P]) s)
                => (bool d, string[J] k, seq(string[Q]) t, int64[1] size) {
                d = Identity (c) word = SequenceAt (words, i) k = Concat <axis = 0> (h, word)
                mark = Constant <value = string[1] {"!"}> () loud = StringConcat (word, mark)
                t = SequenceInsert (s, loud) size = Shape (k) }> }""",
        [
            {"words": strings(*words), "before": np.array(before, object)}
            for words, before in (
                ([["a", "bc"], ["", "def", "é"]], ["x"]),
                ([["only"]], []),
                ([[]], ["y", "z"]),
            )
        ],
    ),
}

#: Text that the body makes, which its next round frees.
TEXTS = {
    "it is collected": (
        """g (string[K] w, int64 n) => (string[A] numbers, string[B, K] joined, string[C] branched,
            string[D, K, 2] pieces) {
            go = Constant <value = bool {1}> ()
            numbers, joined, branched, pieces = Loop (n, go) <body = b (int64 i, bool c)
                => (bool d, string s, string[K] t, string u, string[K, 2] v) {
                d = Identity (c) s = Cast <to = 8> (i) t = StringConcat (w, s)
                two = Constant <value = int64 {2}> () few = Less (i, two)
                u = If (few) <then_branch = p () => (string o) { o = StringConcat (s, s) },
                    else_branch = q () => (string r) { r = Cast <to = 8> (two) }>
                space = Constant <value = string {" x"}> () long = StringConcat (t, space)
                v, count = StringSplit (long) }> }""",
        [{"w": np.array(w, object), "n": np.array(n)} for w, n in ((["a", "é"], 40), (["b"], 3), ([], 2))],
    ),
    "it is carried, exchanged and appended": (
        """g (string[K] w, int64 n) => (string one, string other, string[A] all, string[B] same) {
            go = Constant <value = bool {1}> () axis = Constant <value = int64[1] {0}> ()
            dash = Constant <value = string {"-"}> () dot = Constant <value = string {"."}> ()
            one, other, all, same = Loop (n, go, dash, dot, w, w) <body = b
                (int64 i, bool c, string p, string q, string[H] h, string[S] same_in)
                => (bool d, string r, string t, string[J] k, string[S] same_out) {
                d = Identity (c) s = Cast <to = 8> (i) t = StringConcat (p, s) r = Identity (q)
                at = Unsqueeze (t, axis) k = Concat <axis = 0> (h, at) same_out = Identity (same_in) }> }""",
        [{"w": np.array(w, object), "n": np.array(n)} for w, n in ((["a", "b"], 30), ([], 3), (["c"], 0))],
    ),
    "it is written into what is carried": (
        """g (string[4] w, int64 n) => (string[4] placed, string[4] chosen) {
            go = Constant <value = bool {1}> () axis = Constant <value = int64[1] {0}> ()
            ranks = Constant <value = int64[4] {0, 1, 2, 3}> ()
            placed, chosen = Loop (n, go, w, w) <body = b (int64 i, bool c, string[4] p, string[4] q)
                => (bool d, string[4] r, string[4] t) {
                d = Identity (c) s = Cast <to = 8> (i) at = Unsqueeze (i, axis) new = Unsqueeze (s, axis)
                r = ScatterElements (p, at, new) here = Equal (ranks, i) t = Where (here, s, q) }> }""",
        [{"w": np.array(list("abcd"), object), "n": np.array(n)} for n in (4, 3, 0)],
    ),
    "an inner loop's is carried and collected by an outer one": (
        """g (int64 n) => (string[A] all, string[B, C] rows, string[D] last) {
            go = Constant <value = bool {1}> () none = Constant <value = string[1] {"none"}> ()
            all, last, rows = Loop (n, go, none, none) <body = b
                (int64 i, bool c, string[H] h, string[L] before) =>
                (bool d, string[J] k, string[M] words, string[V] row) {
                d = Identity (c) s = Cast <to = 8> (i)
                words = Loop (n, c) <body = e (int64 j, bool f) => (bool g, string w) {
                    g = Identity (f) t = Cast <to = 8> (j) w = StringConcat (s, t) }>
                k = Concat <axis = 0> (h, before, words) row = Identity (words) }> }""",
        [{"n": np.array(n)} for n in (6, 1, 3)],
    ),
    "a scan's is collected": (
        """g (string[N] w, int64[N] x) => (string[N] all, string[N] numbers) {
            all, numbers = Scan <num_scan_inputs = 2, scan_output_directions = [1, 0],
                body = b (string p, int64 q) => (string t, string s) {
                    s = Cast <to = 8> (q) t = StringConcat (p, s) }> (w, x) }""",
        [{"w": np.array(list("abcdefghijklm"[:n]), object), "x": np.arange(n)} for n in (3, 13, 1)],
    ),
    "what a sequence loses is collected": (
        """g (seq(string[M]) words) => (seq(string[A]) left, string[B, C] taken) {
            n = SequenceLength (words) go = Constant <value = bool {1}> ()
            first = SequenceEmpty <dtype = 8> () zero = Constant <value = int64 {0}> ()
            made = Loop (n, go, first) <body = b (int64 i, bool c, seq(string[P]) s)
                => (bool d, seq(string[Q]) t) {
                d = Identity (c) word = SequenceAt (words, i) twice = StringConcat (word, word)
                t = SequenceInsert (s, twice) }>
            left, taken = Loop (n, go, made) <body = e (int64 i_2, bool c_2, seq(string[R]) s_2)
                => (bool d_2, seq(string[S]) t_2, string[U] o) {
                d_2 = Identity (c_2) o = SequenceAt (s_2, zero) t_2 = SequenceErase (s_2, zero) }> }""",
        [{"words": strings(*([c, c] for c in "abcdefgh"[:n]))} for n in (8, 1)],
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_agree_with_the_reference(name, tmp_path):
    text, runs = LOOPS[name]
    agree(text, runs, tmp_path, runtime="Scan" in text or "float[] " in text)


@pytest.mark.parametrize("name", TEXTS)
def test_text_outlives_the_round_that_makes_it(name, tmp_path):
    agree(*TEXTS[name], tmp_path, runtime=True)


def agree(text, runs, tmp_path, runtime):
    """Runs the model and its reference: ONNX Runtime, or else onnx.reference."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"), threads=2)
    reference = (
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        if runtime
        else onnx.reference.ReferenceEvaluator(model)
    )
    for feeds in runs:
        for got, expected in zip(compiled.run(None, feeds), reference.run(None, feeds), strict=True):
            same(got, expected)


def same(got, expected):
    if isinstance(expected, list):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            same(one, other)
        return
    expected = np.asarray(expected)
    assert got.shape == expected.shape
    if got.dtype == object:
        assert got.tolist() == expected.tolist()
    else:
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("trips", [0, 2])
def test_what_no_iteration_collects_has_the_sizes_that_the_body_declares(trips, tmp_path):
    """As in ONNX Runtime; where the body declares none, they are 0."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 16]>
        g (float[N] a, float[M] b, int64 n) => (float[K, L] told, float[K, P] open, float[K, N] known) {
            go = Constant <value = bool {1}> ()
            last, told, open, known = Loop (n, go, b) <body = f (int64 i, bool c, float[1] v)
                => (bool d, float[1] w, float[1] s, float[Q] t, float[N] u) {
                d = Identity (c) w = Sub (a, v) s = Add (w, w) u = Neg (a)
                same = Equal (v, v) t = Compress <axis = 0> (w, same) }> }""")
    feeds = {"a": floats(1), "b": floats(1), "n": np.array(trips)}
    found = onnxc.load(onnxc.compile(model, tmp_path / "model.so")).run(None, feeds)
    assert [x.shape for x in found] == [(trips, 1), (trips, min(trips, 1)), (trips, 1)]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for one, other in zip(found[:2], session.run(["told", "open"], feeds), strict=True):
        np.testing.assert_array_equal(one, other)
