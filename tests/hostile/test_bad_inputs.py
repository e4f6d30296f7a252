"""Wrong inputs of a compiled model, from Python: a status and a sentence that names the input or the node
each time, and the next run works. What only the run can tell is checked by it: sizes, indices, divisors.

The same from C is in test_embedding.py; what is wrong with models themselves in test_cli.py.
"""

import contextlib
import ctypes
import itertools
import resource
import subprocess
import sys

import numpy as np
import onnx
import pytest
from support import small_models
from support.small_models import parsed

import onnxc
from onnxc.errors import ModelError, RunError
from onnxc.loading.texts import CString

#: Numbers of enum onnxc_status.
WRONG_COUNT, WRONG_KIND, WRONG_DTYPE, WRONG_RANK, WRONG_SHAPE = 2, 3, 4, 5, 6
DIMS_MISMATCH, RANK_MISMATCH = 9, 10
INDEX, DIVISION, INVALID, RESHAPE, OVERFLOW, OUT_OF_MEMORY = 11, 12, 13, 14, 15, 16


def f(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def i(*values):
    return np.array(values, np.int64)


def column(*values):
    return i(*values)[:, None]


def row(*values):
    return i(*values)[None]


def compiled(model, folder, **options):
    return onnxc.load(onnxc.compile(model, folder / "model.so", **options), threads=2)


# The call itself


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return compiled(small_models.images(), tmp_path_factory.mktemp("images"), dims={"batch": 1})


IMAGE = f(1, 3, 8, 9)


@pytest.mark.parametrize(
    ("feeds", "status", "sentence"),
    [
        ({"image": f(2, 3, 8, 9)}, WRONG_SHAPE, "input 'image': .*expected .*1.* got .*2"),
        ({"image": f(1, 4, 8, 9)}, WRONG_SHAPE, "input 'image': .*expected .*3.* got .*4"),
        ({"image": f(1, 3, 8)}, WRONG_RANK, "input 'image': expected rank 4 .* got rank 3"),
        ({"image": IMAGE.astype(np.float64)}, WRONG_DTYPE, "input 'image': expected float32, got float64"),
        ({"image": IMAGE.astype(np.int32)}, WRONG_DTYPE, "input 'image': expected float32, got int32"),
        ({"image": [IMAGE, IMAGE[:1]]}, None, "input 'image'"),
        ({"image": None}, None, "input 'image'"),
        ({"image": "text"}, None, "input 'image'"),
        ({"image": [[1, 2], [3]]}, None, "input 'image'"),
        ({}, WRONG_COUNT, "input 'image' is missing"),
        ({"image": IMAGE, "other": IMAGE}, WRONG_COUNT, "no input 'other'"),
        (None, WRONG_COUNT, "expected a mapping"),
    ],
    ids=str,
)
def test_a_wrong_call_gets_a_status_and_a_sentence(images, feeds, status, sentence):
    expected = images.run(None, {"image": IMAGE})[0]
    with pytest.raises(RunError, match=sentence) as caught:
        images.run(None, feeds)
    assert status in (None, caught.value.status)
    assert "\n" not in str(caught.value)
    assert np.array_equal(images.run(None, {"image": IMAGE})[0], expected)


def test_an_unknown_output_is_named(images):
    with pytest.raises(RunError, match="no output 'classes'; outputs are 'probabilities'"):
        images.run(["classes"], {"image": IMAGE})


def test_views_and_byte_orders_are_copied_rather_than_misread(images):
    expected = images.run(None, {"image": IMAGE})[0]
    wide = np.repeat(IMAGE, 2, axis=3)[..., ::2]
    turned = np.ascontiguousarray(IMAGE.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
    for same in (wide, turned, IMAGE.astype(">f4")):
        assert np.array_equal(images.run(None, {"image": same})[0], expected)


# What only the run can tell: name → (model, inputs that work, [(inputs that do not, status, sentence)])

CASES = {
    "sizes that should be one": (
        "same (float[N] x, float[N] y) => (float[N] z) { z = Add (x, y) }",
        {"x": f(3), "y": f(3)},
        [
            ({"x": f(3), "y": f(4)}, WRONG_SHAPE, r"input 'y': dimension 0 \(N\): expected 3, got 4"),
            ({"x": f(1), "y": f(4)}, WRONG_SHAPE, r"input 'y': dimension 0 \(N\): expected 1, got 4"),
        ],
    ),
    "operands that do not broadcast": (
        """g (float[N] x, float[M] y, float[K] w) => (float[L] z) {
            a = Add (x, y) b = Exp (a) z = Mul (b, w) }""",
        {"x": f(3), "y": f(3), "w": f(3)},
        [
            ({"x": f(3), "y": f(3), "w": f(2)}, DIMS_MISMATCH, r"z \(Mul\): .* expected 2, got 3"),
            ({"x": f(3), "y": f(2), "w": f(1)}, DIMS_MISMATCH, r"a \(Add\): .* expected 2, got 3"),
            ({"x": f(0), "y": f(2), "w": f(1)}, DIMS_MISMATCH, r"a \(Add\): .* expected 2, got 0"),
        ],
    ),
    "a choice of other sizes": (
        "g (bool[N] c, float[M] x, float[K] y) => (float[L] z) { z = Where (c, x, y) }",
        {"c": np.ones(3, bool), "x": f(3), "y": f(1)},
        [
            ({"c": np.ones(3, bool), "x": f(2), "y": f(1)}, DIMS_MISMATCH, r"z \(Where\)"),
            ({"c": np.ones(3, bool), "x": f(3), "y": f(2)}, DIMS_MISMATCH, r"z \(Where\)"),
        ],
    ),
    "a product of other sizes": (
        "g (float[N,K] x, float[L,M] y) => (float[N,M] z) { z = MatMul (x, y) }",
        {"x": f(3, 4), "y": f(4, 2)},
        [
            ({"x": f(3, 4), "y": f(5, 2)}, WRONG_SHAPE, r"input 'y': dimension 0 \(K\): expected 4, got 5"),
            ({"x": f(3, 4), "y": f(3, 2)}, WRONG_SHAPE, r"input 'y': dimension 0 \(K\): expected 4, got 3"),
        ],
    ),
    "a product of sizes that are made": (
        """g (float[N,K] x, float[L,M] h) => (float[N,M] z) {
            y = Concat <axis = 0> (h, h) z = MatMul (x, y) }""",
        {"x": f(3, 4), "h": f(2, 2)},
        [
            ({"x": f(3, 4), "h": f(3, 2)}, DIMS_MISMATCH, r"z \(MatMul\): .* expected 6, got 4"),
            ({"x": f(3, 4), "h": f(1, 2)}, DIMS_MISMATCH, r"z \(MatMul\): .* expected 2, got 4"),
        ],
    ),
    "products in unequal batches": (
        "g (float[B,N,K] x, float[C,K,M] y) => (float[D,N,M] z) { z = MatMul (x, y) }",
        {"x": f(2, 3, 4), "y": f(2, 4, 2)},
        [({"x": f(3, 3, 4), "y": f(2, 4, 2)}, DIMS_MISMATCH, r"z \(MatMul\)")],
    ),
    "a bias of another size": (
        "g (float[N,K] x, float[K,M] y, float[P] c) => (float[N,M] z) { z = Gemm (x, y, c) }",
        {"x": f(3, 4), "y": f(4, 2), "c": f(2)},
        [({"x": f(3, 4), "y": f(4, 2), "c": f(3)}, DIMS_MISMATCH, r"z \(Gemm\)")],
    ),
    "kernels of other channels": (
        "g (float[N,C,H,W] x, float[O,D,3,3] w) => (float[N,O,P,Q] y) { y = Conv (x, w) }",
        {"x": f(1, 3, 5, 5), "w": f(2, 3, 3, 3)},
        [
            (
                {"x": f(1, 4, 5, 5), "w": f(2, 3, 3, 3)},
                WRONG_SHAPE,
                r"input 'w': dimension 1 .* expected 4, got 3",
            )
        ],
    ),
    "kernels of a number of channels that is made": (
        """g (float[N,C,H,W] x, float[O,D,3,3] h) => (float[N,O,P,Q] y) {
            w = Concat <axis = 1> (h, h) y = Conv (x, w) }""",
        {"x": f(1, 4, 5, 5), "h": f(2, 2, 3, 3)},
        [({"x": f(1, 4, 5, 5), "h": f(2, 3, 3, 3)}, DIMS_MISMATCH, r"y \(Conv\): .* expected 6, got 4")],
    ),
    "tensors that do not continue each other": (
        "g (float[N,M] x, float[K,L] y) => (float[P,Q] z) { z = Concat <axis = 0> (x, y) }",
        {"x": f(3, 2), "y": f(1, 2)},
        [({"x": f(3, 2), "y": f(1, 3)}, WRONG_SHAPE, r"input 'y': dimension 1 \(M\): expected 2, got 3")],
    ),
    "tensors of a size that is made that do not continue each other": (
        """g (float[N,M] x, float[K,L] h) => (float[P,Q] z) {
            y = Concat <axis = 1> (h, h) z = Concat <axis = 0> (x, y) }""",
        {"x": f(3, 2), "h": f(1, 1)},
        [({"x": f(3, 2), "h": f(1, 2)}, DIMS_MISMATCH, r"z \(Concat\): .* expected 4, got 2")],
    ),
    "attention over unequal lengths": (
        """g (float[B,H,S,D] q, float[B,H,T,E] k, float[B,H,U,F] v) => (float[B,H,S,F] y) {
            t = Transpose <perm = [0, 1, 3, 2]> (k)
            s = MatMul (q, t) p = Softmax <axis = -1> (s) y = MatMul (p, v) }""",
        {"q": f(1, 2, 3, 4), "k": f(1, 2, 5, 4), "v": f(1, 2, 5, 6)},
        [
            ({"q": f(1, 2, 3, 4), "k": f(1, 2, 5, 3), "v": f(1, 2, 5, 6)}, WRONG_SHAPE, "input 'k'"),
            ({"q": f(1, 2, 3, 4), "k": f(1, 2, 5, 4), "v": f(1, 2, 6, 6)}, WRONG_SHAPE, "input 'v'"),
        ],
    ),
    "attention over unequal lengths that are made": (
        """g (float[B,H,S,D] q, float[B,H,T,E] h, float[B,H,U,F] w) => (float[B,H,S,F] y) {
            k = Concat <axis = 3> (h, h) v = Concat <axis = 2> (w, w)
            t = Transpose <perm = [0, 1, 3, 2]> (k)
            s = MatMul (q, t) p = Softmax <axis = -1> (s) y = MatMul (p, v) }""",
        {"q": f(1, 2, 3, 4), "h": f(1, 2, 6, 2), "w": f(1, 2, 3, 6)},
        [
            ({"q": f(1, 2, 3, 4), "h": f(1, 2, 6, 3), "w": f(1, 2, 3, 6)}, DIMS_MISMATCH, r"\(MatMul\)"),
            ({"q": f(1, 2, 3, 4), "h": f(1, 2, 6, 2), "w": f(1, 2, 4, 6)}, DIMS_MISMATCH, r"\(MatMul\)"),
        ],
    ),
    "rows of another length": (
        "g (float[N,M] x, float[K] s, float[L] b) => (float[N,M] y) { y = LayerNormalization (x, s, b) }",
        {"x": f(3, 4), "s": f(4), "b": f(4)},
        [
            ({"x": f(3, 4), "s": f(3), "b": f(4)}, DIMS_MISMATCH, r"y \(LayerNormalization\)"),
            ({"x": f(3, 4), "s": f(4), "b": f(5)}, DIMS_MISMATCH, r"y \(LayerNormalization\)"),
        ],
    ),
    "a softmax of a sum of other sizes": (
        "g (float[N,M] x, float[K,L] m) => (float[N,M] y) { a = Add (x, m) y = Softmax (a) }",
        {"x": f(3, 4), "m": f(3, 4)},
        [
            ({"x": f(3, 4), "m": f(2, 4)}, DIMS_MISMATCH, r"a \(Add\)"),
            ({"x": f(3, 4), "m": f(3, 3)}, DIMS_MISMATCH, r"a \(Add\)"),
        ],
    ),
    "a shape to repeat to": (
        "g (float[N] x, int64[2] s) => (float[A,B] z) { z = Expand (x, s) }",
        {"x": f(3), "s": i(2, 3)},
        [
            ({"x": f(3), "s": i(2, 4)}, DIMS_MISMATCH, r"z \(Expand\): .* expected 3, got 4"),
            ({"x": f(3), "s": i(-2, 3)}, INVALID, r"z \(Expand\): .* expected 0 at least, got -2"),
            ({"x": f(3), "s": i(1 << 62, 3)}, OVERFLOW, r"z \(Expand\): the size of a value overflows"),
            ({"x": f(1), "s": i(1 << 32, 1 << 32)}, OVERFLOW, r"z \(Expand\): the size of a value overflows"),
            ({"x": f(1), "s": i(1 << 40, 1 << 5)}, OUT_OF_MEMORY, "out of memory"),
        ],
    ),
    "elements that do not fill a shape": (
        """g (float[N,M] x) => (float[A,6] z) {
            s = Constant <value = int64[2] {-1, 6}> () y = Reshape (x, s) z = Exp (y) }""",
        {"x": f(3, 4)},
        [({"x": f(3, 5)}, RESHAPE, r"y \(Reshape\): number of elements: expected 12, got 15")],
    ),
    "numbers of repeats": (
        "g (float[N] x, int64[1] r) => (float[A] z) { y = Tile (x, r) z = Neg (y) }",
        {"x": f(4), "r": i(2)},
        [
            ({"x": f(4), "r": i(-1)}, INVALID, r"y \(Tile\): .* expected 0 at least, got -1"),
            ({"x": f(4), "r": i(1 << 62)}, OVERFLOW, r"y \(Tile\): the size of a value overflows"),
            ({"x": f(4), "r": i(1 << 60)}, OVERFLOW, r"y \(Tile\): the size of a value overflows"),
        ],
    ),
    "indices of rows": (
        "g (float[N,M] x, int64[K] at) => (float[K,M] z) { z = Gather (x, at) }",
        {"x": f(3, 2), "at": i(0, -3, 2)},
        [
            ({"x": f(3, 2), "at": i(0, 3)}, INDEX, r"z \(Gather\): index 3 is out of range"),
            ({"x": f(3, 2), "at": i(-4)}, INDEX, r"z \(Gather\): index -4 is out of range"),
            ({"x": f(3, 2), "at": i(1, 1 << 62)}, INDEX, r"z \(Gather\): index 4611686018427387904 is out"),
            ({"x": f(0, 2), "at": i(0)}, INDEX, r"z \(Gather\): index 0 is out of range"),
        ],
    ),
    "indices of pixels that are added up": (
        "g (float[N,16,H,W] x, int64[K] at, int64[K] to, float[K] u) => (float[N,16,H,K] z)"
        " { a = Gather <axis = 3> (x, at) b = Gather <axis = 3> (x, to) c = Mul (a, u) z = Add (c, b) }",
        {"x": f(1, 16, 2, 3), "at": i(0, -3), "to": i(2, 1), "u": f(2)},
        [
            (
                {"x": f(1, 16, 2, 3), "at": i(0, 3), "to": i(0, 0), "u": f(2)},
                INDEX,
                r"index 3 is out of range",
            ),
            ({"x": f(1, 16, 2, 3), "at": i(0, 0), "to": i(0, -4), "u": f(2)}, INDEX, r"index -4 is out of"),
            ({"x": f(1, 16, 2, 0), "at": i(0), "to": i(0), "u": f(1)}, INDEX, r"index 0 is out of range"),
        ],
    ),
    "indices of elements": (
        "g (float[N,M] x, int64[K,L] at) => (float[K,L] z) { z = GatherElements <axis = 0> (x, at) }",
        {"x": f(3, 2), "at": row(0, 2)},
        [
            ({"x": f(3, 2), "at": row(0, 0, 0)}, DIMS_MISMATCH, r"z \(GatherElements\)"),
            ({"x": f(3, 2), "at": row(0, 3)}, INDEX, r"z \(GatherElements\): index 3 is out of range"),
        ],
    ),
    "positions": (
        "g (float[B,M] x, int64[C,1] at) => (float[C] z) { z = GatherND <batch_dims = 1> (x, at) }",
        {"x": f(3, 2), "at": column(0, 1, 1)},
        [
            ({"x": f(3, 2), "at": column(0, 1, 1, 1)}, WRONG_SHAPE, r"input 'at': dimension 0 \(B\)"),
            ({"x": f(3, 2), "at": column(0, 2, 0)}, INDEX, r"z \(GatherND\): index 2 is out of range"),
        ],
    ),
    "a number of positions that is made": (
        """g (float[B,M] x, int64[C,1] h) => (float[D] z) {
            at = Concat <axis = 0> (h, h) z = GatherND <batch_dims = 1> (x, at) }""",
        {"x": f(4, 2), "h": column(0, 1)},
        [({"x": f(4, 2), "h": column(0, 1, 1)}, DIMS_MISMATCH, r"z \(GatherND\)")],
    ),
    "elements to write": (
        """g (float[N,M] x, int64[K,L] at, float[P,Q] u) => (float[N,M] z) {
            z = ScatterElements <axis = 0> (x, at, u) }""",
        {"x": f(3, 2), "at": row(0, 2), "u": f(1, 2)},
        [
            ({"x": f(3, 2), "at": row(0, 2), "u": f(1, 1)}, WRONG_SHAPE, r"input 'u': dimension 1 \(L\)"),
            ({"x": f(3, 2), "at": row(0, 2, 1), "u": f(1, 3)}, DIMS_MISMATCH, r"z \(ScatterElements\)"),
            ({"x": f(3, 2), "at": row(0, 3), "u": f(1, 2)}, INDEX, r"z \(ScatterElements\): index 3"),
        ],
    ),
    "a number of elements to write that is made": (
        """g (float[N,M] x, int64[K,L] at, float[P,Q] h) => (float[N,M] z) {
            u = Concat <axis = 1> (h, h) z = ScatterElements <axis = 0> (x, at, u) }""",
        {"x": f(3, 2), "at": row(0, 2), "h": f(1, 1)},
        [({"x": f(3, 2), "at": row(0, 2), "h": f(1, 2)}, DIMS_MISMATCH, r"z \(ScatterElements\)")],
    ),
    "rows to write": (
        """g (float[N,M] x, int64[K,1] at, float[P,Q] u) => (float[N,M] z) {
            z = ScatterND (x, at, u) }""",
        {"x": f(3, 2), "at": column(2), "u": f(1, 2)},
        [
            ({"x": f(3, 2), "at": column(2), "u": f(2, 2)}, WRONG_SHAPE, r"input 'u': dimension 0 \(K\)"),
            ({"x": f(3, 2), "at": column(2), "u": f(1, 3)}, WRONG_SHAPE, r"input 'u': dimension 1 \(M\)"),
            ({"x": f(3, 2), "at": column(3), "u": f(1, 2)}, INDEX, r"z \(ScatterND\): index 3"),
        ],
    ),
    "numbers of rows to write that are made": (
        """g (float[N,M] x, int64[K,1] at, float[P,Q] h) => (float[N,M] z) {
            w = Concat <axis = 0> (h, h) u = Concat <axis = 1> (w, w) z = ScatterND (x, at, u) }""",
        {"x": f(3, 2), "at": column(2, 0), "h": f(1, 1)},
        [
            ({"x": f(3, 2), "at": column(2, 0), "h": f(2, 1)}, DIMS_MISMATCH, r"z \(ScatterND\)"),
            ({"x": f(3, 2), "at": column(2, 0), "h": f(1, 2)}, DIMS_MISMATCH, r"z \(ScatterND\)"),
        ],
    ),
    "remainders": (
        "g (int64[N] x, int64[N] y) => (int64[N] w) { z = Mod (x, y) w = Add (z, x) }",
        {"x": i(-5, 7), "y": i(3, -3)},
        [({"x": i(5, 7), "y": i(0, 1)}, DIVISION, r"z \(Mod\): integer division by zero")],
    ),
    "parts of sizes that are data": (
        "g (float[N] x, int64[2] s) => (float[A] a, float[B] b) { a, b = Split (x, s) }",
        {"x": f(5), "s": i(2, 3)},
        [
            ({"x": f(5), "s": i(2, 4)}, DIMS_MISMATCH, r"a \(Split\): .* expected 4, got 3"),
            ({"x": f(5), "s": i(2, 2)}, DIMS_MISMATCH, r"a \(Split\): .* expected 2, got 3"),
            ({"x": f(5), "s": i(6, 0)}, DIMS_MISMATCH, r"a \(Split\)"),
            ({"x": f(5), "s": i(-1, 6)}, INVALID, r"a \(Split\): .* expected 0 at least, got -1"),
        ],
    ),
    "parts of constant sizes": (
        """g (float[N] x) => (float[A] c, float[B] d) {
            s = Constant <value = int64[2] {2, 3}> () a, b = Split (x, s) c = Exp (a) d = Neg (b) }""",
        {"x": f(5)},
        [
            ({"x": f(4)}, WRONG_SHAPE, r"input 'x': expected shape \[5\], got \[4\]"),
            ({"x": f(6)}, WRONG_SHAPE, r"input 'x': expected shape \[5\], got \[6\]"),
        ],
    ),
    "parts of constant sizes, of a product of sizes": (
        """g (float[N, M] x) => (float[A] c, float[B] d) {
            s = Constant <value = int64[2] {2, 3}> () w = Constant <value = int64[1] {-1}> ()
            r = Reshape (x, w) a, b = Split (r, s) c = Exp (a) d = Neg (b) }""",
        {"x": f(5, 1)},
        [
            ({"x": f(2, 2)}, DIMS_MISMATCH, r"a \(Split\)"),
            ({"x": f(2, 3)}, DIMS_MISMATCH, r"a \(Split\)"),
            ({"x": f(1, 1)}, DIMS_MISMATCH, r"a \(Split\)"),
        ],
    ),
    "a number of best values": (
        "g (float[N] x, int64[1] k) => (float[K] v, int64[K] at) { v, at = TopK (x, k) }",
        {"x": f(5), "k": i(2)},
        [
            ({"x": f(5), "k": i(6)}, INVALID, r"v \(TopK\): the 6 greatest of N elements"),
            ({"x": f(5), "k": i(-1)}, INVALID, r"v \(TopK\): the -1 greatest of N"),
        ],
    ),
    "steps of zero": (
        """g (float[N] x, int64[1] s, int64 t) => (float[K] v, int64[L] r) {
            a = Constant <value = int64[1] {0}> () e = Constant <value = int64[1] {100}> ()
            b = Constant <value = int64 {0}> () c = Constant <value = int64 {9}> ()
            v = Slice (x, a, e, a, s) r = Range (b, c, t) }""",
        {"x": f(5), "s": i(2), "t": np.int64(2)},
        [
            ({"x": f(5), "s": i(0), "t": np.int64(2)}, INVALID, r"v \(Slice\): a step is 0"),
            ({"x": f(5), "s": i(2), "t": np.int64(0)}, INVALID, r"r \(Range\): its step is 0"),
        ],
    ),
    "numbers of sizes, repeats and parts": (
        """g (float[N,M] x, int64[A] c, int64[B] r, int64[C] s) => (float[D,E] u, float[F,G] v, float[N,I] w)
            { u = CenterCropPad (x, c) v = Tile (x, r) w, rest = Split <axis = 1> (x, s) }""",
        {"x": f(3, 2), "c": i(2, 2), "r": i(1, 2), "s": i(1, 1)},
        [
            (
                {"x": f(3, 2), "c": i(1), "r": i(1, 2), "s": i(1, 1)},
                DIMS_MISMATCH,
                r"u \(.*: expected 2, got 1",
            ),
            (
                {"x": f(3, 2), "c": i(2, 2), "r": i(1), "s": i(1, 1)},
                DIMS_MISMATCH,
                r"v \(.*: expected 2, got 1",
            ),
            ({"x": f(3, 2), "c": i(2, 2), "r": i(1, 2), "s": i(1, 0, 1)}, DIMS_MISMATCH, r"w \(.*d 2, got 3"),
        ],
    ),
    "an axis of sums": (
        "g (float[N,M] x, int64 a) => (float[N,M] y) { y = CumSum (x, a) }",
        {"x": f(3, 2), "a": np.int64(-2)},
        [
            ({"x": f(3, 2), "a": np.int64(a)}, INVALID, rf"y \(CumSum\): the axis is {a}, outside .* rank 2")
            for a in (-3, 2)
        ],
    ),
    "an edge of nothing": (
        """g (float[N,M] x) => (float[A,B] y) {
            p = Constant <value = int64[4] {1, 0, 1, 0}> () y = Pad <mode = "edge"> (x, p) }""",
        {"x": f(3, 2)},
        [({"x": f(0, 2)}, INVALID, r"y \(Pad\): an axis of size 0 has nothing to repeat")],
    ),
    "matrices that are not square": (
        "g (float[N,M] x) => (float y) { y = Det (x) }",
        {"x": f(3, 3)},
        [({"x": f(3, 2)}, DIMS_MISMATCH, r"y \(Det\): .*: expected 3, got 2")],
    ),
    "boxes and their scores": (
        "g (float[A,B,C] x, float[D,E,F] s, int64 k) => (int64[K,3] y) { y = NonMaxSuppression (x, s, k) }",
        {"x": f(1, 5, 4), "s": f(1, 2, 5), "k": np.int64(3)},
        [
            (
                {"x": f(1, 5, 4), "s": f(1, 2, 6), "k": np.int64(3)},
                DIMS_MISMATCH,
                r"y \(.*: expected 5, got 6",
            ),
            (
                {"x": f(1, 5, 3), "s": f(1, 2, 5), "k": np.int64(3)},
                DIMS_MISMATCH,
                r"y \(.*: expected 4, got 3",
            ),
        ],
    ),
    "padding": (
        "g (float[N] x, int64[2] p) => (float[K] z) { z = Pad (x, p) }",
        {"x": f(4), "p": i(1, 2)},
        [
            ({"x": f(4), "p": i(-3, -2)}, WRONG_SHAPE, r"z \(Pad\): a dimension is -1, which does not fit"),
            ({"x": f(4), "p": i(1 << 62, 1 << 62)}, OVERFLOW, r"z \(Pad\): the size of a value overflows"),
        ],
    ),
    "the index of the greatest of nothing": (
        "g (float[N] x) => (int64 at) { at = ArgMax <keepdims = 0> (x) }",
        {"x": f(3)},
        [({"x": f(0)}, WRONG_SHAPE, r"at \(ArgMax\): a dimension is 0, which does not fit")],
    ),
    "an axis that is not of size 1": (
        """g (float[N,M] x) => (float[M] z) {
            a = Constant <value = int64[1] {0}> () y = Squeeze (x, a) z = Exp (y) }""",
        {"x": f(1, 4)},
        [({"x": f(2, 4)}, DIMS_MISMATCH, r"y \(Squeeze\): .* expected 1, got 2")],
    ),
    "channels that make no blocks": (
        "g (float[N,C,H,W] x) => (float[N,D,P,Q] y) { y = DepthToSpace <blocksize = 2> (x) }",
        {"x": f(1, 4, 2, 2)},
        [({"x": f(1, 3, 2, 2)}, RESHAPE, r"y \(DepthToSpace\): number of elements")],
    ),
    "sizes in a loop": (
        """g (float[N] x, float[M] w, int64 n) => (float[S] last) {
            go = Constant <value = bool {1}> ()
            last = Loop (n, go, x) <body = round (int64 i, bool c, float[A] h) => (bool c_out, float[B] g) {
                c_out = Identity (c) sum = Add (h, w) g = Concat <axis = 0> (sum, x) }> }""",
        {"x": f(2), "w": f(2), "n": np.int64(1)},
        [({"x": f(2), "w": f(2), "n": np.int64(2)}, DIMS_MISMATCH, r"sum \(Add\): .* expected 2, got 4")],
    ),
    "sizes after a branch": (
        """g (bool c, float[N] x, float[M] y, float[K] w) => (float[S] z) {
            v = If (c) <then_branch = yes () => (float[A] o) { o = Exp (x) },
                        else_branch = no () => (float[B] p) { p = Neg (y) }>
            z = Add (v, w) }""",
        {"c": np.asarray(True), "x": f(2), "y": f(3), "w": f(2)},
        [({"c": np.asarray(False), "x": f(2), "y": f(3), "w": f(2)}, DIMS_MISMATCH, r"z \(Add\)")],
    ),
    "scales": (
        "g (float[N] x, float[1] s) => (float[M] y) { y = Resize (x, , s) }",
        {"x": f(3), "s": np.float32([2])},
        [
            ({"x": f(3), "s": np.float32([np.nan])}, INVALID, r"y \(Resize\): a scale makes .* NaN elements"),
            ({"x": f(3), "s": np.float32([-1.5])}, INVALID, r"y \(Resize\): a scale makes .* -5 elements"),
            ({"x": f(3), "s": np.float32([np.inf])}, INVALID, r"y \(Resize\): a scale makes .* inf elements"),
        ],
    ),
    "a share of elements to drop": (
        "g (float[N] x, float r, bool t) => (float[N] y) { y = Dropout (x, r, t) }",
        {"x": f(3), "r": np.float32(0), "t": np.bool_(True)},
        [
            (
                {"x": f(3), "r": np.float32(r), "t": np.bool_(True)},
                INVALID,
                rf"\(Dropout\): the ratio is {told}",
            )
            for r, told in ((np.nan, "NaN"), (1.5, "1.5"), (-0.25, "-0.25"))
        ],
    ),
    "regions": (
        "g (float[N,C,H,W] x, float[R,4] r, int64[R] k) => (float[R,C,1,1] y) { y = RoiAlign (x, r, k) }",
        {"x": f(1, 1, 4, 4), "r": np.float32([[0, 0, 2, 2]]), "k": i(0)},
        [
            (
                {"x": f(1, 1, 4, 4), "r": np.float32([[0, 0, end, 2]]), "k": i(0)},
                INVALID,
                rf"\): {told} is not",
            )
            for end, told in ((np.nan, "NaN"), (1e30, r"1e\+30"))
        ],
    ),
    "lengths of reversed sequences": (
        "g (float[T,B] x, int64[C] l) => (float[T,B] y) { y = ReverseSequence (x, l) }",
        {"x": f(3, 2), "l": i(2, 3)},
        [
            ({"x": f(3, 2), "l": i(2, 4)}, INVALID, r"y \(ReverseSequence\): a sequence has 4 of T"),
            ({"x": f(3, 2), "l": i(2, 3, 1)}, WRONG_SHAPE, r"input 'l': dimension 0 .*: expected 2, got 3"),
        ],
    ),
    "items of another kind, rank or type": (
        """g (seq(float[N]) s, int64 at) => (float[M] y) { v = SequenceAt (s, at) y = Exp (v) }""",
        {"s": [f(3), f(4)], "at": np.int64(1)},
        [
            ({"s": [[f(3)], [f(4)]], "at": np.int64(1)}, WRONG_KIND, "input 's': item 0: expected a tensor"),
            ({"s": [f(3), f(4, 1)], "at": np.int64(1)}, RANK_MISMATCH, r"v \(SequenceAt\): rank: .* got 2"),
            ({"s": [f(3), i(4)], "at": np.int64(1)}, WRONG_DTYPE, "input 's': expected float32, got int64"),
        ],
    ),
    "an empty sequence of tensors that are joined": (
        "g (seq(float[N]) s) => (float[M] y) { y = ConcatFromSequence <axis = 0> (s) }",
        {"s": [f(3), f(4)]},
        [({"s": []}, INVALID, r"y \(ConcatFromSequence\): the sequence has no tensors to join")],
    ),
    "tensors where lists should be": (
        """g (optional(seq(float[N])) s) => (int64 n) {
            v = OptionalGetElement (s) n = SequenceLength (v) }""",
        {"s": [f(3), f(4)]},
        [({"s": f(3)}, WRONG_KIND, "input 's': expected a list of arrays")],
    ),
    "a number of empty rows that memory cannot hold": (
        "g (float[N,M] x) => (float[A,M] y, int64[A] at) { y, at = Unique <axis = 0> (x) }",
        {"x": f(3, 2)},
        [
            ({"x": np.zeros((1 << 50, 0), np.float32)}, OUT_OF_MEMORY, r"y \(Unique\): out of memory"),
            ({"x": np.zeros((1 << 58, 0), np.float32)}, OVERFLOW, r"y \(Unique\): the size of a value"),
            ({"x": np.zeros((1 << 60, 0), np.float32)}, OVERFLOW, r"y \(Unique\): the size of a value"),
        ],
    ),
    "sizes of a constant": (
        "g (int64[2] s) => (float[A,B] z) { z = ConstantOfShape (s) }",
        {"s": i(2, 3)},
        [
            ({"s": i(-1, 3)}, INVALID, r"z \(ConstantOfShape\): .* expected 0 .*-1"),
            ({"s": i(1 << 32, 1 << 32)}, OVERFLOW, r"z \(ConstantOfShape\): the size of a value overflows"),
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_fit_fails_one_run(name, tmp_path):
    text, good, bad = CASES[name]
    model = compiled(parsed(text), tmp_path)
    expected = model.run(None, good)
    for feeds, status, sentence in bad:
        with pytest.raises(RunError, match=sentence) as caught:
            model.run(None, feeds)
        assert (caught.value.status, "\n" in str(caught.value)) == (status, False)
        again = model.run(None, good)
        assert all(np.array_equal(x, y, equal_nan=True) for x, y in zip(again, expected, strict=True))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_the_least_integer_divided_by_minus_one_wraps(dtype, tmp_path):
    type_ = np.dtype(dtype).name
    model = compiled(
        parsed(f"""g ({type_}[N] x, {type_}[N] y) => ({type_}[N] q, {type_}[N] r) {{
        q = Div (x, y) r = Mod (x, y) }}"""),
        tmp_path,
    )
    least = np.iinfo(dtype).min
    for n in (1, 3, 70):
        x, y = np.full(n, least, dtype), np.full(n, -1, dtype)
        q, r = model.run(None, {"x": x, "y": y})
        assert np.array_equal(q, x) and not r.any()
        y[n // 2] = 0
        with pytest.raises(RunError, match="integer division by zero"):
            model.run(None, {"x": x, "y": y})


def test_a_range_between_extreme_integers_has_as_many_as_there_are(tmp_path):
    model = parsed("g (int64 a, int64 b, int64 c) => (int64[N] y) { y = Range (a, b, c) }")
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"))
    least, most = -(1 << 63), (1 << 63) - 1
    numbers = (0, 1, -1, 7, 1 << 31, 1 << 62, -(1 << 62), least, least + 1, most, most - 1)
    for start, limit, delta in itertools.product(numbers, repeat=3):
        feeds = {name: np.int64(n) for name, n in zip("abc", (start, limit, delta))}
        expected = range(start, limit, delta) if delta else None
        if expected is None or expected[1 << 50 :]:
            with pytest.raises(RunError):
                compiled.run(None, feeds)
        elif not expected[1000:]:
            assert compiled.run(None, feeds)[0].tolist() == list(expected), (start, limit, delta)


def test_a_failing_element_is_found_in_any_part_of_any_thread(tmp_path):
    text = "g (float[N] x, int64[K] at) => (float[K] y) { y = Gather (x, at) }"
    model = compiled(parsed(text), tmp_path)
    at = np.zeros(1_000_003, np.int64)
    for place in (0, 500_000, 1_000_002):
        at[place] = 7 + place
        with pytest.raises(RunError, match=f"index {7 + place} is out of range"):
            model.run(None, {"x": f(7), "at": at})
        at[place] = 0
    at[[3, 999_999]] = 70, 80  # of several failures the first is told, whichever thread was faster
    for _ in range(20):
        with pytest.raises(RunError, match="index 70 is out of range"):
            model.run(None, {"x": f(7), "at": at})
    assert np.array_equal(model.run(None, {"x": f(7), "at": at * 0})[0], np.full(at.size, f(7)[0]))


def test_results_made_before_a_failure_are_given_back(tmp_path):
    """A hundred runs that make 8 MB each and then fail leave nothing behind."""
    text = "g (float[N] x, int64[2] s) => (float[N] y, float[A,B] z) { y = Exp (x) z = Reshape (x, s) }"
    model = compiled(parsed(text), tmp_path)
    feeds = {"x": f(1 << 21), "s": i(3, 5)}
    for count in range(101):
        with pytest.raises(RunError, match="number of elements"):
            model.run(None, feeds)
        if count == 0:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_strings_without_text_or_of_negative_length_are_refused(tmp_path):
    model = compiled(parsed("g (string[N] s) => (float[N] y) { y = Cast <to = 1> (s) }"), tmp_path)
    text, context = np.array(["1", "2"], object), model.acquire()
    for length, data in ((-1, b"2"), (-(1 << 63), b"2"), (1, None)):
        lent = []
        context.inputs[0].fill(text, lent)
        second = (CString * 2).from_address(context.arrays[0][0].data)[1]
        second.length, second.data = length, ctypes.cast(data, ctypes.c_void_p) if data else None
        with pytest.raises(RunError, match="input 's': string 1 has a negative length or no text"):
            context.call()
    model.give_back(context)
    assert list(model(text)) == [1, 2]


def test_a_session_tells_the_same_sentences(tmp_path):
    text = "g (float[N] x, float[N] y) => (float[N] z) { z = Add (x, y) }"
    onnx.save(parsed(text), tmp_path / "model.onnx")
    session = onnxc.InferenceSession(str(tmp_path / "model.onnx"))
    with pytest.raises(RunError, match=r"input 'y': dimension 0 \(N\): expected 3, got 4"):
        session.run(None, {"x": f(3), "y": f(4)})


# Compiles that end early, or meet


def compiling(folder):
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "onnxc", "compile", "model.onnx", "-o", "model.so"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def works(folder):
    with onnxc.load(folder / "model.so") as model:
        return model.run(None, {"image": IMAGE})[0].shape == (1, 10)


@pytest.mark.parametrize("stage", ["optimise", "select", "write weights"])
def test_a_stage_does_not_begin_to_read_a_file_that_changed(stage, tmp_path):
    """It is mapped: who reads what was cut off it meanwhile is ended."""
    path, begun = tmp_path / "model.onnx", []
    onnx.save(small_models.images(), path)

    def meanwhile(name):
        begun.append(name)
        if name.startswith(stage):
            path.write_bytes(path.read_bytes() + b"\0")

    with pytest.raises(ModelError, match=r"model\.onnx' changed while it was compiled"):
        onnxc.compile(path, tmp_path / "model.so", progress=meanwhile)
    assert begun[-1].startswith(stage)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model.onnx"]


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True])
def test_a_killed_compile_leaves_the_old_library_or_a_whole_one(old, tmp_path):
    """Killed in every stage, from the start of Python to the link."""
    onnx.save(small_models.images(), tmp_path / "model.onnx")
    if old:
        (tmp_path / "model.so").write_bytes(b"old")
    for delay in (0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.4, 2.8):
        process = compiling(tmp_path)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        process.kill()
        process.communicate(timeout=60)  # its children end by themselves, and close what they print to
        output = tmp_path / "model.so"
        assert (output.read_bytes() == b"old" if old else not output.exists()) or works(tmp_path)


@pytest.mark.slow
def test_compiles_to_one_place_at_once_leave_a_whole_library(tmp_path):
    onnx.save(small_models.images(), tmp_path / "model.onnx")
    processes = [compiling(tmp_path) for _ in range(3)]
    assert [process.communicate(timeout=120) and process.returncode for process in processes] == [0, 0, 0]
    assert works(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model.h", "model.onnx", "model.so"]
