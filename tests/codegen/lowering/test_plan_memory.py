"""Where values lie: results over operands, what loops carry, and the check that finds what is wrong."""

from dataclasses import replace

import numpy as np
import pytest
from support.agreement import floats
from support.planned import PLANE, POINTWISE, Planned, agrees_in_any_memory, apart, convolved
from support.small_models import Weights, parsed

import onnxc
from onnxc.codegen.lowering.check_plan import check_plan
from onnxc.codegen.lowering.plan_memory import Buffer, place, plan_memory
from onnxc.ir.dims import evaluate
from onnxc.ir.verify import InvalidGraph

# Results over operands


def test_a_result_takes_the_memory_of_an_operand_that_dies():
    p = Planned("""graph g(%x: float32[n, 4], %y: float32[4]) {
        %a = map(%x) { exp($0) }
        %b = map(%a, %y) { add($0, $1) }
        %c = map(%b) { cast($0, int32) }
        %d = reduce(%c) kind=sum axes=(1)
        return %d
    }""")
    assert p.offset_in("a", "c") == p.offset_in("b", "c") == 0
    assert len(p.plan.buffers) == 1


def test_a_chain_is_computed_in_the_callers_memory():
    p = Planned("""graph g(%x: float32[n, 4]) {
        %a = map(%x) { exp($0) }
        %b = map(%a) { neg($0) }
        return %b
    }""")
    assert p.place("a") == p.place("b") == ("output", 0, 0)
    assert not p.plan.buffers


def test_an_operator_in_c_writes_to_the_callers_memory():
    p = Planned("""graph g(%x: float32[n]) {
        %at = runtime_call(%x) symbol=nonzero : int64[1, k]
        return %at
    }""")
    assert p.place("at") == ("output", 0, 0)
    assert not p.plan.copies


def test_what_an_operator_in_c_makes_is_copied_where_the_output_has_another_shape():
    p = Planned("""graph g(%x: float32[n]) {
        %at = runtime_call(%x) symbol=nonzero : int64[1, k]
        %y = reshape(%at) shape=(k)
        return %y
    }""")
    assert p.place("at")[0] == "heap"
    assert [index for index, _ in p.plan.copies] == [0]


def test_what_is_read_later_is_not_overwritten():
    p = Planned("""graph g(%x: float32[4, 6]) {
        %a = map(%x) { exp($0) }
        %b = map(%a) { neg($0) }
        %c = reduce(%b) kind=sum axes=(0)
        %d = map(%a, %c) { add($0, $1) }
        return %d
    }""")
    assert apart(p, "a", "b")


def test_what_is_read_later_through_a_view_is_not_overwritten():
    p = Planned("""graph g(%x: float32[4, 6]) {
        %a = map(%x) { exp($0) }
        %r = reshape(%a) shape=(6, 4)
        %b = map(%a) { neg($0) }
        %c = reduce(%b) kind=sum axes=(1)
        %d = reduce(%r) kind=sum axes=(1)
        return %c, %d
    }""")
    assert apart(p, "a", "b")


def test_what_is_read_in_two_orders_is_not_overwritten():
    p = Planned("""graph g(%x: float32[4, 6]) {
        %a = map(%x) { exp($0) }
        %r = reshape(%a) shape=(4, 1, 6)
        %b = map(%a, %r) { add($0, $1) }
        %c = reduce(%b) kind=sum axes=(0, 1)
        return %c
    }""")
    assert apart(p, "a", "b")


def test_what_repeats_is_not_overwritten():
    p = Planned("""graph g(%x: float32[n, 4], %y: float32[n, 1]) {
        %a = map(%y) { exp($0) }
        %b = map(%a, %x) { add($0, $1) }
        %c = reduce(%b) kind=sum axes=(1)
        return %c
    }""")
    assert apart(p, "a", "b")


def test_updates_are_scattered_into_what_they_change():
    p = Planned("""graph g(%x: float32[n, 4], %i: int64[1, 1], %u: float32[1, 4]) {
        %a = map(%x) { exp($0) }
        %b = scatter(%a, %i, %u) form=nd
        %c = reduce(%b) kind=sum axes=(0)
        return %c
    }""")
    assert p.offset_in("b", "a") == 0


