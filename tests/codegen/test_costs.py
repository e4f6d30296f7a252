"""Costs: what an estimate says, and that steps are cut and weighed by what they take."""

from dataclasses import replace

import numpy as np
import pytest

from onnxc.codegen import costs
from onnxc.codegen.costs import Estimate
from onnxc.codegen.kernel import ALL, Choice, chosen
from onnxc.codegen.kernels import gemm
from onnxc.codegen.lowering.lower import lower
from onnxc.codegen.lowering.select_kernels import select_kernels
from onnxc.codegen.tiles import gemm_tiling, microkernel
from onnxc.codegen.tiles.channel_panels import panel_tiling, panel_tilings
from onnxc.ir import dims, expr
from onnxc.ir.ops import Conv
from onnxc.ir.text_parser import parse
from onnxc.target import TARGETS

TARGET = TARGETS["x86-64-v3"]
CHAIN = "graph g(%x: float32[n, 64]) { %0 = map(%x) { exp($0) } return %0 }"


def test_memory_is_fetched_while_instructions_run():
    both = Estimate(compute=100, memory=80, overhead=5)
    assert 105 < both.total < 185
    assert Estimate(compute=100).total == Estimate(memory=100).total == 100


def test_a_step_takes_as_long_as_its_products_or_as_all_its_instructions():
    target = replace(
        TARGET, facts=replace(TARGET.facts, multiply_adds=2.0, instructions=4.0, loads=8.0, latency=0.1)
    )
    assert costs.step_time(target, 12, 1) == 6.0
    assert costs.step_time(target, 12, 1, others=8) == 6.0
    assert costs.step_time(target, 12, 1, others=20) == 8.0


def test_what_an_estimate_counts_twice_is_taken_off():
    assert Estimate(3, 2, 1, 1) - Estimate(1, 2, 0, 1) == Estimate(2, 0, 1, 0)


def test_calls_take_cycles_and_divisions_the_time_that_divisions_take():
    quotient = expr.input_(0, "float32") / expr.input_(1, "float32")
    fast, slow = (
        replace(TARGET, facts=replace(TARGET.facts, cycle=c, divisions=d)) for c, d in ((0.2, 2), (0.4, 1))
    )
    assert costs.step(slow).overhead == 2 * costs.step(fast).overhead
    assert costs.weight(slow, quotient) == 2 * costs.weight(fast, quotient)


def test_bytes_that_fit_no_cache_take_longer():
    facts = TARGET.facts
    sizes = (facts.level2_bytes, facts.level3_bytes, 4 * facts.level3_bytes)
    times = [costs.move(TARGET, 1 << 20, among).memory for among in sizes]
    assert times == sorted(times) and len(set(times)) == 3


def test_a_steps_work_follows_the_sizes_of_the_run():
    work = costs.work(Estimate(compute=640.0), dims.symbol("n", typical=64))
    assert [dims.evaluate(work, {"n": n}) for n in (0, 64, 6400)] == [0, 640, 64_000]


