"""What static compilers stumble over: sizes that only data tells, loops that grow, branches that differ,
lists of tensors.

Each model is compiled once, with every dimension open, and held against ONNX Runtime at several sizes.
"""

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from support.agreement import check_runs, floats
from support.small_models import parsed

import onnxc
from onnxc.errors import LimitError, OnnxcError, RunError
from onnxc.frontend import importer
from onnxc.frontend.importer import import_model
from onnxc.ir import ops
from onnxc.ir.graph import walk
from onnxc.ir.interpret import run_graph
from onnxc.options import Options

AXIS_0 = "axis_0 = Constant <value = int64[1] {0}> ()"
GO = "go = Constant <value = bool {1}> ()"


def int64(value):
    return np.asarray(value, np.int64)


# Loops


def test_a_carried_tensor_grows_for_as_many_rounds_as_the_run_says(tmp_path):
    model = parsed("""
        grow (float[N] x, int64 trips, bool go) => (float[M] y) {
            y = Loop (trips, go, x) <body = round (int64 i, bool c, float[K] have)
                => (bool c_out, float[L] more) {
                one = Constant <value = float[1] {1.0}> ()
                more = Concat <axis = 0> (have, one)
                c_out = Identity (c)
            }>
        }""")
    check_runs(
        model,
        tmp_path,
        [
            {"x": floats(n), "trips": int64(trips), "go": np.bool_(go)}
            for n, trips, go in ((3, 2, 1), (0, 4, 1), (5, 0, 1), (2, 3, 0), (7, 100, 1), (1, 1, 1))
        ],
    )


def test_a_carried_tensor_doubles_a_constant_number_of_times(tmp_path):
    model = parsed(f"""
        double (float[N] x) => (float[M] y) {{
            trips = Constant <value = int64 {{5}}> ()
            {GO}
            y = Loop (trips, go, x) <body = round (int64 i, bool c, float[K] have)
                => (bool c_out, float[L] more) {{
                more = Concat <axis = 0> (have, have)
                c_out = Identity (c)
            }}>
        }}""")
    check_runs(model, tmp_path, [{"x": floats(n)} for n in (1, 3, 0, 70)])


def test_a_condition_ends_a_loop_early_and_what_it_scanned_is_as_long(tmp_path):
    model = parsed(f"""
        early (float[N] x, float limit) => (float[M] y, float[T, N] sums, int64[T] counts) {{
            trips = Constant <value = int64 {{9}}> ()
            row = Constant <value = int64[1] {{1}}> ()
            {GO}
            y, sums, counts = Loop (trips, go, x) <body = round (int64 i, bool c, float[K] have)
                => (bool c_out, float[L] more, float[N] sum, int64 count) {{
                total = ReduceSum <keepdims = 0> (have)
                last = Reshape (total, row)
                more = Concat <axis = 0> (have, last)
                sum = Add (x, total)
                count = Identity (i)
                c_out = Less (total, limit)
            }}>
        }}""")
    check_runs(
        model,
        tmp_path,
        [
            {"x": np.ones(n, np.float32), "limit": np.float32(limit)}
            for n, limit in ((3, 20), (2, 1e9), (4, 0), (1, 5))
        ],
    )


def test_a_loop_without_a_trip_count_runs_until_its_condition_fails(tmp_path):
    model = parsed(f"""
        until (float x) => (float y, int64 count, float[T] seen) {{
            {GO}
            zero = Constant <value = int64 {{0}}> ()
            y, count, seen = Loop ( , go, x, zero) <body = round (int64 i, bool c, float h, int64 n)
                => (bool c_out, float twice, int64 m, float scan) {{
                limit = Constant <value = float {{100.0}}> ()
                one = Constant <value = int64 {{1}}> ()
                twice = Add (h, h)
                c_out = Less (twice, limit)
                m = Add (n, one)
                scan = Identity (h)
            }}>
        }}""")
    check_runs(model, tmp_path, [{"x": np.float32(x)} for x in (1, 3, 200)])


def test_a_loop_counts_in_vectors_where_its_body_declares_them(tmp_path):
    """ONNX Runtime does; the reference has scalars whatever is declared."""
    model = parsed(f"""
        counted (float[1] x) => (float[T, U] seen) {{
            trips = Constant <value = int64 {{3}}> ()
            {GO}
            seen = Loop (trips, go) <body = round (int64[1] i, bool[1] c) => (bool[1] c_out, float[1] scan) {{
                c_out = Identity (c)
                number = Cast <to = 1> (i)
                scan = Mul (number, x)
            }}>
        }}""")
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"))
    (seen,) = compiled.run(None, {"x": np.array([2.0], np.float32)})
    np.testing.assert_array_equal(seen, [[0], [2], [4]])


def test_what_a_loop_carries_is_of_the_rank_that_it_has_whatever_is_declared(tmp_path):
    model = parsed(f"""
        carried (float x, int64 trips) => (float y) {{
            {GO}
            y = Loop (trips, go, x) <body = round (int64 i, bool c, float[1] h) => (
                    bool c_out, float[1] more) {{
                c_out = Identity (c)
                more = Add (h, h)
            }}>
        }}""")
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"))
    for trips in (0, 3):
        (y,) = compiled.run(None, {"x": np.float32(3), "trips": np.int64(trips)})
        assert (y.shape, float(y)) == ((), 3 * 2**trips)