def test_updates_are_scattered_into_an_output_whose_size_is_data():
    p = Planned("""graph g(%x: float32[n, 4], %t: int64[], %i: int64[1, 1], %u: float32[1, 4]) {
        bind(%t) symbols=(total)
        %zero = constant float32[] splat 0.0
        %a = pad(%x, %zero) mode=constant before=(0, 0) after=(total, 0)
        %b = scatter(%a, %i, %u) form=nd
        return %b
    }""")
    assert p.place("a") == p.place("b") == ("output", 0, 0)
    assert not p.plan.copies


def test_results_over_what_an_operator_in_c_makes_are_written_to_the_callers_memory():
    p = Planned("""graph g(%x: float32[n]) {
        %at = runtime_call(%x) symbol=nonzero : int64[1, k]
        %a = map(%at) { neg($0) }
        %b = map(%at) { abs($0) }
        %c = map(%b) { neg($0) }
        return %a, %c
    }""")
    assert p.place("at")[0] == "heap"
    assert p.place("a") == ("output", 0, 0)
    assert p.place("b") == p.place("c") == ("output", 1, 0)
    assert not p.plan.copies


def test_results_over_a_part_are_written_to_the_callers_memory():
    p = Planned("""graph g(%x: float32[4, 6]) {
        %a = map(%x) { exp($0) }
        %p = slice(%a) starts=(0, 0) sizes=(2, 6) steps=(1, 1)
        %b = map(%p) { neg($0) }
        return %b
    }""")
    assert p.place("b") == ("output", 0, 0)
    assert not p.plan.copies


def test_a_result_of_another_size_has_its_own_memory():
    p = Planned("""graph g(%x: float32[n, 4]) {
        %a = map(%x) { exp($0) }
        %b = map(%a) { cast($0, float64) }
        %c = reduce(%b) kind=sum axes=(1)
        return %c
    }""")
    assert apart(p, "a", "b")


def test_inputs_and_constants_are_not_overwritten():
    p = Planned("""graph g(%x: float32[4]) {
        %w = constant float32[4] (1.0, 2.0, 3.0, 4.0)
        %a = map(%x, %w) { add($0, $1) }
        %b = reduce(%a) kind=sum axes=(0)
        return %b
    }""")
    assert p.place("a")[0] == "arena"


RESIDUAL = f"""
    %b = conv(%a, %v) {POINTWISE}
    %c = conv(%b, %v, %a) {POINTWISE} epilogue={{ max(add($0, $1), 0.0) }}
    %d = reduce(%c) kind=sum axes=(2, 3)
    return %d"""


def test_a_convolution_is_added_to_its_residual():
    p = Planned(convolved(8, RESIDUAL))
    assert p.offset_in("c", "a") == 0


def test_a_residual_is_read_once_where_pixels_are_computed_twice():
    p = Planned(convolved(8, RESIDUAL).replace("4, 4]", "w, 7]"))
    (conv,) = (n for n in p.graph.nodes if len(n.inputs) == 3)
    assert not p.codes[conv].over
    assert apart(p, "a", "c")


def test_a_residual_is_overwritten_where_lines_end_in_a_narrower_tile():
    p = Planned(convolved(8, RESIDUAL).replace("4, 4]", "7, 17]"))
    assert not apart(p, "a", "c")


def test_a_residual_with_a_border_is_not_overwritten_by_a_result_without():
    p = Planned(
        convolved(
            8,
            RESIDUAL.replace(
                "%d = reduce(%c)",
                """
        %e = conv(%a, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        %f = map(%c, %e) { add($0, $1) }
        %d = reduce(%f)""",
            ),
        )
    )
    assert apart(p, "a", "c")


def test_a_product_is_added_to_its_residual():
    p = Planned("""graph g(%x: float32[n, 16]) {
        %w = constant float32[16, 16] splat 0.5
        %a = map(%x) { exp($0) }
        %b = contract(%a, %w) lhs="mk" rhs="kn" out="mn" accumulate=float32
        %c = contract(%b, %w, %a) lhs="mk" rhs="kn" out="mn" accumulate=float32 epilogue={ add($0, $1) }
        %d = reduce(%c) kind=sum axes=(1)
        return %d
    }""")
    assert p.offset_in("c", "a") == 0


