"""fold_constants: what constants alone decide is computed, within a budget; what is large only when it is
written."""

import numpy as np
import pytest
from support.pass_text import agrees, becomes, clean, ops, stays

from onnxc.ir import interpret
from onnxc.ir.text_parser import parse
from onnxc.passes import fold_constants as module
from onnxc.passes.fold_constants import fold_constants


def test_constants_are_computed():
    becomes(
        fold_constants,
        """graph g(%x: float32[2]) {
        %a = constant float32[2] (1.0, 2.0)
        %b = constant float32[2] (10.0, 20.0)
        %0 = map(%a, %b) { add($0, $1) }
        %1 = map(%x, %0) { mul($0, $1) }
        return %1
    }""",
        """graph g(%x: float32[2]) {
        %0 = constant float32[2] (11.0, 22.0)
        %1 = map(%x, %0) { mul($0, $1) }
        return %1
    }""",
    )


def test_what_computed_constants_lead_to_is_computed_too():
    becomes(
        fold_constants,
        """graph g() {
        %a = constant int64[2, 2] (1, 2, 3, 4)
        %i = constant int64[1] (-1)
        %0 = gather(%a, %i) form=axis axis=0
        %1 = reduce(%0) kind=sum axes=(1)
        return %1
    }""",
        """graph g() {
        %1 = constant int64[1] (7)
        return %1
    }""",
    )


def test_a_part_that_begins_where_the_run_says_is_not_computed():
    stays(
        fold_constants,
        """graph g(%x: float32[n]) {
        %a = constant float32[4] (1.0, 2.0, 3.0, 4.0)
        %0 = slice(%a) starts=(n) sizes=(2) steps=(1)
        return %0
    }""",
    )


def test_a_node_with_several_results_is_computed():
    becomes(
        fold_constants,
        """graph g() {
        %a = constant float32[3] (2.0, nan, 1.0)
        %0, %1 = sort(%a) axis=0
        return %0, %1
    }""",
        """graph g() {
        %0 = constant float32[3] (1.0, 2.0, nan)
        %1 = constant int64[3] (2, 0, 1)
        return %0, %1
    }""",
    )


def test_repeated_values_stay_repeated_values():
    becomes(
        fold_constants,
        """graph g(%x: float32[1000, 1000]) {
        %a = constant float32[1000, 1000] splat 2.0
        %0 = map(%a) { mul($0, $0) }
        %1 = broadcast(%0) shape=(2, 1000, 1000)
        %2 = reshape(%1) shape=(1000, 2, 1000)
        %3 = transpose(%2) perm=(1, 0, 2)
        %4 = map(%x, %3) { mul($0, $1) }
        return %4
    }""",
        """graph g(%x: float32[1000, 1000]) {
        %3 = constant float32[2, 1000, 1000] splat 4.0
        %4 = map(%x, %3) { mul($0, $1) }
        return %4
    }""",
    )


def test_repeated_values_are_computed_where_the_result_does_not_repeat_one():
    becomes(
        fold_constants,
        """graph g() {
        %a = constant int64[2] splat 3
        %b = constant int64[1] splat 5
        %0 = concat(%a, %b) axis=0
        %1 = map(%a) { add(index(0), $0) }
        %2 = reduce(%a) kind=sum axes=(0) keepdims=true
        return %0, %1, %2
    }""",
        """graph g() {
        %0 = constant int64[3] (3, 3, 5)
        %1 = constant int64[2] (3, 4)
        %2 = constant int64[1] (6)
        return %0, %1, %2
    }""",
    )


def folded(text, constants):
    """The constant that the graph's only output has become."""
    graph = clean(fold_constants)(parse(text, constants))
    assert not graph.nodes
    return graph.outputs[0].constant


def test_widened_data_is_made_only_when_it_is_written_and_tells_what_is_stored():
    half = np.arange(4096 * 4, dtype=np.float16).reshape(4096, 4)
    found = folded(
        """graph g() {
        %w = constant float16[4096, 4] #data
        %0 = map(%w) { cast($0, float32) }
        return %0
    }""",
        {"w": half},
    )
    assert not found.materialised
    assert found.derivation.operands[0].array is half
    np.testing.assert_array_equal(found.array, half.astype(np.float32))