SWAP = """
    swap (float[N] x, float[M] z, int64 trips, bool go) => (float[A] a, float[B] b) {
        a, b = Loop (trips, go, x, z) <body = round (int64 i, bool c, float[P] p, float[Q] q)
            => (bool c_out, float[R] r, float[S] s) {
            c_out = Identity (c)
            r = EXCHANGED
            s = Identity (p)
        }>
    }"""


@pytest.mark.parametrize("exchanged", ["Identity (q)", "Concat <axis = 0> (q, q)", "Neg (q)"])
@pytest.mark.parametrize("equal", [False, True])
def test_carried_values_change_places(exchanged, equal, tmp_path):
    text = SWAP.replace("EXCHANGED", exchanged)
    model = parsed(text.replace("[M] z", "[N] z") if equal else text)
    check_runs(
        model,
        tmp_path,
        [
            {"x": floats(n), "z": floats(n if equal else m, seed=1), "trips": int64(trips), "go": np.bool_(1)}
            for n, m, trips in ((3, 1, 1), (3, 2, 2), (5, 0, 0), (0, 1, 3), (2, 7, 7))
        ],
    )


def test_a_carried_value_may_be_what_a_branch_chose_of_the_others(tmp_path):
    model = parsed(f"""
        choose (float[N] x, float[M] z, int64 trips) => (float[A] a, float[B] b) {{
            {GO}
            two = Constant <value = int64 {{2}}> ()
            zero = Constant <value = int64 {{0}}> ()
            a, b = Loop (trips, go, x, z) <body = round (int64 i, bool c, float[P] p, float[Q] q)
                => (bool c_out, float[R] r, float[S] s) {{
                c_out = Identity (c)
                half = Mod (i, two)
                even = Equal (half, zero)
                r = Concat <axis = 0> (q, p)
                s = If (even) <then_branch = yes () => (float[U] o) {{ o = Identity (p) }},
                               else_branch = no () => (float[V] o) {{ o = Neg (q) }}>
            }}>
        }}""")
    check_runs(
        model,
        tmp_path,
        [
            {"x": floats(n), "z": floats(m, seed=1), "trips": int64(trips)}
            for n, m, trips in ((3, 1, 1), (3, 2, 2), (5, 0, 0), (0, 1, 3), (2, 7, 5))
        ],
    )


def test_the_condition_may_be_carried_and_scanned(tmp_path):
    model = parsed(f"""
        conditions (float x, int64 trips) => (bool last, float y, bool[T] all) {{
            {GO}
            no = Constant <value = bool {{0}}> ()
            last, y, all = Loop (trips, go, no, x) <body = round (int64 i, bool c, bool before, float h)
                => (bool c_out, bool r, float g, bool scan) {{
                one = Constant <value = float {{1.0}}> ()
                limit = Constant <value = float {{5.0}}> ()
                g = Add (h, one)
                c_out = Less (g, limit)
                r = Identity (c)
                scan = Identity (c)
            }}>
        }}""")
    check_runs(
        model,
        tmp_path,
        [{"x": np.float32(x), "trips": int64(trips)} for x, trips in ((0, 3), (0, 100), (9, 4), (0, 0))],
    )


def test_scanned_values_may_have_a_size_that_the_body_computes(tmp_path):
    model = parsed(f"""
        scan (float[N] x, int64 trips) => (float[S] last, float[T, K] rows) {{
            {GO}
            last, rows = Loop (trips, go, x) <body = round (int64 i, bool c, float[A] h)
                => (bool c_out, float[B] g, float[C] row) {{
                c_out = Identity (c)
                g = Exp (h)
                row = Concat <axis = 0> (h, x)
            }}>
        }}""")
    check_runs(
        model, tmp_path, [{"x": floats(n), "trips": int64(trips)} for n, trips in ((2, 3), (1, 1), (4, 2))]
    )


def test_scanned_values_of_unequal_sizes_are_an_error_of_the_run(tmp_path):
    model = parsed(f"""
        scan (float[N] x, int64 trips) => (float[S] last, float[T, K] rows) {{
            {GO}
            last, rows = Loop (trips, go, x) <body = round (int64 i, bool c, float[A] h)
                => (bool c_out, float[B] g, float[C] row) {{
                c_out = Identity (c)
                g = Concat <axis = 0> (h, x)
                row = Identity (g)
            }}>
        }}""")
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"))
    with pytest.raises(RunError, match=r"last \(Loop\): .*: expected 4, got 6"):
        compiled.run(None, {"x": floats(2), "trips": int64(2)})
    last, rows = compiled.run(None, {"x": floats(2), "trips": int64(1)})
    assert (last.shape, rows.shape) == ((4,), (1, 4))


