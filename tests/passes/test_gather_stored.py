"""gather_stored: rows of a widened table are gathered as they are stored."""

import numpy as np
from support.pass_text import agrees, clean, stays

from onnxc.ir.ops import Gather
from onnxc.ir.text_parser import parse
from onnxc.passes.fold_constants import fold_constants
from onnxc.passes.gather_stored import gather_stored

BYTES = np.random.default_rng(0).integers(-128, 127, (512, 32)).astype(np.int8)
INDEX = [np.array([[3, -1, 0], [511, 5, 5]])]


def gathered(text, constants):
    """The types of the tables that the graph reads rows of, which gives the same as before."""

    def step(graph):
        return gather_stored(fold_constants(graph))

    graph = agrees(clean(step), text, constants, INDEX)
    return [str(n.inputs[0].type) for n in graph.nodes if isinstance(n.op, Gather)]


def test_quantised_rows_are_gathered_and_widened_after():
    found = gathered(
        """graph g(%i: int64[2, 3]) {
        %q = constant int8[512, 32] #data
        %s = constant float32[32] #scales
        %w = map(%q, %s) { mul(cast($0, float32), $1) }
        %0 = gather(%w, %i) form=axis axis=0
        return %0
    }""",
        {"q": BYTES, "s": np.linspace(0.1, 0.2, 32, dtype=np.float32)},
    )
    assert found == ["int8[512, 32]"]


def test_each_row_may_have_its_scale_and_its_blocks():
    found = gathered(
        """graph g(%i: int64[2, 3]) {
        %q = constant int8[512, 32] #data
        %s = constant float32[512, 4, 1] #scales
        %z = constant int8[1, 4, 1] #zeros
        %b = reshape(%q) shape=(512, 4, 8)
        %w = map(%b, %s, %z) { mul(cast(sub(cast($0, int32), cast($2, int32)), float32), $1) }
        %r = reshape(%w) shape=(512, 32)
        %0 = gather(%r, %i) form=axis axis=0
        return %0
    }""",
        {
            "q": BYTES,
            "s": np.linspace(0.1, 0.2, 2048, dtype=np.float32).reshape(512, 4, 1),
            "z": np.array([1, -2, 3, 0], np.int8).reshape(1, 4, 1),
        },
    )
    assert found == ["int8[512, 32]", "float32[512, 4, 1]"]


def test_one_number_for_all_rows_is_not_gathered():
    found = gathered(
        """graph g(%i: int64[2, 3]) {
        %q = constant int8[512, 32] #data
        %s = constant float32[512, 4, 1] #scales
        %z = constant int8[512, 4, 1] splat 8
        %b = reshape(%q) shape=(512, 4, 8)
        %w = map(%b, %s, %z) { mul(cast(sub(cast($0, int32), cast($2, int32)), float32), $1) }
        %0 = gather(%w, %i) form=axis axis=0
        return %0
    }""",
        {"q": BYTES, "s": np.linspace(0.1, 0.2, 2048, dtype=np.float32).reshape(512, 4, 1)},
    )
    assert found == ["int8[512, 32]", "float32[512, 4, 1]"]


def test_a_number_that_gives_a_table_its_columns_stays_as_wide():
    found = gathered(
        """graph g(%i: int64[2, 3]) {
        %q = constant int8[512, 1] #data
        %z = constant int8[1, 32] splat 8
        %w = map(%q, %z) { exp(cast(add($0, $1), float32)) }
        %0 = gather(%w, %i) form=axis axis=0
        return %0
    }""",
        {"q": BYTES[:, :1]},
    )
    assert found == ["int8[512, 1]"]


def test_half_columns_are_gathered_along_any_axis():
    found = gathered(
        """graph g(%i: int64[2, 3]) {
        %q = constant float16[8, 512, 4] #data
        %w = map(%q) { cast($0, float32) }
        %0 = gather(%w, %i) form=axis axis=1
        return %0
    }""",
        {"q": BYTES.reshape(8, 512, 4).astype(np.float16)},
    )
    assert found == ["float16[8, 512, 4]"]


def test_a_table_that_is_no_wider_than_what_is_stored_is_read_as_it_is():
    stays(
        gather_stored,
        """graph g(%i: int64[3]) {
        %w = constant float32[4, 4] splat 1.0
        %0 = gather(%w, %i) form=axis axis=0
        return %0
    }""",
    )
    graph = parse(
        """graph g(%i: int64[3]) {
        %q = constant float32[64, 32] #data
        %w = map(%q) { neg($0) }
        %0 = gather(%w, %i) form=axis axis=0
        return %0
    }""",
        {"q": np.ones((64, 32), np.float32)},
    )
    assert len(clean(gather_stored)(fold_constants(graph)).nodes) == 1


def test_a_table_that_states_its_shape_has_the_rows_of_another():
    found = gathered(
        """graph g(%i: int64[2, 3]) {
        %q = constant int8[512, 32] #data
        %w = map(%q) shape=(512, 32) { cast($0, float32) }
        %0 = gather(%w, %i) form=axis axis=0
        return %0
    }""",
        {"q": BYTES},
    )
    assert found == ["int8[512, 32]"]


def test_what_counts_rows_is_gathered_itself():
    found = gathered(
        """graph g(%i: int64[2, 3]) {
        %q = constant int8[512, 32] #data
        %w = map(%q) { add(cast($0, float32), cast(index(0), float32)) }
        %0 = gather(%w, %i) form=axis axis=0
        return %0
    }""",
        {"q": BYTES},
    )
    assert found == ["float32[512, 32]"]