def test_quantised_data_is_known_as_numbers():
    weights = np.arange(-64, 64, dtype=np.int8).repeat(64).reshape(128, 64)
    scales = np.linspace(0.1, 0.2, 64, dtype=np.float32)
    found = folded(
        """graph g() {
        %w = constant int8[128, 64] #data
        %s = constant float32[64] #scales
        %0 = map(%w, %s) { mul(cast($0, float32), $1) }
        %1 = transpose(%0) perm=(1, 0)
        return %1
    }""",
        {"w": weights, "s": scales},
    )
    assert (found.dtype, found.shape, found.materialised) == ("float32", (64, 128), False)
    assert found.derivation.operands[0].derivation.operands[0].array is weights
    np.testing.assert_array_equal(found.array, (weights * scales).T)


def test_a_derived_constant_is_computed_in_slices(monkeypatch):
    monkeypatch.setattr(module, "SLICE", 100)
    rows, columns = np.arange(1000, dtype=np.int32).reshape(1000, 1), np.arange(7, dtype=np.int32)
    whole = np.arange(7000, dtype=np.int32).reshape(1000, 7)
    found = folded(
        """graph g() {
        %a = constant int32[1000, 1] #rows
        %b = constant int32[7] #columns
        %c = constant int32[1000, 7] #whole
        %0 = map(%a, %b, %c) { add(mul($0, $1), $2) }
        return %0
    }""",
        {"a": rows, "b": columns, "c": whole},
    )
    np.testing.assert_array_equal(found.array, rows * columns + whole)


def test_what_is_derived_again_and_again_stays(monkeypatch):
    monkeypatch.setattr(module, "DERIVED_LIMIT", 1)
    monkeypatch.setattr(module, "TOTAL_LIMIT", 0)
    lines = [f"%{k} = map(%w) {{ add($0, {k}.0) }}" for k in range(3)]
    text = (
        "graph g() {\n%w = constant float32[2048] #data\n"
        + "\n".join(lines)
        + "\nreturn "
        + ", ".join(f"%{k}" for k in range(3))
        + "\n}"
    )
    graph = clean(fold_constants)(parse(text, {"w": np.ones(2048, np.float32)}))
    assert len(graph.nodes) == 2


def test_little_data_may_be_widened():
    becomes(
        fold_constants,
        """graph g() {
        %w = constant float16[3] (1.0, 2.0, inf)
        %0 = map(%w) { cast($0, float32) }
        return %0
    }""",
        """graph g() {
        %0 = constant float32[3] (1.0, 2.0, inf)
        return %0
    }""",
    )


def test_waves_are_stored_where_their_size_is_known():
    waves = """graph g(%x: float32[8, n]) {
        %0 = map() { cos(cast(mul(index(0), index(1)), float32)) } shape=(SIZE, 8)
        %1 = contract(%0, %x) lhs=mk rhs=kn out=mn accumulate=float32
        return %1
    }"""
    assert fold_constants(parse(waves.replace("SIZE", "4"))).nodes[0].inputs[0].constant is not None
    stays(fold_constants, waves.replace("SIZE", "n"))


def test_data_is_not_repeated():
    stays(
        fold_constants,
        """graph g(%x: float32[64, 64]) {
        %w = constant float32[64] #data
        %0 = broadcast(%w) shape=(64, 64)
        return %0
    }""",
        {"w": np.ones(64, np.float32)},
    )


def test_what_repeats_data_is_computed_where_it_is_not_stored():
    rows = np.arange(64, dtype=np.float32)
    found = agrees(
        fold_constants,
        """graph g(%x: float32[64]) {
        %w = constant float32[64] #data
        %0 = broadcast(%w) shape=(64, 64)
        %1 = reduce(%0) kind=sum axes=(1)
        %2 = map(%x, %1) { add($0, $1) }
        return %2
    }""",
        {"w": rows},
    )
    assert ops(found) == ["Map"]


SINC = """graph g(%x: float32[64]) {
    %w = constant float32[64] #data
    %v = constant float32[COUNT, 1] #phases
    %0 = map(%w, %v) { mul($0, $1) }
    %1 = map(%0) { FUNCTION($0) }
    %2 = map(%1, %w) { mul($0, $1) }
    %3 = map(%x, %2) { add($0, $1) }
    return %3
}"""


