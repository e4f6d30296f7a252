"""require_sizes: what the run must find of sizes is asked whatever passes make of who needs it."""

import numpy as np
import pytest
from onnx import parser
from support.pass_text import becomes, clean, operands, stays

import onnxc
from onnxc.ir import interpret
from onnxc.ir.text_parser import parse
from onnxc.passes.pipeline import optimise
from onnxc.passes.require_sizes import require_sizes
from onnxc.target import TARGETS

TARGET = TARGETS["x86-64-v3"]


def test_what_nodes_need_is_asked_first_and_once():
    before = """graph g(%x: float32[2, n], %y: float32[2, m], %s: float32[n]) {
        %0 = concat(%x, %y) axis=0
        %1 = concat(%x, %y) axis=0
        %2 = map(%0, %1) { add($0, $1) }
        return %2
    }"""
    after = """graph g(%x: float32[2, n], %y: float32[2, m], %s: float32[n]) {
        require() kind=equal sizes=(n, m) code=dims_mismatch
        %0 = concat(%x, %y) axis=0
        %1 = concat(%x, %y) axis=0
        %2 = map(%0, %1) { add($0, $1) }
        return %2
    }"""
    becomes(require_sizes, before, after)
    stays(require_sizes, after)


def test_sizes_that_are_known_to_fit_are_not_asked():
    stays(
        require_sizes,
        """graph g(%x: float32[n, 4], %y: float32[4]) {
        %0 = map(%x, %y) { add($0, $1) }
        %1 = concat(%0, %x) axis=0
        return %1
    }""",
    )


def test_what_data_tells_is_asked_before_the_node_that_needs_it():
    becomes(
        require_sizes,
        """graph g(%x: float32[2, n], %s: int64[1]) {
        %0 = map(%x) { neg($0) }
        bind(%s) symbols=(k)
        %1 = map(%0) { exp($0) }
        %2 = slice(%1) starts=(0, 0) sizes=(2, k) steps=(1, 1)
        return %2
    }""",
        """graph g(%x: float32[2, n], %s: int64[1]) {
        %0 = map(%x) { neg($0) }
        bind(%s) symbols=(k)
        %1 = map(%0) { exp($0) }
        require() kind=least sizes=(n, k) code=dims_mismatch
        %2 = slice(%1) starts=(0, 0) sizes=(2, k) steps=(1, 1)
        return %2
    }""",
    )


def test_what_a_branch_needs_is_asked_where_it_is_taken():
    becomes(
        require_sizes,
        """graph g(%c: bool[], %x: float32[n], %y: float32[m]) {
        %0 = if(%c, %x, %y) then=(%a: float32[n], %b: float32[m]) {
            %1 = map(%a) { neg($0) }
            return %1
        } otherwise=(%a: float32[n], %b: float32[m]) {
            %2 = map(%a) { exp($0) }
            %3 = slice(%2) starts=(0) sizes=(3) steps=(1)
            return %3
        } : float32[k]
        return %0
    }""",
        """graph g(%c: bool[], %x: float32[n], %y: float32[m]) {
        %0 = if(%c, %x, %y) then=(%a: float32[n], %b: float32[m]) {
            %1 = map(%a) { neg($0) }
            return %1
        } otherwise=(%a: float32[n], %b: float32[m]) {
            %2 = map(%a) { exp($0) }
            require() kind=least sizes=(n, 3) code=dims_mismatch
            %3 = slice(%2) starts=(0) sizes=(3) steps=(1)
            return %3
        } : float32[k]
        return %0
    }""",
    )


def test_of_a_size_that_nobody_tells_any_more_nothing_is_asked():
    becomes(
        clean(require_sizes),
        """graph g(%x: float32[2, n], %s: int64[1]) {
        bind(%s) symbols=(k)
        %0 = slice(%x) starts=(0, 0) sizes=(2, k) steps=(1, 1)
        %1 = map(%0) { neg($0) }
        return %x
    }""",
        """graph g(%x: float32[2, n], %s: int64[1]) {
        return %x
    }""",
    )