def test_results_over_operands_make_the_arena_smaller():
    p = Planned("""graph g(%x: float32[1000]) {
        %a = map(%x) { exp($0) }
        %b = map(%a) { neg($0) }
        %c = reduce(%b) kind=sum axes=(0)
        return %c
    }""")
    assert p.plan.arena_bytes == 4032
    p.codes.update({node: replace(code, over=()) for node, code in p.codes.items()})
    assert plan_memory(p.graph, p.codes).arena_bytes == 2 * 4032


def test_overwritten_operands_agree_in_any_memory(tmp_path):
    w = Weights(4)
    w.add("w", 24, 24)
    model = parsed(
        """
        chain (float[n, 24] x, float[24] y) => (float[n, 24] z, float[n, 24] other, bool[n, 24] signs) {
            a = Add (x, y)
            b = Exp (a)
            c = MatMul (b, w)
            d = Add (c, b)
            e = Relu (d)
            f = Transpose <perm = [1, 0]> (e)
            g = Transpose <perm = [1, 0]> (f)
            h = Add (e, g)
            i = Softmax (h)
            z = Mul (i, h)
            other = Neg (z)
            least = Constant <value = float {-1e-30}> ()
            signs = Less (other, least)
        }""",
        w,
    )
    agrees_in_any_memory(model, tmp_path, [{"x": floats(n, 24), "y": floats(24)} for n in (1, 0, 5, 64)])


def test_a_part_whose_size_is_data_is_overwritten_where_it_lies(tmp_path):
    w = Weights(4)
    w.add("w", 6, 24)
    model = parsed(
        """
        parts (float[2, n, 6] x, int64[1] k) => (float[1, m, 24] y) {
            none = Constant <value = int64[4] {0, 0, 0, 0}> ()
            last = Constant <value = int64[1] {0}> ()
            pads = Concat <axis = 0> (none, k, last)
            a = Pad (x, pads)
            b = MatMul (a, w)
            first, second = Split <axis = 0, num_outputs = 2> (b)
            sums = ReduceSum <keepdims = 1> (first)
            c = Exp (second)
            d = CumSum (c, last)
            y = Sub (d, sums)
        }""",
        w,
        opset=18,
    )
    feeds = [{"x": floats(2, n, 6), "k": np.array([k])} for n, k in ((3, 2), (1, 0), (9, 40))]
    agrees_in_any_memory(model, tmp_path, feeds)


# Places


def test_buffers_are_placed_in_their_order_of_use_where_that_leaves_fewer_gaps():
    buffers = [Buffer(64 * n, *used) for n, used in ((5, (0, 0)), (5, (2, 2)), (2, (0, 1)), (2, (1, 2)))]
    assert place(buffers) == 64 * 7
    assert all(
        a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
        for a in buffers
        for b in buffers
        if a is not b and a.first <= b.last and b.first <= a.last
    )


# Loops


LOOP = """graph g(%x: float32[4, 8], %w: float32[8, 8], %t: int64[]) {{
    %go = constant bool[] (true)
    %l = loop(%t, %go, %x, %w) body=(%i: int64[], %c: bool[], %h: float32[4, 8], %v: float32[8, 8]) {{
        {}
        return %c, %next
    }} carried=1 : float32[4, 8]
    return %l
}}"""


def test_what_a_loop_carries_is_written_where_it_stays():
    p = Planned(
        LOOP.format("""
        %a = contract(%h, %v) lhs="mk" rhs="kn" out="mn" accumulate=float32
        %next = map(%a, %h) { sub($0, $1) }""")
    )
    assert p.plan.locations[p.carried(0)] == p.plan.locations[p.values["next"]]


def test_what_is_still_read_is_not_written():
    p = Planned(
        LOOP.format("""
        %next = contract(%h, %v) lhs="mk" rhs="kn" out="mn" accumulate=float32""")
    )
    assert p.plan.locations[p.carried(0)] != p.plan.locations[p.values["next"]]


def test_parts_of_what_is_still_read_are_not_written():
    p = Planned(
        LOOP.format("""
        %a = slice(%h) starts=(1, 0) sizes=(3, 8) steps=(1, 1)
        %b = map(%a) { exp($0) }
        %d = map(%v) { neg($0) }
        %e = slice(%d) starts=(0, 0) sizes=(1, 8) steps=(1, 1)
        %f = map(%e) { abs($0) }
        %next = concat(%b, %f) axis=0""")
    )
    assert p.offset_in("f", "next") == 3 * 8 * 4
    assert p.plan.locations[p.carried(0)] != p.plan.locations[p.values["next"]]