def test_a_loop_in_a_branch_in_a_loop(tmp_path):
    model = parsed(f"""
        nested (float[N] x, int64 n, int64 m, bool deep) => (float[K] y, float[S] totals) {{
            {GO}
            {AXIS_0}
            y, totals = Loop (n, go, x) <body = outer (int64 i, bool c, float[A] have)
                => (bool c_out, float[B] more, float total) {{
                more = If (deep) <
                    then_branch = yes () => (float[C] grown) {{
                        grown = Loop (m, go, have) <body = inner (int64 j, bool d, float[D] h)
                            => (bool d_out, float[E] g) {{
                            k = Add (i, j)
                            number = Cast <to = 1> (k)
                            last = Unsqueeze (number, axis_0)
                            g = Concat <axis = 0> (h, last)
                            d_out = Identity (d)
                        }}>
                    }},
                    else_branch = no () => (float[F] same) {{ same = Neg (have) }}>
                total = ReduceSum <keepdims = 0> (more)
                c_out = Identity (c)
            }}>
        }}""")
    check_runs(
        model,
        tmp_path,
        [
            {"x": floats(k), "n": int64(n), "m": int64(m), "deep": np.bool_(deep)}
            for k, n, m in ((2, 3, 2), (0, 2, 0), (5, 0, 3), (1, 1, 1))
            for deep in (0, 1)
        ],
    )


def test_scans_run_forward_and_in_reverse_along_any_axis(tmp_path):
    model = parsed("""
        scan (float[H] h0, float[C] c0, float[T, H] xs, float[H, T] zs)
            => (float[H] h, float[C] c, float[T, H] hs, float[H, T] gs) {
            h, c, hs, gs = Scan <num_scan_inputs = 2, scan_input_axes = [0, 1],
                                 scan_input_directions = [0, 1], scan_output_axes = [0, 1],
                                 scan_output_directions = [1, 0],
                body = step (float[H] h_in, float[C] c_in, float[H] x, float[H] z)
                    => (float[H] h_out, float[C] c_out, float[H] h_seen, float[H] g) {
                    sum = Add (h_in, x)
                    h_out = Tanh (sum)
                    mean = ReduceMean <keepdims = 0> (z)
                    c_out = Add (c_in, mean)
                    h_seen = Identity (h_out)
                    g = Mul (h_out, z)
                }> (h0, c0, xs, zs)
        }""")
    check_runs(
        model,
        tmp_path,
        [
            {"h0": floats(h), "c0": floats(c), "xs": floats(t, h, seed=1), "zs": floats(h, t, seed=2)}
            for h, c, t in ((3, 2, 4), (1, 1, 1), (8, 5, 17))
        ],
    )


