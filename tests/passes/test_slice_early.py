"""slice_early: products have only the rows that are read; all other values stay whole."""

import numpy as np
import pytest
from support.pass_text import agrees, clean, ops, stays

from onnxc.ir.text_parser import parse
from onnxc.ir.verify import verify
from onnxc.passes.slice_early import slice_early

FIRST = "slice(%y) starts=(0, 0, 0) sizes=(b, 1, 8) steps=(1, 1, 1)"
WEIGHTS = {"w": np.random.default_rng(3).standard_normal((6, 8)).astype(np.float32)}


PRODUCT = "contract(%x, %w) lhs=bmk rhs=kn out=bmn accumulate=float32"


def network(made=PRODUCT, read=FIRST, returned="%r"):
    return f"""graph g(%x: float32[b, s, 6], %c: float32[b, s, 8]) {{
    %w = constant float32[6, 8] #w
    %y = {made}
    %r = {read}
    return {returned}
}}"""


def rows(text, tolerance=0.0, **sizes):
    """How many rows each product of a network has, and that all results are what they were."""
    found = agrees(clean(slice_early), text, WEIGHTS, tolerance=tolerance, **{"b": 2, "s": 9, **sizes})
    names = ("Contract", "Attention")
    return [str(n.outputs[0].shape[1]) for n in found.nodes if type(n.op).__name__ in names]


def test_the_rows_that_are_sliced_are_computed():
    assert rows(network()) == ["1"]


def test_what_takes_a_part_comes_from_the_node_that_reads_it():
    text = network(made=f'{PRODUCT} from "product"', read=f'{FIRST} from "reader"')
    found = agrees(clean(slice_early), text, WEIGHTS, b=2, s=9)
    assert [node.origin for node in found.nodes] == ["reader", "product", "reader"]


@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_row_that_is_gathered_is_computed(place):
    text = network(read="gather(%y, %i) form=axis axis=1")
    assert rows(text.replace("%w =", f"%i = constant int64[] ({place})\n    %w =")) == ["1"]


def test_the_last_of_any_number_of_rows_is_at_most_one():
    last = "sizes=(b, s - max(s - 1, 0), 8) steps=(1, 1, 1)"
    text = network(read=f"slice(%y) starts=(0, max(s - 1, 0), 0) {last}")
    assert rows(text) == ["-max(s - 1, 0) + s"]
    assert rows(text, s=0) == ["-max(s - 1, 0) + s"]


def test_two_readers_get_the_part_that_covers_both():
    read = f"{FIRST}\n    %t = slice(%y) starts=(0, 2, 0) sizes=(b, 1, 8) steps=(1, 1, 1)"
    assert rows(network(read=read, returned="%r, %t")) == ["3"]


def test_what_is_also_read_whole_stays():
    stays(slice_early, network(returned="%r, %y"), WEIGHTS)


def test_parts_of_two_axes_stay():
    read = f"{FIRST}\n    %t = slice(%y) starts=(0, 0, 0) sizes=(b, s, 1) steps=(1, 1, 1)"
    stays(slice_early, network(read=read, returned="%r, %t"), WEIGHTS)


def test_more_than_half_of_the_rows_stay():
    text = network(read="slice(%y) starts=(0, 1, 0) sizes=(b, 5, 8) steps=(1, 1, 1)")
    stays(slice_early, text.replace("s, ", "6, "), WEIGHTS)


def test_a_part_that_is_also_turned_round_stays():
    turned = "slice(%y) starts=(0, 0, 7) sizes=(b, 1, 8) steps=(1, 1, -1)"
    stays(slice_early, network(read=turned), WEIGHTS)


def test_a_part_of_a_diagonal_stays():
    made = "contract(%q, %c) lhs=bmmk rhs=bkn out=bmn accumulate=float32"
    text = network(made).replace("%c: float32[b, s, 8]", "%c: float32[b, 6, 8], %q: float32[b, s, s, 6]")
    stays(slice_early, text, WEIGHTS)


def test_a_part_of_what_no_product_makes_stays():
    stays(slice_early, network("map(%c) { exp($0) }"), WEIGHTS)


def test_chosen_columns_of_weights_stay():
    stays(slice_early, network(read="slice(%y) starts=(0, 0, 0) sizes=(b, s, 1) steps=(1, 1, 1)"), WEIGHTS)


PART = "slice(%p) starts=(0, 0, 2) sizes=(b, s, 4) steps=(1, 1, 1)"