def test_values_that_change_places_are_copied(tmp_path):
    model = parsed("""
        fibonacci (float[n] x, float[n] y, int64 trips) => (float[n] a, float[n] b, float[t, n] all) {
            go = Constant <value = bool {1}> ()
            a, b, all = Loop (trips, go, x, y) <body = round (int64 i, bool c, float[n] p, float[n] q)
                => (bool c_out, float[n] q_out, float[n] sum, float[n] scanned) {
                sum = Add (p, q)
                q_out = Identity (q)
                scanned = Neg (sum)
                c_out = Identity (c)
            }>
        }""")
    agrees_in_any_memory(
        model,
        tmp_path,
        [
            {"x": floats(n), "y": floats(n, seed=1), "trips": np.asarray(trips)}
            for n, trips in ((3, 5), (8, 1), (0, 2))
        ],
    )


def test_loops_that_write_in_place_agree_in_any_memory(tmp_path):
    model = parsed("""
        rounds (float[4, 8] x, float[8, 8] w, int64 trips)
            => (float[4, 8] a, float[4, 8] b, float[t, 4, 8] c) {
            go = Constant <value = bool {1}> ()
            a, b, c = Loop (trips, go, x, x) <body = round (int64 i, bool go_on, float[4, 8] p, float[4, 8] q)
                => (bool c_out, float[4, 8] p_out, float[4, 8] q_out, float[4, 8] scanned) {
                product = MatMul (p, w)
                bounded = Tanh (product)
                q_out = Add (q, bounded)
                positive = ReduceMax <keepdims = 0> (bounded)
                zero = Constant <value = float {0.0}> ()
                condition = Greater (positive, zero)
                p_out = If (condition) <
                    then_branch = yes () => (float[4, 8] kept) { kept = Neg (p) },
                    else_branch = no () => (float[4, 8] made) { made = Add (q_out, p) }>
                scanned = Mul (q_out, p)
                c_out = Identity (go_on)
            }>
        }""")
    agrees_in_any_memory(
        model,
        tmp_path,
        [
            {"x": floats(4, 8), "w": floats(8, 8, seed=1), "trips": np.asarray(trips)}
            for trips in (0, 1, 2, 7)
        ],
    )


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_agree_in_any_memory(kind, tmp_path):
    gates, w = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], Weights(5)
    w.add("w", 2, gates * 6, 5)
    w.add("r", 2, gates * 6, 6)
    model = parsed(
        f"""
        layers (float[t, b, 5] x, int32[b] lengths) => (float[t, 2, b, 6] y, float[2, b, 6] last) {{
            y, last = {kind} <hidden_size = 6, direction = "bidirectional"> (x, w, r, , lengths)
        }}""",
        w,
    )
    agrees_in_any_memory(
        model,
        tmp_path,
        [
            {"x": floats(t, b, 5), "lengths": np.arange(b, dtype=np.int32) % t + 1}
            for t, b in ((1, 1), (7, 3))
        ],
    )


# Sizes that the run tells


@pytest.mark.parametrize("n", [1, 7, 64])
def test_sizes_that_the_run_tells_take_the_memory_of_known_ones(n):
    """runtime_c/plan.c places as `place` does: tests/runtime_c/test_plan.py."""
    text = """graph g(%x: float32[n, 48]) {
        %w = constant float32[48, 192] splat 0.5
        %v = constant float32[192, 48] splat 0.5
        %a = contract(%x, %w) lhs="mk" rhs="kn" out="mn" accumulate=float32
        %b = map(%a) { tanh($0) }
        %c = contract(%b, %v) lhs="mk" rhs="kn" out="mn" accumulate=float32
        %d = reduce(%a) kind=sum axes=(1)
        %e = map(%c, %x) { add($0, $1) }
        %f = contract(%e, %w) lhs="mk" rhs="kn" out="mn" accumulate=float32
        %g = reduce(%f) kind=max axes=(1)
        %h = reduce(%e) kind=sum axes=(0)
        return %d, %g, %h
    }"""
    known, told = Planned(text.replace("n, 48", f"{n}, 48")), Planned(text)
    buffers = [Buffer(evaluate(b.nbytes, {"n": n}), b.first, b.last) for b in told.plan.buffers]
    assert known.plan.static
    assert not told.plan.static
    assert place(buffers) == known.plan.arena_bytes > 0