@pytest.mark.parametrize(
    "function, count, found",
    [("sin", 100, ["Map"]), ("abs", 100, ["Map"] * 4), ("sin", 100_000, ["Map"] * 4)],
)
def test_what_repeats_data_is_stored_where_reading_it_is_faster(function, count, found):
    text = SINC.replace("FUNCTION", function).replace("COUNT", str(count))
    weights = {"data": np.arange(64, dtype=np.float32), "phases": np.ones((count, 1), np.float32)}
    assert ops(fold_constants(parse(text, weights))) == found


BIAS = """graph g(%x: float32[8, 256, 256], %y: float32[ROWS]) {
    %t = constant float32[100, 8] #data
    %p = constant int64[65536] #data
    %w = constant float32[ROWS] #data
    %0 = gather(%t, %p) form=axis
    %1 = transpose(%0) perm=(1, 0)
    %2 = reshape(%1) shape=(8, 256, 256)
    %3 = map(%x, %2) { add($0, $1) }
    %4 = map(%y, %w) { add($0, $1) }
    return %3, %4
}"""


@pytest.mark.parametrize(
    "rows, found", [(1 << 22, ["Map"] * 2), (1 << 20, ["Gather", "Transpose", "Reshape"])]
)
def test_rows_of_a_table_are_gathered_where_that_is_little_beside_the_model(rows, found):
    """An eighth of its constants: 2 MB of 16 MB are, of 4 MB not."""
    rng = np.random.default_rng(1)
    constants = {"t": rng.standard_normal((100, 8)).astype(np.float32)}
    constants |= {"p": rng.integers(0, 100, 65536), "w": np.ones(rows, np.float32)}
    folded = fold_constants(parse(BIAS.replace("ROWS", str(rows)), constants))
    assert ops(folded)[: len(found)] == found


def test_scattered_elements_are_computed():
    places = np.stack([np.arange(40000), np.zeros(40000, np.int64)], 1)
    found = clean(fold_constants)(
        parse(
            """graph g(%x: float32[40000, 2]) {
            %w = constant float32[40000, 2] #data
            %p = constant int64[40000, 2] #data
            %u = constant float32[40000] #data
            %0 = scatter(%w, %p, %u) form=nd
            %1 = map(%x, %0) { add($0, $1) }
            return %1
        }""",
            {"w": np.ones((40000, 2), np.float32), "p": places, "u": np.arange(40000, dtype=np.float32)},
        )
    )
    assert ops(found) == ["Map"]


def test_moved_data_is_made_only_when_it_is_written():
    graph = parse(
        """graph g() {
        %w = constant float32[64, 64] #data
        %0 = transpose(%w) perm=(1, 0)
        return %0
    }""",
        {"w": np.arange(4096, dtype=np.float32).reshape(64, 64)},
    )
    found = fold_constants(graph).outputs[0]
    assert not found.constant.materialised
    np.testing.assert_array_equal(found.constant.array, np.arange(4096).reshape(64, 64).T)


def test_a_result_over_the_limit_stays(monkeypatch):
    monkeypatch.setattr(module, "VALUE_LIMIT", 7)
    stays(
        fold_constants,
        """graph g() {
        %a = constant float32[2] (1.0, 2.0)
        %0 = map(%a) { exp($0) }
        return %0
    }""",
    )


def test_results_stay_when_the_budget_is_spent(monkeypatch):
    monkeypatch.setattr(module, "TOTAL_LIMIT", 8)
    becomes(
        fold_constants,
        """graph g() {
        %a = constant float32[2] (1.0, 2.0)
        %0 = map(%a) { neg($0) }
        %1 = map(%a) { abs($0) }
        return %0, %1
    }""",
        """graph g() {
        %0 = constant float32[2] (-1.0, -2.0)
        %a = constant float32[2] (1.0, 2.0)
        %1 = map(%a) { abs($0) }
        return %0, %1
    }""",
    )


