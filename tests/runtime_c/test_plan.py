"""The planner of symbolic models: buffers that live together never overlap."""

from __future__ import annotations

import ctypes
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.handmade_models import HERE, cc

from onnxc.codegen.lowering.plan_memory import Buffer, place


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """plan([(first, last, bytes)]) -> (offsets, arena bytes), or None when sizes overflow."""
    path = tmp_path_factory.mktemp("planner") / "planner.so"
    cc("-shared", "-fPIC", "-O0", "-fsanitize=signed-integer-overflow", HERE / "planner.c", "-o", path)
    function = ctypes.CDLL(str(path)).plan
    function.restype = ctypes.c_bool

    def call(buffers):
        n = len(buffers)
        lifetimes = (ctypes.c_int32 * (2 * n))(*(t for b in buffers for t in b[:2]))
        sizes, offsets = (ctypes.c_int64 * n)(*(b[2] for b in buffers)), (ctypes.c_int64 * n)()
        arena = ctypes.c_int64()
        fits = function(
            ctypes.c_int64(n), lifetimes, sizes, offsets, (ctypes.c_int64 * (3 * n))(), ctypes.byref(arena)
        )
        return (list(offsets), arena.value) if fits else None

    return call


def aligned(size: int) -> int:
    return -(-size // 64) * 64


def live_bytes(buffers) -> int:
    """The most bytes in use at one step: no plan can take less."""
    steps = {step for first, last, _ in buffers for step in (first, last)}
    return max(
        (sum(aligned(size) for first, last, size in buffers if first <= step <= last) for step in steps),
        default=0,
    )


def brute_force(buffers) -> int:
    """The least arena over all orders of placing each buffer at the lowest place that is free."""
    best = None
    for order in itertools.permutations(range(len(buffers))):
        placed: list[tuple[int, int, int]] = []
        for k in order:
            first, last, size = buffers[k]
            others = sorted(
                (low, high) for low, high, j in placed if buffers[j][0] <= last and first <= buffers[j][1]
            )
            at = 0
            for low, high in others:
                if low - at >= aligned(size):
                    break
                at = max(at, high)
            placed.append((at, at + aligned(size), k))
        top = max((high for _, high, _ in placed), default=0)
        best = top if best is None else min(best, top)
    return best or 0


lifetime = st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 5000)).map(
    lambda t: (t[0], t[0] + t[1], t[2])
)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(buffers=st.lists(lifetime, max_size=40))
def test_buffers_alive_together_do_not_overlap_and_are_aligned(plan, buffers):
    offsets, arena = plan(buffers)
    for (first, last, size), offset in zip(buffers, offsets):
        assert offset % 64 == 0
        assert 0 <= offset <= arena - aligned(size)
        for (other_first, other_last, other_size), other in zip(buffers, offsets):
            together = first <= other_last and other_first <= last
            same = (first, last, size, offset) == (other_first, other_last, other_size, other)
            if together and size and other_size and not same:
                assert offset + size <= other or other + other_size <= offset


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(buffers=st.lists(lifetime, min_size=1, max_size=5))
def test_small_plans_are_within_a_half_of_the_best(plan, buffers):
    _, arena = plan(buffers)
    assert live_bytes(buffers) <= arena
    assert arena <= 1.5 * brute_force(buffers)


def test_two_buffers_of_the_same_life_and_size_get_two_places(plan):
    offsets, arena = plan([(0, 1, 100), (0, 1, 100)])
    assert sorted(offsets) == [0, 128]
    assert arena == 256


def test_a_buffer_takes_the_lowest_place_that_holds_it(plan):
    lives = [(0, 9, 640), (0, 2, 512), (0, 9, 448), (0, 2, 256), (0, 9, 256), (5, 6, 192)]
    offsets, _ = plan(lives)
    assert offsets == [0, 640, 1152, 1600, 1856, 640]


@pytest.mark.slow
@settings(deadline=None, max_examples=500)
@given(buffers=st.lists(lifetime, max_size=40))
def test_the_compiler_and_the_run_place_alike(plan, buffers):
    """What the compiler knows the sizes of, and what the run does."""
    ours = [Buffer(size, first, last) for first, last, size in buffers]
    end = place(ours)
    assert plan(buffers) == ([b.offset for b in ours], end)


def test_the_largest_are_placed_first_where_the_order_of_use_leaves_gaps(plan):
    assert plan([(1, 1, 64), (1, 3, 64), (2, 3, 128)]) == ([0, 128, 0], 192)  # in the order of use 256


def test_a_chain_takes_its_two_largest_neighbours(plan):
    assert plan([(k, k + 1, 1000) for k in range(50)])[1] == 2 * aligned(1000)


def test_sizes_whose_sum_overflows_are_refused(plan):
    assert plan([(0, 1, 2**62), (0, 1, 2**62), (0, 1, 2**62)]) is None
    assert plan([(0, 0, 2**63 - 1)]) is None


def test_sums_that_would_overflow_are_not_added_up(plan, capfd):
    assert plan([(0, 9, 2**62), (1, 9, 64), (2, 9, 2**62)]) is None
    assert capfd.readouterr().err == ""  # the compiler's checks of undefined behaviour


def test_nothing_takes_nothing(plan):
    assert plan([]) == ([], 0)