@pytest.mark.parametrize(("channels", "groups"), [(16, 1), (3, 1), (16, 16)])
def test_the_work_of_a_convolution_follows_both_sizes_of_its_image(channels, groups):
    text = f"""graph g(%x: float32[1, {channels}, h, w]) {{
        %k = constant float32[16, {channels // groups}, 3, 3] #k
        %0 = conv(%x, %k) strides=(2, 2) pads=(1, 1, 1, 1) dilations=(1, 1) groups={groups}
        return %0 }}"""
    lowered = lower(parse(text, {"k": np.ones((16, channels // groups, 3, 3), np.float32)}), TARGET)
    (code,) = (code for node, code in lowered.codes.items() if isinstance(node.op, Conv))
    small, wide, high = (
        sum(dims.evaluate(step.work, {"h": h, "w": w}) for step in code.steps)
        for h, w in ((200, 200), (200, 2000), (2000, 200))
    )
    assert wide == pytest.approx(10 * small, rel=0.2) and high == pytest.approx(10 * small, rel=0.2)


@pytest.mark.parametrize(
    ("nanoseconds", "parts"), [(10, 1), (costs.PART_NS * 3, 3), (1e12, costs.MOST_PARTS)]
)
def test_parts_follow_from_the_time(nanoseconds, parts):
    assert costs.parts_for(nanoseconds) == parts >= 1
    assert costs.MOST_PARTS >= 64


def test_a_strip_of_a_product_has_rows_enough_for_what_it_does_with_every_panel():
    row, nbytes = Estimate(compute=100.0), 4096.0
    near, far, decoded = (
        costs.strip_rows(row, panels, nbytes)
        for panels in (Estimate(memory=1e3), Estimate(memory=1e6), Estimate(compute=1e6, memory=1e3))
    )
    assert near == costs.LEAST_ROWS < far < decoded


def test_dumps_show_what_a_node_is_estimated_to_take():
    (node,) = select_kernels(parse(CHAIN), TARGET).nodes
    cost = chosen(node).cost
    assert f"ns={cost.total:.0f}, compute={cost.compute:.0f}, memory={cost.memory:.0f}" in str(node.choice)


def test_dumps_call_as_many_as_there_are_all():
    tiling = gemm_tiling.Tiling(14, 2, 16, "rows", ALL, 3, "constant")
    assert "order=rows, block=all, group=3" in str(Choice(Estimate(), tiling, kernel=gemm))


def test_what_is_read_in_turns_is_waited_for_where_it_leaves_the_first_level_cache():
    size = TARGET.facts.level1_bytes
    assert costs.again(TARGET, size, size // 2).memory == 0
    assert costs.again(TARGET, size, 2 * size).memory > costs.again(TARGET, size, size).memory > 0


def test_a_cache_that_others_share_keeps_what_was_used_a_short_while_ago():
    size = 2 * TARGET.facts.level2_bytes
    rates = [costs.rate(TARGET, size, ns) for ns in (0, 1e5, 1e6, 1e7, 1e8)]
    assert rates == sorted(rates, reverse=True) and rates[0] == TARGET.facts.level3_rate
    assert rates[-1] == rates[-2] == TARGET.facts.memory_rate
    near = TARGET.facts.level1_bytes // 2
    assert costs.rate(TARGET, near, 1e8) == costs.rate(TARGET, near)


def test_a_number_for_each_row_is_loaded_like_the_half_of_a_vector():
    halves = replace(TARGET, facts=replace(TARGET.facts, narrow=0.5, loads=1.0, multiply_adds=100.0))
    whole = replace(halves, facts=replace(halves.facts, narrow=1.0))
    assert microkernel.step_time(whole, 10, 2) == 12 and microkernel.step_time(halves, 10, 2) == 7


def test_lines_that_lie_apart_are_waited_for_beyond_the_second_level_cache():
    size = TARGET.facts.level2_bytes
    assert costs.scattered(TARGET, size, size // 2).total == 0
    assert costs.scattered(TARGET, size, 2 * size).total == costs.cycles(TARGET, costs.SCATTERED * size / 64)


def test_constants_of_a_long_run_come_from_memory():
    short = replace(TARGET, run_bytes=2 * TARGET.facts.level2_bytes)
    long = replace(short, run_ns=1e8)
    assert costs.stored(short, 1 << 20).total < costs.stored(long, 1 << 20).total


def test_code_that_was_not_used_since_the_last_run_is_away_where_a_run_touches_much():
    (node,) = select_kernels(parse(CHAIN), TARGET).nodes
    small, large = (replace(TARGET, run_bytes=times * TARGET.facts.level2_bytes) for times in (0, 2))
    delays = [costs.away(t, node, code, {}).overhead for t in (small, large) for code in (0, costs.AHEAD)]
    apart = 1 / costs.rate(TARGET, large.run_bytes) - 1 / costs.rate(TARGET, costs.AHEAD)
    assert delays[0] == delays[1]
    assert delays[3] == pytest.approx(delays[2] + costs.CODE * costs.AHEAD * apart)


def test_long_code_takes_longer_to_come_from_memory():
    far = replace(TARGET, run_bytes=2 * TARGET.facts.level3_bytes)
    assert costs.fetching(far, 0) == 0
    assert costs.fetching(far, 500) < costs.fetching(far, 2000) < costs.fetching(far, 4096)
    assert costs.fetching(far, 4096) == costs.fetching(far, 100_000)


def test_what_a_byte_takes_is_no_less_for_being_little():
    work = costs.work(Estimate(overhead=200.0), dims.symbol("n", typical=1 << 20))
    assert dims.evaluate(work, {"n": 1 << 20}) == pytest.approx(200, rel=0.01)
    assert costs.work(Estimate(overhead=50.0, fixed=50.0), dims.symbol("n")) == 50


def test_the_work_of_the_least_count_is_what_was_estimated_of_it():
    n = dims.symbol("n", typical=128)
    work = costs.work(Estimate(compute=1370.0, fixed=100.0), 4 * n)
    assert [dims.evaluate(work, {"n": k}) for k in (1, 128, 255)] == [100, 1370, 2640]


def test_the_work_of_what_is_typically_1_follows_its_count():
    with dims.of_ones():
        work = costs.work(Estimate(compute=100.0, fixed=100.0), dims.symbol("n"))
    assert [dims.evaluate(work, {"n": k}) for k in (1, 8)] == [100, 800]


def test_divisions_are_done_beside_other_instructions():
    x, y = expr.input_(0, "float32"), expr.input_(1, "float32")
    both = costs.weight(TARGET, expr.apply("exp", x) / y)
    apart = costs.weight(TARGET, expr.apply("exp", x)), costs.weight(TARGET, x / y)
    assert max(apart) < both < sum(apart)


def test_the_work_of_the_least_sizes_is_estimated_of_these():
    """Not in proportion: so little lies in the first-level cache, and each step is begun."""
    text = "graph g(%x: float32[8, n, 64]) { %0 = transpose(%x) perm=(1, 0, 2) return %0 }"
    ((_, code),) = lower(parse(text), TARGET).codes.items()
    works = [dims.evaluate(sum(step.work for step in code.steps), {"n": n}) for n in (1, 128, 256)]
    assert works[0] < 0.2 * works[1] < works[1] < works[2] < 2 * works[1]


def test_what_a_run_of_the_least_sizes_touches_tells_where_its_constants_come_from():
    size = TARGET.facts.level3_bytes
    target = replace(TARGET, run_bytes=4 * size, least_run_bytes=0)
    with dims.of_ones():
        near = costs.stored(target, 1 << 20).total
    assert near < costs.stored(target, 1 << 20).total


def test_panels_of_a_narrow_matrix_are_packed_whole():
    assert gemm_tiling.packing(TARGET, 4096, 1, 4).overhead == 0
    assert gemm_tiling.packing(TARGET, 4096, 4, 1).overhead == costs.cycles(TARGET, 1024 * costs.PACKED_WORD)


def test_what_no_size_changes_is_in_the_work_of_every_run():
    estimate = Estimate(memory=1000.0) + costs.stored(TARGET, 1 << 20)
    work = costs.work(estimate, dims.symbol("n"))
    fixed, whole = (dims.evaluate(work, {"n": n}) for n in (0, dims.LENGTH))
    assert fixed == pytest.approx(estimate.total - 1000, rel=0.01)
    assert whole == pytest.approx(estimate.total, rel=0.01)


def test_a_run_touches_its_constants_and_what_is_alive_at_one_time():
    graph = parse(
        """graph g(%x: float32[256]) {
          %0 = map(%x) { exp($0) }
          %1 = map(%0) { log($0) }
          return %1 }"""
    )
    assert costs.touched(graph) == 2 * 256 * 4


def test_a_number_as_exponent_is_cheaper_than_any_other():
    x, y = expr.input_(0, "float32"), expr.input_(1, "float32")
    square, other = (expr.apply("pow", x, expr.const(value, "float32")) for value in (2.0, 2.3))
    assert (
        costs.weight(TARGET, square)
        < costs.weight(TARGET, other)
        == costs.weight(TARGET, expr.apply("pow", x, y))
    )


def test_the_last_channels_are_a_panel_of_their_own_where_half_a_vector_takes_less_time():
    wide = TARGETS["x86-64-v4"]
    split = replace(wide, facts=replace(wide.facts, narrow=0.6))
    assert panel_tiling(split, 24, wide.block, "float32").tail == 8
    assert panel_tiling(wide, 24, wide.block, "float32").tail is None


@pytest.mark.parametrize(
    "outputs, inside, tail, abreast",
    [
        (24, 64, 8, 2),
        (4, 64, 4, 4),
        (1, 64, 1, 16),
        (1, 3, 4, 4),
        (1, 1, None, 1),
        (32, 64, None, 1),
        (1000, 64, None, 1),
    ],
)
def test_idle_lanes_take_other_input_channels(outputs, inside, tail, abreast):
    wide = TARGETS["x86-64-v4"]
    tiling = panel_tilings(wide, outputs, wide.block, "float32", None, inside)[0][0]
    assert (tiling.tail, tiling.abreast) == (tail, abreast)


def test_squares_of_bytes_are_transposed_as_fast_as_narrow_vectors_are_shuffled():
    wide = TARGETS["x86-64-v4"]
    split = replace(wide, facts=replace(wide.facts, narrow=0.5))
    bytes_, floats = ([costs.transposing(t, 1 << 20, size).total for t in (wide, split)] for size in (1, 4))
    assert bytes_[1] == bytes_[0] / 2
    assert floats[1] == floats[0]


@pytest.mark.parametrize("name", ["x86-64-v4", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_of_panels_that_take_equally_long_the_one_of_two_registers_is_taken(name, dtype):
    target = TARGETS[name]
    tiling = panel_tiling(target, 64, target.block, dtype)
    assert tiling.vectors * target.registers(dtype, target.block) == 2


def test_a_run_touches_of_a_table_what_is_found_there():
    graph = parse(
        """graph g(%i: int64[4]) {
          %t = constant float32[1000, 64] #t
          %0 = gather(%t, %i) form=axis axis=0 batch=0
          return %0 }""",
        {"t": np.ones((1000, 64), np.float32)},
    )
    assert costs.touched(graph) == 2 * 4 * 64 * 4 + 4 * 8


def test_the_result_of_a_map_is_written_anew_where_no_operand_gives_its_place():
    (node,) = select_kernels(parse(CHAIN), TARGET).nodes
    (x,), (out,) = node.inputs, node.outputs
    nbytes = dims.typical(x.tensor.nbytes)
    inside, apart = (
        costs.away(TARGET, node, 0, {out: costs.Passed(since)}).overhead for since in (0, nbytes)
    )
    assert apart > inside


ATTENTION = """graph g(%q: float32[8, n, 64], %k: float32[8, m, 64], %v: float32[8, m, 64]) {
  %0 = attention(%q, %k, %v) scale=0.125 q=bqd k=bkd v=bke out=bqe
  return %0 }"""


def test_each_query_of_an_attention_takes_its_time_however_few_keys_there_are():
    lowered = lower(parse(ATTENTION), TARGET)
    ((node, code),) = lowered.codes.items()
    assert chosen(node).name == "attention"
    work = sum(dims.evaluate(step.work, {"n": 64, "m": 1}) for step in code.steps)
    assert work > costs.cycles(TARGET, costs.ATTENTION_ROW) * 8 * 64


def test_the_work_of_a_reduction_follows_how_much_is_reduced():
    lowered = lower(
        parse("graph g(%x: float32[64, n]) { %0 = reduce(%x) kind=max axes=(1,) return %0 }"), TARGET
    )
    ((_, code),) = lowered.codes.items()
    short, long = (sum(dims.evaluate(s.work, {"n": n}) for s in code.steps) for n in (64, 64_000))
    assert long > 500 * short


def test_a_run_reads_the_constants_of_one_branch():
    def graph(other):
        return parse(
            f"""graph g(%c: bool[], %x: float32[256]) {{
              %0 = if(%c, %x) then=(%a: float32[256]) {{
                %k = constant float32[256] #k
                %1 = map(%a, %k) {{ add($0, $1) }}
                return %1
              }} otherwise=(%a: float32[256]) {{
                %l = constant float32[256] #{other}
                %1 = map(%a, %l) {{ add($0, $1) }}
                return %1
              }} : float32[256]
              return %0 }}""",
            {"k": np.ones(256, np.float32), "l": np.zeros(256, np.float32)},
        )

    assert costs.touched(graph("l")) == costs.touched(graph("k"))