@pytest.mark.parametrize(
    "steps",
    [
        ["%y = map(%p, %c) { add(exp($0), $1) }"],
        ["%t = transpose(%p) perm=(1, 0, 2)", "%y = transpose(%t) perm=(1, 0, 2)"],
        ["%t = reshape(%p) shape=(b, s, 2, 4)", "%y = reshape(%t) shape=(b, s, 8)"],
        ["%t = reduce(%p) kind=max axes=(2) keepdims=true", "%y = map(%p, %t) { sub($0, $1) }"],
        [
            "%m = reduce(%c) kind=sum axes=(2) keepdims=true",
            "%t = broadcast(%m) shape=(b, s, 8)",
            "%y = map(%p, %t) { mul($0, $1) }",
        ],
        [f"%t = {PART}", "%y = concat(%t, %t) axis=2"],
        [
            "%z = constant float32[] (0.5)",
            f"%t = {PART}",
            "%y = pad(%t, %z) mode=constant before=(0, 0, 2) after=(0, 0, 2)",
        ],
        ["%i = constant int64[8] (7, 6, 5, 4, 3, 2, 1, 0)", "%y = gather(%p, %i) form=axis axis=2"],
    ],
)
def test_it_goes_through_what_treats_rows_alike(steps):
    text = network("\n    ".join([PRODUCT, *steps])).replace("%y = contract", "%p = contract")
    assert rows(text, tolerance=1e-6) == ["1"]


def test_what_differs_from_row_to_row_stays():
    made = f"{PRODUCT}\n    %y = map(%p) {{ add($0, cast(index(1), float32)) }}"
    stays(slice_early, network(made).replace("%y = contract", "%p = contract"), WEIGHTS)


ATTENTION = f"""graph g(%x: float32[b, s, 6], %q: float32[b, 4, s, s]) {{
    %w = constant float32[6, 8] #w
    %0 = {PRODUCT}
    %1 = reshape(%0) shape=(b, s, 4, 2)
    %k = {PRODUCT}
    %2 = reshape(%k) shape=(b, s, 4, 2)
    %3 = attention(%1, %2, %2, %q) scale=0.5 q=aqbd k=akbd v=akbe out=aqbe
    %y = reshape(%3) shape=(b, s, 8)
    %r = {FIRST}
    return %r
}}"""


def test_keys_and_values_stay_whole():
    assert rows(ATTENTION, tolerance=1e-6) == ["1", "s", "1"]


#: The place of the greatest of a row of numbers, that place in turn, and as a position.
END = "%e = reduce(%i) kind=argmax axes=(1)"
IN_TURN = [
    END,
    "%n = map() { index(0) } shape=(b)",
    "%l = elements() dims=(s) shape=(1)",
    "%m = map(%n, %l) { mul($0, $1) }",
    "%p = map(%e, %m) { add($0, $1) }",
    "%j = reshape(%y) shape=(b*s, 8)",
    "%r = gather(%j, %p) form=axis",
]
POSITIONS = [
    "%e = reduce(%i) kind=argmax axes=(1) keepdims=true",
    "%n = map() { index(0) } shape=(b, 1)",
    "%p = concat(%n, %e) axis=1",
    "%r = gather(%y, %p) form=nd",
]


def chosen(read, made=PRODUCT):
    text = network(made, "\n    ".join(read)).replace("%r = %", "%", 1)
    return text.replace(
        "%c: float32[b, s, 8]", "%i: int64[b, s], %c: float32[b, s, 8], %q: float32[b, 4, s, s]"
    )


@pytest.mark.parametrize("read", [IN_TURN, POSITIONS], ids=["in turn", "positions"])
@pytest.mark.parametrize("sizes", [{}, {"b": 1}, {"s": 1}])
def test_a_row_of_each_entry_that_the_run_chooses_is_computed(read, sizes):
    assert rows(chosen(read), tolerance=1e-6, **sizes) == ["1"]


@pytest.mark.parametrize("read", [IN_TURN, POSITIONS], ids=["in turn", "positions"])
@pytest.mark.parametrize("batch", [1, 3])
def test_rows_are_chosen_from_known_numbers_of_entries(read, batch):
    counts = f"%n = constant int64[{batch}{{}}] ({', '.join(map(str, range(batch)))})"
    known = {
        "%n = map() { index(0) } shape=(b)": counts.format(""),
        "%n = map() { index(0) } shape=(b, 1)": counts.format(", 1"),
    }
    text = chosen([known.get(line, line) for line in read])
    assert rows(text.replace("b*s", f"{batch}*s").replace("[b, ", f"[{batch}, "), tolerance=1e-6) == ["1"]


