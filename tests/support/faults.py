"""Compiled models whose every allocation fails once. As a program it does so for all of FOLDER's libraries,
which may then be instrumented:

    python tests/support/faults.py compile|run FOLDER
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import numpy as np

from onnxc.errors import LoadError, RunError
from onnxc.loading.loader import load

HERE = Path(__file__).parent
OUT_OF_MEMORY = 16


def floats(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


#: name → (model, inputs of each run: a context's memory grows, and is used again)
MODELS = {
    "chain": (
        """g (float[N,K] x, float[K,M] w, float[M] s) => (float[N,M] y) {
        a = MatMul (x, w) b = Softmax (a) c = LayerNormalization (b, s) y = Exp (c) }""",
        [{"x": floats(n, 7), "w": floats(7, 33), "s": floats(33)} for n in (2, 40, 3, 41)],
    ),
    "large": (  # the memory of whose results is kept for the next
        """g (float[N] x) => (float[N] y, float[N] z) { y = Exp (x) z = Neg (x) }""",
        [{"x": floats(n)} for n in (20_000, 20_500, 90_000, 100, 9_000)],
    ),
    "static": (
        """g (float[1,3,9,9] x, float[5,3,3,3] w) => (float[1,5,7,7] y, float[1,5,1,1] z) {
        a = Conv (x, w) y = Relu (a) z = GlobalAveragePool (y) }""",
        [{"x": floats(1, 3, 9, 9), "w": floats(5, 3, 3, 3)}] * 2,
    ),
    "selection": (
        """g (float[N,M] x, float[1,K,4] boxes, float[1,1,K] scores)
        => (int64[2,A] at, float[B] some, float[U] unique, int64[U] first, int64[V] place, int64[U] counts,
            int64[C,3] chosen) {
        at = NonZero (x)
        t = Transpose <perm = [1, 0]> (at)
        some = GatherND (x, t)
        unique, first, place, counts = Unique (x)
        many = Constant <value = int64 {3}> ()
        chosen = NonMaxSuppression (boxes, scores, many) }""",
        [
            {"x": np.round(floats(n, 3)), "boxes": floats(1, n, 4), "scores": floats(1, 1, n)}
            for n in (2, 50, 0, 3)
        ],
    ),
    "regions": (
        """g (float[1,2,8,8] x, float[R,4] rois, int64[R] image, float[R,3,3] m)
        => (float[R,2,2,2] y, float[R] d) {
        y = RoiAlign <output_height = 2, output_width = 2> (x, rois, image) d = Det (m) }""",
        [
            {
                "x": floats(1, 2, 8, 8),
                "rois": floats(n, 4),
                "image": np.zeros(n, np.int64),
                "m": floats(n, 3, 3),
            }
            for n in (1, 30, 2)
        ],
    ),
    "growth": (
        """g (float[N] x, int64 n) => (float[S] last, float[T] sums, int64[T] counts) {
        go = Constant <value = bool {1}> ()
        last, sums, counts = Loop (n, go, x) <body = round (int64 i, bool c, float[A] h)
            => (bool c_out, float[B] g, float sum, int64 count) {
            c_out = Identity (c) e = Neg (h) g = Concat <axis = 0> (h, e)
            sum = ReduceSum <keepdims = 0> (h) count = Identity (i) }> }""",
        [{"x": floats(n), "n": np.int64(k)} for n, k in ((3, 2), (1, 9), (2, 0))],
    ),
    "lists": (
        """g (float[N] x, seq(float[M]) given, int64 n)
        => (seq(float[K]) s, float[C] all, float[D] one, int64 length) {
        go = Constant <value = bool {1}> ()
        first = SequenceInsert (given, x)
        s = Loop (n, go, first) <body = round (int64 i, bool c, seq(float[K]) have)
            => (bool c_out, seq(float[K]) more) {
            number = Cast <to = 1> (i) v = Add (x, number) more = SequenceInsert (have, v)
            c_out = Identity (c) }>
        all = ConcatFromSequence <axis = 0> (s)
        one = SequenceAt (given, n)
        shorter = SequenceErase (s)
        length = SequenceLength (shorter) }""",
        [
            {"x": floats(n), "given": [floats(2 * n) for _ in range(4)], "n": np.int64(k)}
            for n, k in ((3, 2), (50, 3), (1, 0))
        ],
    ),
    "branches": (
        """g (bool c, float[N] x, float[M] y) => (seq(float[A]) s, float[B] v) {
        s, v = If (c) <
            then_branch = yes () => (seq(float[P]) p, float[E] f) {
                p = SequenceConstruct (x, y) f = Exp (x) },
            else_branch = no () => (seq(float[Q]) q, float[F] h) {
                cut = Constant <value = int64 {2}> ()
                q = SplitToSequence (y, cut) h = Neg (y) }> }""",
        [
            {"c": np.bool_(c), "x": floats(n), "y": floats(m)}
            for c, n, m in ((1, 3, 2), (0, 1, 50), (1, 9, 9))
        ],
    ),
    "strings": (
        """g (float[N] x, string[N] s)
        => (string[N] t, float[N] back, string[U] unique, bool[N] same) {
        t = Cast <to = 8> (x) back = Cast <to = 1> (t) unique = Unique (s) same = Equal (s, t) }""",
        [{"x": floats(n), "s": np.array([f"text {k % 7}" for k in range(n)], object)} for n in (2, 60, 3)],
    ),
    "text": (
        """g (string[N] s) => (string[N] twice, string[N,P] pieces, int64[N] count, string[K] kept,
            bool[N] same, float[5] grams) {
        twice = StringConcat (s, s)
        pieces, count = StringSplit (s)
        kept = StringNormalizer <case_change_action = "UPPER", stopwords = ["text 1"]> (s)
        same = RegexFullMatch <pattern = "text [0-3]"> (s)
        grams = TfIdfVectorizer <mode = "TF", ngram_counts = [0], ngram_indexes = [4], max_skip_count = 0,
            pool_strings = ["text 2"], min_gram_length = 1, max_gram_length = 1> (s) }""",
        [{"s": np.array([f"text {k % 7}" for k in range(n)], object)} for n in (2, 60, 3)],
    ),
    "carried_text": (  # by an outer loop what an inner one collected, and what that was before
        """g (string[N] x, int64 n, int64 m) => (string[A] last, string[B] other) {
        go = Constant <value = bool {1}> ()
        last, other = Loop (n, go, x, x) <body = round (int64 i, bool c, string[P] p, string[Q] q)
            => (bool c_out, string[R] r, string[S] s) {
            c_out = Identity (c) number = Cast <to = 8> (i)
            r = Loop (m, c) <body = inner (int64 j, bool d) => (bool d_out, string w) {
                d_out = Identity (d) own = Cast <to = 8> (j) w = StringConcat (number, own) }>
            s = Identity (p) }> }""",
        [
            {"x": np.array([f"text {k}" for k in range(n)], object), "n": np.int64(k), "m": np.int64(m)}
            for n, k, m in ((2, 3, 2), (9, 1, 0), (3, 4, 5), (1, 0, 1))
        ],
    ),
    "collected_text": (
        """g (string[N] x, int64 n) => (string[A] all, string[T, N] rows) {
        go = Constant <value = bool {1}> () zero = Constant <value = int64[1] {0}> ()
        all, rows = Loop (n, go, x) <body = round (int64 i, bool c, string[P] p)
            => (bool c_out, string[Q] q, string[N] row) {
            c_out = Identity (c) number = Cast <to = 8> (i) one = Unsqueeze (number, zero)
            q = Concat <axis = 0> (p, one) row = StringConcat (x, one) }> }""",
        [
            {"x": np.array([f"text {k}" for k in range(n)], object), "n": np.int64(k)}
            for n, k in ((2, 3), (0, 2), (3, 9), (1, 0))
        ],
    ),
    "optional": (
        """g (optional(float[N]) o) => (float[N] y, bool has) {
        has = OptionalHasElement (o) v = OptionalGetElement (o) y = Exp (v) }""",
        [{"o": floats(n)} for n in (2, 60, 3)],
    ),
}


def allocator(folder: Path, compiler: str = "cc") -> str:
    """Compiles what libraries are to allocate with; a CC for them, made of a compiler."""
    from support.handmade_models import cc

    cc("-shared", "-fPIC", "-O1", HERE / "faults.c", "-o", folder / "faults.so")
    header = folder / "faults.h"
    header.write_text("#include <stddef.h>\nvoid *counted_malloc(size_t);\nvoid counted_free(void *);\n")
    return f"{compiler} -include {header} -DONNXC_MALLOC=counted_malloc -DONNXC_FREE=counted_free"


def compile_models(folder: Path) -> None:
    """All MODELS as libraries in the folder."""
    from support.small_models import parsed

    import onnxc

    for name, (text, _) in MODELS.items():
        onnxc.compile(parsed(text), folder / f"{name}.so")


def counters(folder: Path, *names: str) -> list[ctypes.c_long]:
    """Numbers that faults.c keeps."""
    memory = ctypes.CDLL(os.fspath(folder / "faults.so"), ctypes.RTLD_GLOBAL)
    return [ctypes.c_long.in_dll(memory, name) for name in names]


def refuse_each(folder: Path, name: str) -> int:
    """Runs a model with its first allocation refused, then with its second, until none is: every call ends
    with its result or OUT_OF_MEMORY, the next gives its result, and nothing is left. The number of refusals
    that a call did not survive."""
    requests, in_use, refused = counters(folder, "requests", "in_use", "refused")
    runs = MODELS[name][1]
    with load(folder / f"{name}.so", threads=2) as model:
        expected = [model.run(None, feeds) for feeds in runs]
    failures, kept = 0, in_use.value  # by the expected results
    for number in range(1, 100_000):
        requests.value, refused.value = 0, number
        before = failures
        failures += _calls(folder / f"{name}.so", runs, expected)
        assert in_use.value == kept, f"{in_use.value - kept} blocks are left after request {number} failed"
        if failures == before and requests.value < number:
            refused.value = -1
            return failures
    raise AssertionError("there is no end")


def _calls(path, runs, expected) -> int:
    """How often the calls failed."""
    try:
        model = load(path, threads=2)
    except LoadError as error:
        assert "out of memory" in str(error)
        return 1
    failures = 0
    with model:
        for feeds, wanted in zip(runs, expected, strict=True):
            try:
                got = model.run(None, feeds)
            except RunError as error:
                assert error.status == OUT_OF_MEMORY, str(error)
                failures += 1
                got = model.run(None, feeds)
            assert same(got, wanted)
            del got
    return failures


def same(a, b) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent)]
    action, folder = sys.argv[1], Path(sys.argv[2])
    if action == "compile":
        compile_models(folder)
    else:
        for name in MODELS:
            print(name, refuse_each(folder, name), flush=True)
