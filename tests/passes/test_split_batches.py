"""split_batches: products over joined axes become products over these; what joins other axes stays."""

import pytest
from support.pass_text import becomes, clean, stays

from onnxc.passes.split_batches import split_batches

JOINED = """graph g(%x: float32[b, 3, m, 8], %y: float32[b, 3, 8, n]) {
    %0 = reshape(%x) shape=(3*b, m, 8)
    %1 = reshape(%y) shape=(3*b, 8, n)
    %2 = map(%1) { mul($0, 0.5) }
    %3 = contract(%0, %2) lhs=amk rhs=akn out=amn accumulate=float32
    return %3
}"""


def test_a_product_over_joined_axes_is_one_over_each():
    becomes(
        clean(split_batches),
        JOINED,
        """graph g(%x: float32[b, 3, m, 8], %y: float32[b, 3, 8, n]) {
        %0 = map(%y) { mul($0, 0.5) }
        %1 = contract(%x, %0) lhs=bcmk rhs=bckn out=bcmn accumulate=float32
        %2 = reshape(%1) shape=(3*b, m, n)
        return %2
    }""",
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"%y: float32[b, 3, 8, n]": "%y: float32[3, b, 8, n]"},  # joined in another order
        {"%y: float32[b, 3, 8, n]": "%y: float32[b, 3, n, 8]"},  # other axes change too
        {"(3*b, 8, n)": "(8, 3*b, n)", "rhs=akn": "rhs=kan"},
        {"out=amn": "out=man"},
        {"b, 3, ": "b, 1, ", "3*b": "b"},  # one axis alone
    ],
)
def test_what_joins_other_axes_stays(changes):
    text = JOINED
    for what, instead in changes.items():
        text = text.replace(what, instead)
    stays(clean(split_batches), text)


def test_a_product_of_single_numbers_stays():
    stays(
        clean(split_batches),
        """graph g(%x: float32[1, 1], %y: float32[]) {
        %0 = reshape(%x) shape=()
        %1 = contract(%0, %y) lhs="" rhs="" out="" accumulate=float32
        return %1
    }""",
    )