def test_the_place_before_one_that_is_found_counts_from_the_end():
    before = "%e = map(%f, %l) { mod(sub($0, 1), $1) }"
    read = ["%f = reduce(%i) kind=argmax axes=(1)", IN_TURN[2], before, IN_TURN[1], *IN_TURN[3:]]
    assert rows(chosen(read)) == ["1"]


@pytest.mark.parametrize(
    ("line", "other"),
    [
        (END, "%e = reduce(%i) kind=sum axes=(1)"),
        ("%l = elements() dims=(s) shape=(1)", "%l = elements() dims=(s - 1) shape=(1)"),
        ("%p = map(%e, %m) { add($0, $1) }", "%p = map(%e, %m) { add($0, add($1, 1)) }"),
    ],
)
def test_places_that_may_be_those_of_another_entry_stay(line, other):
    stays(slice_early, chosen([other if step == line else step for step in IN_TURN]), WEIGHTS)


def test_what_tells_the_row_is_not_sliced_by_it():
    read = ["%h = map(%y) { mul($0, 2.0) }", "%g = reduce(%h) kind=sum axes=(2)", *POSITIONS]
    read[2] = "%e = reduce(%g) kind=argmax axes=(1) keepdims=true"
    stays(slice_early, chosen(read), WEIGHTS)


def test_sizes_of_what_tells_the_row_are_told_and_asked_before():
    told = "bind(%z) symbols=(k)\n require() kind=least sizes=(s, k)\n"
    part = "%f = slice(%i) starts=(0, 0) sizes=(b, k) steps=(1, 1)"
    text = chosen([part, POSITIONS[0].replace("%i", "%f"), *POSITIONS[1:]])
    text = text.replace("%f =", f"{told} %f =").replace("(%x:", "(%z: int64[1], %x:")
    graph = slice_early(parse(text, WEIGHTS))
    verify(graph)
    assert ops(graph)[:4] == ["Bind", "Require", "Slice", "Reduce"]


def test_indices_are_asked_for_before_the_part_is_read_that_they_name():
    asked = "require() kind=inside sizes=(s, 6) code=index_out_of_range"
    read = f"{asked}\n    %r = gather(%y, %i) form=axis axis=1"
    text = (
        network(read="neg").replace("%r = neg", read).replace("%w =", "%i = constant int64[] (6)\n    %w =")
    )
    assert ops(clean(slice_early)(parse(text, WEIGHTS))) == ["Require", "Slice", "Contract", "Reshape"]


def test_sizes_that_are_told_late_are_asked_for_where_they_are_told():
    asked = "require() kind=least sizes=(k, 3) code=dims_mismatch"
    text = f"""graph g(%x: float32[b, s, 6], %z: int64[1]) {{
        %w = constant float32[6, 8] #w
        %0 = map(%z) {{ neg($0) }}
        bind(%0) symbols=(k)
        %1 = slice(%x) starts=(0, 0, 0) sizes=(b, k, 6) steps=(1, 1, 1)
        %y = contract(%1, %w) lhs=bmk rhs=kn out=bmn accumulate=float32
        {asked}
        %r = slice(%y) starts=(0, 2, 0) sizes=(b, 1, 8) steps=(1, 1, 1)
        return %r
    }}"""
    found = ops(clean(slice_early)(parse(text, WEIGHTS)))
    assert found == ["Map", "Bind", "Require", "Slice", "Slice", "Contract", "Reshape"]


@pytest.mark.parametrize(
    "mask",
    [
        "float32[b, 4, s, s]",
        "float32[1, 4, s, s]",
        "float32[4, s, s]",
        "float32[b, 4, 1, s]",
        "float32[s, s]",
    ],
)
def test_the_chosen_rows_attend_to_all_keys(mask):
    made = f"{PRODUCT}\n    " + "\n    ".join(ATTENTION.splitlines()[3:8])
    text = chosen(POSITIONS, made).replace("%y = contract", "%0 = contract", 1)
    text = text.replace("float32[b, 4, s, s]", mask)
    assert rows(text, tolerance=1e-6) == ["1", "s", "1"]