@pytest.mark.parametrize(("dtype", "one", "stay"), [("float32", "1.0", 0), ("int32", "1", 1)])
def test_products_of_floats_cost_a_part_of_their_multiply_adds(monkeypatch, dtype, one, stay):
    monkeypatch.setattr(interpret, "EFFORT_LIMIT", 64**3 // 8)
    graph = fold_constants(
        parse(f"""graph g(%x: {dtype}[64, 64]) {{
        %a = constant {dtype}[64, 64] splat {one}
        %0 = contract(%a, %a) lhs=mk rhs=kn out=mn accumulate={dtype}
        %1 = contract(%0, %a) lhs=mk rhs=kn out=mn accumulate={dtype}
        %2 = map(%x, %1) {{ add($0, $1) }}
        return %2
    }}""")
    )
    assert [type(node.op).__name__ for node in graph.nodes] == ["Contract"] * 2 * stay + ["Map"]


def test_a_result_of_symbolic_size_stays():
    stays(
        fold_constants,
        """graph g(%x: float32[n]) {
        %a = constant float32[1] (1.0)
        %0 = broadcast(%a) shape=(n)
        return %0
    }""",
    )


def test_what_depends_on_a_size_stays():
    stays(
        fold_constants,
        """graph g(%x: float32[n]) {
        %a = constant int64[1] (1)
        %0 = map(%a) { add($0, size(n)) }
        return %0
    }""",
    )


def test_random_numbers_are_left_to_the_run():
    stays(
        fold_constants,
        """graph g() {
        %0 = random() kind=normal dtype=float32 shape=(2) a=0.0 b=1.0
        return %0
    }""",
    )


def test_what_fails_is_left_to_the_run():
    stays(
        fold_constants,
        """graph g() {
        %a = constant int64[2] (1, 2)
        %b = constant int64[2] (1, 0)
        %i = constant int64[1] (5)
        %0 = map(%a, %b) { div($0, check(ne($1, 0), $1, division_by_zero)) }
        %1 = gather(%a, %i) form=axis axis=0
        return %0, %1
    }""",
    )


def test_nothing_of_size_zero_is_computed_wrongly():
    becomes(
        fold_constants,
        """graph g() {
        %a = constant float32[0, 3] ()
        %0 = reduce(%a) kind=sum axes=(0)
        %1 = reduce(%a) kind=max axes=(0)
        return %0, %1
    }""",
        """graph g() {
        %0 = constant float32[3] (0.0, 0.0, 0.0)
        %1 = constant float32[3] (-inf, -inf, -inf)
        return %0, %1
    }""",
    )


def test_constants_of_branches_are_computed():
    becomes(
        fold_constants,
        """graph g(%c: bool[], %x: float32[2]) {
        %a = constant float32[2] (1.0, 2.0)
        %0 = if(%c, %x) then=(%y: float32[2]) {
            %1 = map(%a) { neg($0) }
            %2 = map(%y, %1) { add($0, $1) }
            return %2
        } otherwise=(%y: float32[2]) { return %y } : float32[2]
        return %0
    }""",
        """graph g(%c: bool[], %x: float32[2]) {
        %0 = if(%c, %x) then=(%y: float32[2]) {
            %1 = constant float32[2] (-1.0, -2.0)
            %2 = map(%y, %1) { add($0, $1) }
            return %2
        } otherwise=(%y: float32[2]) { return %y } : float32[2]
        return %0
    }""",
    )


def test_a_result_that_is_an_output_is_computed():
    found = agrees(
        clean(fold_constants),
        """graph g() {
        %a = constant float16[2] (1.0, 2.0)
        %0 = map(%a) { exp($0) }
        return %0, %a
    }""",
    )
    assert not found.nodes


def test_an_empty_tensor_whose_sizes_only_the_run_tells_is_not_computed():
    stays(
        fold_constants,
        """graph g() where n any {
        %a = constant float32[0, 7] ()
        %k = constant int64[1] (3)
        bind(%k) symbols=(n)
        %0 = reshape(%a) shape=(n, 0, 7)
        return %0
    }""",
    )


def test_a_size_that_turns_out_constant_is_bound_by_the_run():
    stays(
        fold_constants,
        """graph g(%x: float32[n]) where n >= 0, k >= 0 {
        %k = constant int64[1] (3)
        bind(%k) symbols=(k)
        %0 = broadcast(%x) shape=(k, n)
        return %0
    }""",
    )