#: Graphs whose results are made of parts, and what the run is asked of m and n: that they are equal.
PARTS = {
    "a part of what is joined": """
        %0 = concat(%x, %y) axis=0
        %1 = slice(%0) starts=(4, 0) sizes=(4, n) steps=(1, 1)
        return %1""",
    "of what is joined twice": """
        %0 = concat(%x, %y) axis=0
        %1 = concat(%y, %x) axis=0
        %2 = concat(%0, %1) axis=0
        %3 = slice(%2) starts=(4, 0) sizes=(4, n) steps=(1, 1)
        return %3""",
    "a part of a part": """
        %0 = concat(%x, %y) axis=0
        %1 = slice(%0) starts=(4, 0) sizes=(4, n) steps=(1, 1)
        %2 = slice(%1) starts=(0, 1) sizes=(4, n - 1) steps=(1, 1)
        return %2""",
    "rows of a product": """
        %0 = contract(%x, %y) lhs=mk rhs=nk out=mn accumulate=float32
        %1 = slice(%0) starts=(0, 0) sizes=(1, 4) steps=(1, 1)
        return %1""",
    "rows of what is repeated": """
        %0 = broadcast(%x) shape=(4, broadcast(n, m))
        %1 = map(%0, %y) { add($0, $1) }
        %2 = slice(%1) starts=(0, 0) sizes=(1, 2) steps=(1, 1)
        return %2""",
    "of one shape after the other": """
        %0 = reshape(%x) shape=(m, 4)
        %1 = reshape(%0) shape=(4*m)
        return %1""",
}


def refused(graph, m, n):
    """Whether a run of these sizes fails."""
    sizes = {"m": m, "n": n}
    try:
        interpret.run_graph(graph, operands(graph, **sizes), sizes)
    except interpret.InterpretError:
        return True
    return False


@pytest.mark.parametrize("name", PARTS)
def test_a_run_fails_whatever_passes_make_of_what_does_not_fit(name):
    text = f"graph g(%x: float32[4, n], %y: float32[4, m]) {{{PARTS[name]} }}"
    found = optimise(parse(text), TARGET)
    assert not refused(found, 5, 5)
    assert refused(parse(text), 3, 6)
    assert refused(found, 3, 6)
    assert refused(found, 6, 3)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_part_of_a_join_that_does_not_fit_is_an_error_of_the_run(tmp_path, axis):
    shape = ["2", "2"][:axis] + ["L"]
    model = parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 18]>
        g (float[{", ".join(shape)}, 4] x) => (float[a, b{", c" * (len(shape) - 1)}] q) {{
            first = Constant <value_ints = [0]> ()
            end = Constant <value_ints = [6]> ()
            axis = Constant <value_ints = [{axis}]> ()
            part = Slice (x, first, end, axis)
            joined = Concat <axis = {axis + 1}> (x, part)
            p, q = Split <axis = {axis + 1}, num_outputs = 2> (joined)
        }}""")
    loaded = onnxc.load(onnxc.compile(model, tmp_path / "a.so", optimize="fast"))
    fits, longer = (np.ones((*(2,) * axis, length, 4), np.float32) for length in (6, 10))
    np.testing.assert_array_equal(loaded.run(None, {"x": fits})[0], fits)
    with pytest.raises(
        onnxc.RunError, match=r"joined \(Concat\): dimensions do not match: expected 6, got 10"
    ):
        loaded.run(None, {"x": longer})


@pytest.mark.parametrize(
    "indices, told",
    [
        ((0, 2, 1, 3), {0: "g0 .* index 0", 2: "g1 .* index 2", 3: "g3 .* index 3"}),
        ((-3,), {2: "g0 .* index -3"}),
    ],
)
def test_an_index_outside_of_an_open_axis_is_told_by_the_first_that_names_it(tmp_path, indices, told):
    """The rows that are read are computed before any of them is."""
    steps = "".join(
        f"g{k} = Gather <axis = 1> (z, i{k}) s{k + 1} = Add (s{k}, g{k})" for k in range(len(indices))
    )
    known = ", ".join(f"int64 i{k} = {{{index}}}" for k, index in enumerate(indices))
    model = parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 18]> g (float[b, n, 2] x) => (float[b, 2] s{len(indices)})
        <{known}, float[2, 2] w = {{1, 0, 0, 1}}, float s0 = {{0}}> {{ z = MatMul (x, w) {steps} }}""")
    loaded = onnxc.load(onnxc.compile(model, tmp_path / "a.so", optimize="fast"))
    x = np.arange(8, dtype=np.float32).reshape(1, 4, 2)
    np.testing.assert_array_equal(loaded.run(None, {"x": x})[0], x[:, indices].sum(1))
    for length, sentence in told.items():
        with pytest.raises(onnxc.RunError, match=f"{sentence} is out of range"):
            loaded.run(None, {"x": x[:, :length]})