def test_scans_of_operator_set_8_take_a_batch_of_sequences_of_their_own_lengths(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 4, opset_import: ["" : 8]>
        scan (int64[B] lengths, float[B,2] start, float[B,N,2] x, float[B,N,2] z)
            => (float[B,2] last, float[B,N,2] y) {
            last, y = Scan <num_scan_inputs = 2, directions = [0, 1],
                body = step (float[2] a, float[2] p, float[2] q)
                => (float[2] b, float[2] r) { b = Add (a, p) r = Sub (b, q) }> (lengths, start, x, z)
        }""")
    model.graph.node[0].name = "last"
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "scan.so"))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for lengths in ([3, 1, 2], [2]):
        batch = len(lengths)
        feeds = {"lengths": int64(lengths), "start": floats(batch, 2)}
        feeds |= {"x": floats(batch, 3, 2, seed=1), "z": floats(batch, 3, 2, seed=2)}
        for got, expected in zip(compiled.run(None, feeds), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)
    for wrong in ([4, 1, 2], [-1, 1, 1]):
        with pytest.raises(RunError, match="last \\(Scan\\)"):
            compiled.run(
                None,
                {
                    **feeds,
                    **dict.fromkeys(("x", "z"), floats(3, 3, 2)),
                    "start": floats(3, 2),
                    "lengths": int64(wrong),
                },
            )


def test_scanned_inputs_of_unequal_lengths_are_an_error_of_the_run(tmp_path):
    model = parsed("""
        scan (float[T, N] x, float[U, N] y) => (float[T, N] z) {
            z = Scan <num_scan_inputs = 2, body = step (float[N] p, float[N] q) => (float[N] r) {
                r = Add (p, q)
            }> (x, y)
        }""")
    compiled = check_runs(model, tmp_path, [{"x": floats(3, 2), "y": floats(3, 2)}])
    for length in (2, 4):
        with pytest.raises(RunError, match=r"z \(Scan\): dimensions do not match"):
            compiled.run(None, {"x": floats(3, 2), "y": floats(length, 2)})


# Branches


def test_branches_capture_outer_values_and_differ_in_shape(tmp_path):
    model = parsed("""
        branches (bool a, bool b, float[N] x, float[M] z) => (float[K] y) {
            square = Mul (x, x)
            y = If (a) <
                then_branch = yes () => (float[T] o) {
                    v = Add (square, x)
                    o = If (b) <
                        then_branch = yes_yes () => (float[P] p) { p = Concat <axis = 0> (v, z) },
                        else_branch = yes_no () => (float[Q] q) { q = Neg (z) }>
                },
                else_branch = no () => (float[E] o) { o = Sub (square, x) }>
        }""")
    check_runs(
        model,
        tmp_path,
        [
            {"a": np.bool_(a), "b": np.bool_(b), "x": floats(n), "z": floats(m, seed=1)}
            for a in (0, 1)
            for b in (0, 1)
            for n, m in ((3, 2), (1, 7), (0, 4))
        ],
    )


def test_a_branch_on_the_square_of_a_size_does_not_take_it_for_the_size(tmp_path):
    model = parsed("""
        branches (float[N] x) => (float[N] y) {
            size = Shape (x)
            square = Mul (size, size)
            sixteen = Constant <value = int64[1] {16}> ()
            four = Equal (square, sixteen)
            y = If (four) <then_branch = yes () => (float[N] o) { o = Neg (x) },
                           else_branch = no () => (float[N] p) { p = Exp (x) }>
        }""")
    check_runs(model, tmp_path, [{"x": floats(n)} for n in (4, 16, 3)])


DIFFERENT_RANKS = """
    ranks (bool a, float[N] x) => (float[K] y) {
        two = Constant <value = int64[1] {1}> ()
        flat = Constant <value = int64[1] {-1}> ()
        chosen = If (a) <
            then_branch = vector () => (float[N] o) { o = Neg (x) },
            else_branch = matrix () => (float[N, 2] o) {
                column = Unsqueeze (x, two)
                o = Concat <axis = 1> (column, column)
            }>
        REST
    }"""


def test_branches_may_differ_in_rank(tmp_path):
    rest = "row = Reshape (chosen, flat) y = Exp (row)"
    check_runs(
        parsed(DIFFERENT_RANKS.replace("REST", rest)),
        tmp_path,
        [{"a": np.bool_(a), "x": floats(n)} for a in (0, 1) for n in (3, 1, 0)],
    )


def test_axes_of_size_one_are_dropped_when_the_run_meets_them(tmp_path):
    model = parsed("""
        squeezed (float[N,M,K] x) => (float total, float[P] flat, float[A,B] rows) {
            go = Constant <value = bool {1}> ()
            small = If (go) <
                then_branch = g () => (s) { s = Squeeze (x) }, else_branch = h () => (t) { t = Neg (x) }>
            total = ReduceSum <keepdims = 0> (small)
            minus = Constant <value = int64[1] {-1}> ()
            flat = Reshape (small, minus)
            rows = Flatten <axis = 0> (small)
        }""")
    shapes = [(1, 1, 1), (2, 1, 3), (1, 3, 1), (2, 3, 4)]
    check_runs(model, tmp_path, [{"x": floats(*shape)} for shape in shapes])


def test_what_fits_one_rank_only_fails_the_run_where_the_other_was_taken(tmp_path):
    rest = "y = ReduceSum <keepdims = 0> (chosen, two)"
    compiled = onnxc.load(onnxc.compile(parsed(DIFFERENT_RANKS.replace("REST", rest)), tmp_path / "model.so"))
    expected = np.float32([2, 4, 6])
    assert np.array_equal(compiled.run(None, {"a": np.bool_(0), "x": np.float32([1, 2, 3])})[0], expected)
    with pytest.raises(RunError, match="rank"):
        compiled.run(None, {"a": np.bool_(1), "x": np.float32([1, 2, 3])})
    assert np.array_equal(compiled.run(None, {"a": np.bool_(0), "x": np.float32([1, 2, 3])})[0], expected)


def any_rank(text):
    """A model whose outputs have no declared rank, which the checker wants of them."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')


ANY_RANK = {
    "of an output": (
        """g (bool c, float[N,M] x) => (float[] y) { y = If (c) <
            then_branch = a () => (float[] p) { p = Exp (x) },
            else_branch = b () => (float[] q) { q = ReduceSum <keepdims = 0> (x) }> }""",
        [{"c": np.array(c), "x": floats(2, 3)} for c in (True, False)],
    ),
    "of an input": (
        """g (float[] x, int64[K] axes) => (float[] y, int64[R] sizes, float[] w) {
            y = Transpose (x) sizes = Shape (x) w = Reshape (y, axes) }""",
        [
            {"x": floats(*shape), "axes": int64(axes)}
            for shape, axes in (
                ((), []),
                ((6,), [2, 1, 3]),
                ((2, 3), [6]),
                ((2, 1, 3), [-1, 2]),
                ((0, 4), [-1]),
            )
        ],
    ),
    "of an element": (
        """g (seq(float[]) s, int64 i) => (float[] y, float total, float[] same) {
            x = SequenceAt (s, i) y = Exp (x) total = ReduceSum <keepdims = 0> (y) same = Identity (x) }""",
        [{"s": [floats(2, 3), floats(4), floats()], "i": int64(i)} for i in range(3)],
    ),
    "of a carried value": (
        """g (int64 n, float[N] x) => (float[] y) {
            go = Constant <value = bool {1}> ()
            first = Constant <value = int64[1] {0}> ()
            y = Loop (n, go, x) <body = b (int64 i, bool c, float[] h) => (bool d, float[] k) {
                d = Identity (c) e = Sin (h) k = Unsqueeze (e, first) }> }""",
        [{"n": int64(n), "x": floats(3)} for n in (0, 2, 5)],
    ),
    "of what a scan collects": (
        """g (float[N, M] x) => (float[] y) {
            y = Scan <num_scan_inputs = 1, body = b (float[M] r) => (float[] q) {
                n = Size (x) two = Constant <value = int64 {2}> () c = Equal (n, two)
                q = If (c) <then_branch = t () => (float[] u) { u = Neg (r) },
                    else_branch = f () => (float[] v) {
                        last = Constant <value = int64[1] {-1}> () v = Unsqueeze (r, last) }> }> (x) }""",
        [{"x": floats(*shape)} for shape in ((1, 2), (2, 1), (2, 3))],
    ),
    "of the condition of a loop": (
        """g (int64 n, int64 k, bool go) => (int64[] y, int64 rounds) {
            none = Constant <value = int64 {0}> ()
            first = Constant <value = int64[1] {0}> ()
            y, rounds = Loop (n, go, k, none) <body = b (int64 i, bool c, int64[] h, int64 r) => (
                    bool[] d, int64[] left, int64 more) {
                one = Constant <value = int64 {1}> () zero = Constant <value = int64 {0}> ()
                m = Sub (h, one) left = Unsqueeze (m, first) more = Add (r, one)
                d = Greater (left, zero) }> }""",
        [{"n": int64(n), "k": int64(k), "go": np.array(n != 4)} for n, k in ((5, 2), (2, 4), (4, 3), (0, 2))],
    ),
}


@pytest.mark.parametrize("name", ANY_RANK)
def test_a_rank_may_be_for_the_run_to_tell(name, tmp_path):
    text, runs = ANY_RANK[name]
    model = any_rank(text)
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"))
    reference = onnx.reference.ReferenceEvaluator(model)
    for feeds in runs:
        for got, expected in zip(compiled.run(None, feeds), reference.run(None, feeds), strict=True):
            assert got.shape == np.shape(expected)
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        "e = Sin (h) k = Unsqueeze (e, first) q = Identity (h)",
        """k = Identity (h) odd = Cast <to = 9> (i) q = If (odd) <then_branch = t () => (float[] u) {
            u = ReduceSum <keepdims = 0> (x) }, else_branch = f () => (float[] v) { v = Neg (x) }>""",
    ],
    ids=["of a carried value", "of a branch"],
)
def test_what_a_loop_collects_may_not_be_of_a_rank_that_an_iteration_tells(body):
    model = any_rank(f"""g (int64 n, float[N] x) => (float[] y, float[] z) {{
        go = Constant <value = bool {{1}}> () first = Constant <value = int64[1] {{0}}> ()
        y, z = Loop (n, go, x) <body = b (int64 i, bool c, float[] h) => (bool d, float[] k, float[] q) {{
            d = Identity (c) {body} }}> }}""")
    refusal = (
        r"'y' \(Loop of opset 21\): a loop that collects tensors of a rank that only its iterations tell"
    )
    with pytest.raises(onnxc.OnnxcError, match=refusal):
        import_model(model)