# Arenas of branches


def chosen(n):
    """Two Ifs, of which the second begins when the first is done; all branches have values between."""

    def branch(k, function):
        return f"""(%a{k}: float32[{n}, 4]) {{
            %s{k} = map(%a{k}) {{ {function}($0) }}
            %t{k} = reduce(%s{k}) kind=sum axes=(0)
            %u{k} = map(%s{k}, %t{k}) {{ div($0, $1) }}
            %v{k} = reduce(%u{k}) kind=max axes=(1)
            return %v{k}
        }}"""

    return f"""graph g(%c: bool[], %x: float32[{n}, 4]) {{
        %y = if(%c, %x) then={branch(1, "exp")} otherwise={branch(2, "tanh")} : float32[{n}]
        %m = reduce(%y) kind=max axes=(0)
        %z = if(%c, %x) then={branch(3, "tanh")} otherwise={branch(4, "exp")} : float32[{n}]
        %r = map(%z, %m) {{ add($0, $1) }}
        return %r
    }}"""


def test_the_buffers_of_branches_of_open_sizes_follow_those_of_the_run():
    p = Planned(chosen("n"))
    ranges = [(branch.first, branch.end) for branch in p.plan.branches.values()]
    bounds = [p.plan.first_of_branches, *(end for _, end in ranges)]
    assert len(ranges) == 4 and all(first < end for first, end in ranges)
    assert [first for first, _ in ranges] == bounds[:-1] and bounds[-1] == len(p.plan.buffers)
    assert p.place("m")[1] < p.plan.first_of_branches <= p.place("s1")[1]


def test_ifs_one_after_the_other_have_one_memory():
    assert len({branch.memory.index for branch in Planned(chosen("n")).plan.branches.values()}) == 1


def test_branches_of_known_sizes_are_in_the_arena_of_the_run():
    p = Planned(chosen(1000))
    assert p.plan.static and not p.plan.branches


def test_branches_too_large_for_a_static_arena_have_their_own():
    assert len(Planned(chosen(1 << 32)).plan.branches) == 4


def test_a_run_needs_no_memory_for_a_branch_that_it_does_not_take(tmp_path):
    model = parsed("""
        halves (bool c, float[n] x) => (float[n] y) {
            y = If (c) <
                then_branch = yes () => (float[n] p) {
                    flat = Constant <value = int64[3] {1, 1, -1}> ()
                    down = Constant <value = int64[3] {-1, 1, 1}> ()
                    across = Constant <value = int64[3] {1, -1, 1}> ()
                    all = Constant <value = int64[2] {1, 2}> ()
                    a = Reshape (x, flat) b = Reshape (x, down) d = Reshape (x, across)
                    ab = Add (a, b) abd = Add (ab, d)
                    s = Softmax (abd)
                    p = ReduceSum <keepdims = 0> (s, all) },
                else_branch = no () => (float[n] o) { e = Softmax (x) o = Neg (e) }>
        }""")
    x = np.zeros(1 << 16, np.float32)  # of which the other branch has a cube
    with onnxc.load(onnxc.compile(model, tmp_path / "model.so")) as library:
        (found,) = library.run(None, {"c": np.bool_(False), "x": x})
        np.testing.assert_allclose(found, -(2.0**-16))
        with pytest.raises(onnxc.RunError, match=r"y \(If\): out of memory: 1125\d{12} bytes"):
            library.run(None, {"c": np.bool_(True), "x": x})
        (found,) = library.run(None, {"c": np.bool_(True), "x": x[:20]})
        np.testing.assert_allclose(found, np.full(20, 20.0), rtol=1e-5)


