"""Copies by the C library are whole wherever they begin, and in pieces where it would be slow."""

import numpy as np
import pytest
from support import harness

from onnxc.codegen.kernel import KernelText
from onnxc.codegen.text.memory import ALIASED, MOVED_WHOLE, copy_bytes
from onnxc.ir.dims import symbol
from onnxc.target import TARGETS

SIZES = (0, 1, MOVED_WHOLE, 3 * MOVED_WHOLE + 5, 40_000)


def copy(target, nbytes=None):
    """A kernel that copies its operand to its result; nbytes: None where the run tells how many."""
    kernel = KernelText(target)
    with kernel.entry() as f:
        count = f.size(symbol("n")) if nbytes is None else str(nbytes)
        copy_bytes(f, f.output(), f.input(0), count)
    return kernel


@pytest.mark.parametrize("known", [False, True], ids=["of the run", "known"])
def test_every_byte_arrives_wherever_the_target_begins(known):
    target = harness.RUNNABLE[0]
    source = harness.aligned(max(SIZES), ALIASED)
    source[:] = np.random.default_rng(0).integers(0, 255, source.size)
    for count in SIZES:
        kernel = copy(target, count if known else None)
        for ahead in (0, 1, 4, 16, 31, 32, 64, ALIASED - 16):
            to = harness.aligned(max(SIZES) + ALIASED, ALIASED)[ahead:]
            words = [{"input": source, "output": to, "size": count}[a.kind] for a in kernel.arguments]
            harness.prepared_call(str(kernel), target, words, np.empty(64, np.uint8))([(0, 1)])
            np.testing.assert_array_equal(to[:count], source[:count])
            assert (to[count:] == 0xFF).all()


@pytest.mark.parametrize("target", TARGETS.values(), ids=str)
def test_long_copies_are_made_in_pieces_on_x86_alone(target):
    pieces = f"i64 {MOVED_WHOLE}, i1 false" in str(copy(target))
    assert pieces == target.triple.startswith("x86_64")


def test_short_copies_of_known_size_need_no_choice():
    assert "ptrtoint" not in str(copy(TARGETS["x86-64-v3"], MOVED_WHOLE))