def test_what_follows_from_one_rank_is_imported_apart_from_what_follows_from_another():
    """Else the cases would multiply: eight of the first squeeze, in each of them eight of the second."""
    squeezed = [f"s{k} = Squeeze (x{k}) y{k} = Relu (s{k})" for k in range(4)]
    inputs = ", ".join(f"float[A{k}, B{k}, C{k}] x{k}" for k in range(4))
    outputs = ", ".join(f"float[] y{k}" for k in range(4))
    graph = import_model(any_rank(f"g ({inputs}) => ({outputs}) {{ {' '.join(squeezed)} }}")).graph
    assert sum(isinstance(node.op, ops.If) for node in graph.nodes) == 4
    found = run_graph(graph, [floats(2, 1, 3), floats(1, 1, 1), floats(2, 3, 4), floats(1, 0, 1)])
    assert [y.shape for y in found] == [(2, 3), (), (2, 3, 4), (0,)]


def test_a_shape_given_where_the_model_has_none_leaves_axes_open(tmp_path):
    model = any_rank("g (float[] x) => (float[] y, int64[R] s) { y = Relu (x) s = Shape (x) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    library = onnxc.compile(model, tmp_path / "model.so", shapes={"x": (None, 3, None)})
    y, s = onnxc.load(library).run(None, {"x": floats(2, 3, 4)})
    assert (y.shape, s.tolist()) == ((2, 3, 4), [2, 3, 4])


SWAPPED = """
    g (float[] x, int64[] a, int64[] b) => (float[] y) {
        zero = Constant <value = int64[1] {0}> () one = Constant <value = int64[1] {1}> ()
        shape = Shape (x) rank = Shape (shape) behind = Add (a, one) after = Add (b, one)
        before = Slice (shape, zero, a, zero) first = Slice (shape, a, behind, zero)
        between = Slice (shape, behind, b, zero) second = Slice (shape, b, after, zero)
        left = Slice (shape, after, rank, zero)
        n = ReduceProd (before) m = ReduceProd (between) k = ReduceProd (left)
        parts = Concat <axis = 0> (n, first, m, second, k)
        wanted = Concat <axis = 0> (before, second, between, first, left)
        parted = Reshape (x, parts) turned = Transpose <perm = [0, 3, 2, 1, 4]> (parted)
        y = Reshape (turned, wanted)
    }"""


def test_cases_that_multiply_are_refused_where_there_are_too_many(tmp_path, monkeypatch):
    """Two axes of a tensor of any rank change places: how long a part of its shape is depends on others."""
    model = any_rank(SWAPPED)
    for port in model.graph.input:
        port.type.tensor_type.ClearField("shape")
    monkeypatch.setattr(importer, "MOST_CASES", 35)
    problem = "more than 35 cases follow from ranks that only the run knows; compile with the shapes of"
    with pytest.raises(LimitError, match=f"{problem} 'x', 'a', 'b' "):
        import_model(model)
    with pytest.raises(LimitError, match=f"{problem} 'a', 'b' "):
        import_model(model, Options(shapes={"x": (None, 3, None)}))
    shapes = {"x": (None, 3, None), "a": (1,), "b": (1,)}
    library = onnxc.load(onnxc.compile(model, tmp_path / "model.so", shapes=shapes))
    x = floats(2, 3, 4)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        (y,) = library.run(None, {"x": x, "a": np.array([a]), "b": np.array([b])})
        np.testing.assert_array_equal(y, np.swapaxes(x, a, b))


def test_more_axes_than_are_foreseen_are_an_error_of_the_run(tmp_path):
    text, (feeds, *_) = ANY_RANK["of an element"]
    compiled = onnxc.load(onnxc.compile(any_rank(text), tmp_path / "model.so"))
    with pytest.raises(RunError, match="rank or size 6, which is not allowed"):
        compiled.run(None, {**feeds, "s": [floats(1, 1, 1, 1, 1, 2)]})


def test_what_rejoins_cases_of_a_rank_belongs_to_the_node_that_needs_the_rank():
    """Others are imported before it, and were named by its errors."""
    graph = import_model(
        any_rank(
            "g (seq(float[]) s) => (float[] y) { y = ConcatFromSequence <axis = 0> (s) t = Identity (s) }"
        )
    ).graph
    assert {node.origin for node in walk(graph)} == {"y (ConcatFromSequence)"}


# Sizes that are data


def test_what_nonzero_finds_indexes_another_tensor(tmp_path):
    model = parsed("""
        positive (float[N, M] x) => (float[K] y, int64[2, K] places) {
            zero = Constant <value = float {0.0}> ()
            is_positive = Greater (x, zero)
            places = NonZero (is_positive)
            rows = Transpose <perm = [1, 0]> (places)
            y = GatherND (x, rows)
        }""")
    check_runs(
        model,
        tmp_path,
        [{"x": floats(*shape)} for shape in ((3, 4), (1, 1), (17, 5), (0, 3))]
        + [{"x": -np.ones((3, 4), np.float32)}],
    )


def test_chosen_rows_enter_a_product_and_a_softmax(tmp_path):
    model = parsed("""
        chosen (float[N, M] x, float[M, P] w) => (float[R, P] y, float[R, P] p) {
            axis = Constant <value = int64[1] {1}> ()
            zero = Constant <value = float {0.0}> ()
            greatest = ReduceMax <keepdims = 0> (x, axis)
            wanted = Greater (greatest, zero)
            rows = Compress <axis = 0> (x, wanted)
            product = MatMul (rows, w)
            y = Relu (product)
            p = Softmax <axis = -1> (product)
        }""")
    check_runs(
        model,
        tmp_path,
        [
            {"x": floats(n, m) - 0.5, "w": floats(m, p, seed=1)}
            for n, m, p in ((5, 3, 2), (1, 1, 1), (40, 17, 33))
        ]
        + [{"x": -np.ones((3, 4), np.float32), "w": floats(4, 2)}],
    )


def test_unique_values_have_a_size_of_their_own(tmp_path):
    model = parsed("""
        unique (int64[N] x) => (int64[K] values, int64[K] first, int64[N] place, int64[K] sum) {
            values, first, place, counts = Unique (x)
            sum = Add (values, counts)
        }""")
    check_runs(model, tmp_path, [{"x": int64(x)} for x in ([3, 1, 3, 2], [5], [1, 1, 1, 1])])


RESHAPE = """
    reshape (float[N] x, int64[2] shape) => (float[A, B] y, float[B] sums) {
        axis = Constant <value = int64[1] {0}> ()
        y = Reshape (x, shape)
        sums = ReduceSum <keepdims = 0> (y, axis)
    }"""


def test_a_shape_that_is_an_input(tmp_path):
    check_runs(
        parsed(RESHAPE),
        tmp_path,
        [{"x": floats(12), "shape": int64(shape)} for shape in ((3, 4), (12, 1), (2, -1), (-1, 3))],
    )


def test_a_shape_computed_from_data(tmp_path):
    model = parsed("""
        reshape (float[N] x) => (float[A, B] y) {
            greatest = ReduceMax <keepdims = 1> (x)
            rows = Cast <to = 7> (greatest)
            rest = Constant <value = int64[1] {-1}> ()
            shape = Concat <axis = 0> (rows, rest)
            y = Reshape (x, shape)
        }""")
    check_runs(model, tmp_path, [{"x": np.full(12, k, np.float32)} for k in (1, 2, 3, 4, 6, 12)])


@pytest.mark.parametrize(
    "shape", [(3, 5), (-1, -1), (-2, -6), (-1, 5), (0, 12), (1 << 62, 1 << 34 | 3), (1 << 33, 1 << 31)]
)
def test_a_shape_that_does_not_fit_fails_one_run(shape, reshaping):
    with pytest.raises(RunError, match=r"y \(Reshape\): (number of elements|the size|.* got -[12])"):
        reshaping.run(None, {"x": floats(12), "shape": int64(shape)})
    y, _ = reshaping.run(None, {"x": floats(12), "shape": int64((3, 4))})
    assert np.array_equal(y, floats(12).reshape(3, 4))


@pytest.fixture(scope="module")
def reshaping(tmp_path_factory):
    return onnxc.load(onnxc.compile(parsed(RESHAPE), tmp_path_factory.mktemp("reshape") / "model.so"))


def test_slices_ranges_repeats_and_best_values_of_sizes_that_are_data(tmp_path):
    model = parsed(f"""
        sizes (float[N] x, int64 a, int64 b, int64[1] k, int64[2] to)
            => (float[S] part, int64[R] range, float[E, F] wide, float[K] best, int64[K] at) {{
            {AXIS_0}
            one = Constant <value = int64 {{1}}> ()
            begin = Unsqueeze (a, axis_0)
            end = Unsqueeze (b, axis_0)
            part = Slice (x, begin, end, axis_0)
            range = Range (a, b, one)
            wide = Expand (x, to)
            best, at = TopK (x, k)
        }}""")
    check_runs(
        model,
        tmp_path,
        [
            {"x": floats(n), "a": int64(a), "b": int64(b), "k": int64([k]), "to": int64([rows, 1])}
            for n, a, b, k, rows in (
                (5, 1, 3, 2, 3),
                (5, 3, 1, 5, 1),
                (7, -3, 100, 0, 4),
                (1, 0, 0, 1, 2),
                (6, -100, 2, 3, 0),
            )
        ],
    )


def test_a_dimension_used_twice_must_be_one_size(tmp_path):
    model = parsed("same (float[N] x, float[N] y) => (float[N] z) { z = Add (x, y) }")
    compiled = check_runs(model, tmp_path, [{"x": floats(3), "y": floats(3)}])
    for n, m in ((3, 4), (1, 4), (4, 1), (0, 1)):
        with pytest.raises(RunError, match=rf"input 'y': dimension 0 \(N\): expected {n}, got {m}"):
            compiled.run(None, {"x": floats(n), "y": floats(m)})


# Lists of tensors

SEQUENCE = """
    list (float[N] x, float[M] z, int64 at)
        => (seq(float[K]) s, float[A] second, float[B] any, int64 length) {
        w = Exp (x)
        one = Constant <value = int64 {1}> ()
        s = SequenceConstruct (x, z, w)
        second = SequenceAt (s, one)
        any = SequenceAt (s, at)
        length = SequenceLength (s)
    }"""


def test_a_list_is_built_indexed_and_returned(tmp_path):
    compiled = check_runs(
        parsed(SEQUENCE),
        tmp_path,
        [
            {"x": floats(n), "z": floats(m, seed=1), "at": int64(at)}
            for n, m, at in ((3, 2, 0), (1, 4, 2), (0, 1, 1), (2, 5, -1))
        ],
    )
    with pytest.raises(RunError, match=r"any \(SequenceAt\): index 3 is out of range"):
        compiled.run(None, {"x": floats(3), "z": floats(2), "at": int64(3)})


def test_a_list_grows_in_a_loop(tmp_path):
    model = parsed(f"""
        list (float[N] x, int64 trips) => (seq(float[K]) s, float[C] all) {{
            {GO}
            empty = SequenceEmpty ()
            first = SequenceInsert (empty, x)
            s = Loop (trips, go, first) <body = round (int64 i, bool c, seq(float[K]) have)
                => (bool c_out, seq(float[K]) more) {{
                number = Cast <to = 1> (i)
                v = Add (x, number)
                more = SequenceInsert (have, v)
                c_out = Identity (c)
            }}>
            all = ConcatFromSequence <axis = 0> (s)
        }}""")
    check_runs(
        model,
        tmp_path,
        [{"x": floats(n), "trips": int64(trips)} for n, trips in ((3, 2), (1, 0), (4, 9), (0, 2))],
    )


@pytest.mark.parametrize("exchanged", ["Identity (q)", "SequenceInsert (q, x)"])
def test_carried_lists_change_places(exchanged, tmp_path):
    model = parsed(
        """
        lists (float[N] x, float[M] z, int64 trips, bool go) => (seq(float[A]) a, seq(float[B]) b) {
            one = SequenceConstruct (x)
            two = SequenceConstruct (z)
            a, b = Loop (trips, go, one, two) <body = round
                (int64 i, bool c, seq(float[P]) p, seq(float[Q]) q)
                => (bool c_out, seq(float[R]) r, seq(float[S]) s) {
                c_out = Identity (c)
                r = EXCHANGED
                s = Identity (p)
            }>
        }""".replace("EXCHANGED", exchanged)
    )
    check_runs(
        model,
        tmp_path,
        [
            {"x": floats(n), "z": floats(m, seed=1), "trips": int64(trips), "go": np.bool_(1)}
            for n, m, trips in ((3, 1, 1), (3, 2, 2), (5, 0, 0), (0, 1, 3), (2, 7, 7))
        ],
    )


def test_branches_give_lists_of_different_lengths(tmp_path):
    model = parsed("""
        lists (float[N] x, float[M] z, bool c, int64 at) => (seq(float[A]) a, float[B] b) {
            a = If (c) <
                then_branch = yes () => (seq(float[P]) p) { p = SequenceConstruct (x, z) },
                else_branch = no () => (seq(float[Q]) q) { y = Neg (x) q = SequenceConstruct (z, x, y) }>
            b = SequenceAt (a, at)
        }""")
    check_runs(
        model,
        tmp_path,
        [
            {"x": floats(n), "z": floats(m, seed=1), "c": np.bool_(c), "at": int64(at)}
            for n, m, c, at in ((3, 2, 0, 2), (3, 2, 1, 1), (0, 4, 1, 0))
        ],
    )


def test_a_list_may_be_an_input(tmp_path):
    model = parsed("""
        lists (seq(float[N]) s, int64 at) => (float[A] a, seq(float[B]) longer, int64 n, float[C] all) {
            taken = SequenceAt (s, at)
            a = Exp (taken)
            longer = SequenceInsert (s, a, at)
            n = SequenceLength (longer)
            all = ConcatFromSequence <axis = 0> (longer)
        }""")
    check_runs(
        model,
        tmp_path,
        [
            {"s": [floats(n, seed=k) for k in range(count)], "at": int64(at)}
            for n, count, at in ((3, 2, 1), (1, 3, -1), (0, 1, 0))
        ],
    )


def test_a_tensor_is_cut_into_a_list_and_each_part_mapped(tmp_path):
    model = parsed("""
        parts (float[N, M] x, int64[K] split, float[M] w) => (seq(float[A, M]) a, float[B] b) {
            parts = SplitToSequence <axis = 0> (x, split)
            a = SequenceMap (parts, w) <body = part (float[P, M] p, float[M] u) => (float[P, M] q) {
                q = Add (p, u)
            }>
            zero = Constant <value = int64 {0}> ()
            flat = Constant <value = int64[1] {-1}> ()
            first = SequenceAt (a, zero)
            b = Reshape (first, flat)
        }""")
    check_runs(
        model,
        tmp_path,
        [
            {"x": floats(n, 3), "split": int64(split), "w": floats(3, seed=1)}
            for n, split in ((5, [2, 3]), (4, [1, 1, 2]), (3, [3]), (3, [0, 3]))
        ],
    )


def test_a_list_that_ends_before_the_first_one_fails_a_run_that_maps_both(tmp_path):
    model = parsed("""
        mapped (float[N] x, bool both) => (seq(float[A]) y) {
            three = SequenceConstruct (x, x, x) two = SequenceConstruct (x, x)
            y = If (both) <
                then_branch = yes () => (seq(float[B]) z) {
                    z = SequenceMap (three, two) <body = m (float[N] a, float[N] b) => (float[N] c) {
                        c = Add (a, b) }> },
                else_branch = no () => (seq(float[D]) w) {
                    w = SequenceMap (two, three) <body = n (float[N] d, float[N] e) => (float[N] f) {
                        f = Add (d, e) }> }> }""")
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"))
    x = floats(3)
    (y,) = compiled.run(None, {"x": x, "both": np.array(False)})
    assert [part.tolist() for part in y] == [(x + x).tolist()] * 2
    with pytest.raises(RunError, match=r"z \(SequenceMap\): .*2 is out of range"):
        compiled.run(None, {"x": x, "both": np.array(True)})


# Loops and the process around them


def test_threads_share_a_model_whose_sizes_differ_from_call_to_call(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    compiled = onnxc.load(onnxc.compile(parsed(SEQUENCE), tmp_path / "model.so"), threads=2)

    def call(n):
        s, second, anyone, length = compiled.run(
            None, {"x": floats(n), "z": floats(2 * n, seed=1), "at": int64(n % 3)}
        )
        assert [v.shape for v in s] == [(n,), (2 * n,), (n,)]
        assert np.array_equal(anyone, s[n % 3]) and np.array_equal(second, floats(2 * n, seed=1))
        return int(length)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(call, [*range(200)])) == [3] * 200


def test_a_body_may_not_change_the_type_that_it_carries(tmp_path):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        bad (float[N] x, int64 trips) => (float[M] y) {{
            {GO}
            y = Loop (trips, go, x) <body = round (int64 i, bool c, float[K] have)
                => (bool c_out, int64[K] more) {{
                more = Cast <to = 7> (have)
                c_out = Identity (c)
            }}>
        }}""")
    with pytest.raises(OnnxcError, match="carried value is float32"):
        onnxc.compile(model, tmp_path / "model.so")