def test_branches_inside_loops_and_branches_agree_in_any_memory(tmp_path):
    model = parsed(
        """
        nested (float[n, m] x, bool inner, int64 trips) => (float[n, m] y, float[t, n] kept) {
            go = Constant <value = bool {1}> ()
            one = Constant <value = int64 {1}> ()
            two = Constant <value = int64 {2}> ()
            y, kept = Loop (trips, go, x) <body = round (int64 i, bool c, float[n, m] v)
                => (bool c_out, float[n, m] w, float[n] scanned) {
                turn = Mod (i, two)
                odd = Equal (turn, one)
                w = If (odd) <
                    then_branch = yes () => (float[n, m] p) {
                        sums = CumSum (v, one)
                        q = If (inner) <
                            then_branch = deep () => (float[n, m] d) {
                                s = Softmax (sums)
                                d = CumSum (s, one) },
                            else_branch = flat () => (float[n, m] f) { f = Neg (sums) }>
                        p = Add (q, sums) },
                    else_branch = no () => (float[n, m] o) { h = CumSum <reverse = 1> (v, one) o = Tanh (h) }>
                scanned = ReduceMax <keepdims = 0, axes = [1]> (w)
                c_out = Identity (c)
            }>
        }""",
        opset=17,
    )
    feeds = [
        {"x": floats(n, m), "inner": np.asarray(inner), "trips": np.asarray(trips)}
        for n, m, inner, trips in ((2, 3, True, 5), (40, 9, False, 3), (3, 70, True, 2), (50, 60, True, 1))
    ]
    agrees_in_any_memory(model, tmp_path, feeds)


# The check


def test_a_value_that_is_gone_is_noticed():
    p = Planned("""graph g(%x: float32[8]) {
        %a = map(%x) { exp($0) }
        %b = reduce(%a) kind=sum axes=(0)
        %c = map(%a, %b) { div($0, $1) }
        return %c
    }""")
    p.plan.locations[p.values["b"]] = p.plan.locations[p.values["a"]]
    with pytest.raises(InvalidGraph, match=r"Reduce writes %b: .* over %a: "):
        check_plan(p.graph, p.codes, p.plan)


def in_parts():
    return Planned(
        convolved(
            16,
            f"""
        %v2 = constant float32[8, 16, 1, 1] splat 0.5
        %b = conv(%a, %v2) {POINTWISE}
        %c = concat(%a, %b) axis=1
        %d = map(%c) {{ exp($0) }}
        return %d""",
            3,
        )
    )


def test_images_between_others_are_noticed_where_they_are_overwritten():
    p = in_parts()
    a, b = (p.plan.locations[p.values[name]] for name in "ab")
    p.plan.locations[p.values["b"]] = replace(b, offset=a.offset + PLANE)
    with pytest.raises(InvalidGraph, match=r"Conv writes %b: .* over %a: "):
        check_plan(p.graph, p.codes, p.plan)


def test_images_that_are_parts_of_nothing_are_noticed():
    p = in_parts()
    lonely = next(n for n in p.graph.nodes if n.outputs[0].name == "a")
    graph = replace(p.graph, nodes=(lonely,), outputs=(lonely.outputs[0],))
    assert lonely.outputs[0].tensor.layout.pitch == 3
    with pytest.raises(InvalidGraph, match=r"the images of %a: .* are parts of nothing"):
        plan_memory(graph, {lonely: p.codes[lonely]})


@pytest.mark.parametrize("images", [1, 2])
def test_a_join_of_images_lies_inside_a_join_of_channels(images):
    """Its images follow each other, between the channels of the other operand."""
    x, whole = f"float32[{images}, 16, 8, 8]", f"float32[{2 * images}, 16, 8, 8]"
    window = "strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)"
    Planned(f"""graph g(%x: {x}, %y: {x}, %z: {whole}) {{
        %v = constant float32[16, 16, 3, 3] splat 0.25
        %a = conv(%x, %v) {window}
        %b = conv(%y, %v) {window}
        %c = conv(%z, %v) {window}
        %d = concat(%a, %b) axis=0
        %e = concat(%d, %c) axis=1
        return %e
    }}""")


def test_memory_that_is_given_away_too_early_is_noticed():
    p = Planned("""graph g(%x: float32[8]) {
        %a = map(%x) { exp($0) }
        %b = reduce(%a) kind=sum axes=(0)
        %c = reduce(%a) kind=prod axes=(0)
        return %b, %c
    }""")
    p.plan.buffers[p.place("a")[1]].last = 1
    with pytest.raises(InvalidGraph, match="Reduce at 2 uses buffer 0, which is in use from 0 to 1"):
        check_plan(p.graph, p.codes, p.plan)
