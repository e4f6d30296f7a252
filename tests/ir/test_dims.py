"""Symbolic dimensions: canonical forms, exact arithmetic, bounds, text, and what is typical."""

import operator
from functools import reduce

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxc.errors import LimitError
from onnxc.ir import dims
from onnxc.ir.dims import symbol

n, m, h = symbol("n"), symbol("m"), symbol("h", 1)
z = symbol("z", None)


def test_equal_polynomials_look_equal():
    assert (n + m) * (n - m) == n * n - m * m
    assert n + m == m + n
    assert (n + 1) * 2 - 2 == 2 * n


def test_numbers_come_out_as_plain_ints():
    assert type(n - n) is int
    assert n - n == 0
    assert (n + 3) - n == 3
    assert n * 0 == 0
    assert (h * 6) // h == 6


def test_a_dimension_has_no_truth():
    with pytest.raises(TypeError, match="not known at compile time"):
        bool(n)


def test_a_dimension_is_no_number():
    assert n != 0
    assert symbol("n") == n
    assert symbol("n", 1) != n


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2 * n + 1, "2*n + 1"),
        (1 - n, "-n + 1"),
        ((h - 1) // 2 + 1, "(h + 1)//2"),
        (3 * (n // 2), "3*(n//2)"),
        (n - m // 2, "-(m//2) + n"),
        (dims.maximum(n, 3) // m, "max(n, 3)//m"),
        (n // (m + 1), "n//(m + 1)"),
        (n * n * m, "m*n*n"),
    ],
)
def test_text_is_python_syntax(value, text):
    assert str(value) == text
    assert dims.parse(text, {"h": 1}) == value


def test_division_keeps_what_is_exact():
    assert (2 * n + 4) // 2 == n + 2
    assert (2 * n + 3) // 2 == n + 1
    assert (n * h) // h == n
    assert ((n + 1) * (m + 2)) // (m + 2) == n + 1


def test_a_divisor_that_may_be_zero_does_not_cancel():
    assert str(n // n) == "n//n"
    assert dims.evaluate((n * m) // m, {"n": 5, "m": 0}) == 0


def test_the_size_that_remains_cancels_also_what_may_be_zero():
    assert dims.remaining(n * m, m) == n
    assert dims.remaining(n, n) == 1
    assert dims.remaining(6, 3) == 2
    assert dims.remaining(n * 6, 4) == (n * 6) // 4
    assert dims.remaining(n, m) == n // m


def test_nested_divisions_join():
    assert (n // 2) // 3 == n // 6


def test_a_division_that_cannot_reach_the_next_number_vanishes():
    small = dims.clamp(n, 0, 3)
    assert (4 * m + small) // 4 == m


def test_division_by_zero_gives_zero():
    assert dims.floor_divide(5, 0) == 0
    assert dims.truncated_divide(5, 0) == 0
    assert dims.remainder(5, 0) == 0
    assert dims.evaluate(n // m, {"n": 5, "m": 0}) == 0


def test_truncated_division_rounds_toward_zero():
    assert dims.truncated_divide(-7, 2) == -3
    assert dims.truncated_divide(n, 2) == n // 2
    assert dims.evaluate(dims.truncated_divide(z, 2), {"z": -7}) == -3


def test_minimum_and_maximum_of_ordered_dimensions_are_one_of_them():
    assert dims.minimum(n, n + 1) == n
    assert dims.maximum(n, n + 1) == n + 1
    assert dims.maximum(n, 0) == n
    assert dims.maximum(n, m) == dims.maximum(m, n)


def test_what_a_pad_adds_less_what_it_cuts_is_the_pad():
    def size(pad):
        return n + dims.maximum(pad, 0) - dims.maximum(-pad, 0)

    assert size(z) == n + z
    assert size(z - m) == n + z - m
    assert size(z) + dims.maximum(z, 0) == n + z + dims.maximum(z, 0)
    assert str(dims.maximum(z, 0) - dims.maximum(-m, 0)) == "max(z, 0)"


def test_what_is_cut_and_what_is_left_are_the_whole():
    n, m = dims.symbol("n"), dims.symbol("m")
    first = dims.minimum(n, 3)
    assert str(n - first) == "max(n - 3, 0)"
    assert str(2 * n - first - dims.minimum(n, m)) == "max(-m + n, 0) + max(n - 3, 0)"
    assert first + dims.maximum(n - 3, 0) == n
    assert 2 * first + dims.maximum(n - 3, 0) == n + first
    assert dims.minimum(n - first, 0) == 0


def test_the_sizes_of_a_chain_of_windows_are_one_maximum():
    size = h
    for _ in range(100):
        size = dims.maximum(size - 2, 0)
    assert str(size) == "max(h - 200, 0)"
    assert str(dims.maximum(dims.maximum(z, 3) + 1, 2)) == "max(z, 3) + 1"


def test_a_formula_beyond_the_limits_cannot_be_written():
    square, quotient, sum_ = n, n, n
    with pytest.raises(LimitError, match="formula that is too large"):
        for _ in range(20):
            square = square * (square + m)
    with pytest.raises(LimitError, match="formula that is too large"):
        for k in range(1000):
            quotient = (quotient + m) // (k + 2)
    with pytest.raises(LimitError, match="formula that is too large"):
        for _ in range(64):
            sum_ = sum_ + sum_


def test_a_formula_is_large_long_before_it_cannot_be_written():
    square = n
    while not dims.is_large(square):
        square = square * (square + m)
    assert square.size * 8 < dims.SIZE_LIMIT
    assert not dims.is_large(dims.product([n, m, h, n + m, n - h]))


def test_a_product_of_long_sums_is_not_multiplied_out():
    sums = [reduce(lambda a, b: a + b, [dims.symbol(f"{c}{k}") for k in range(60)]) for c in "xy"]
    whole = sums[0] * sums[1]
    assert whole.size < 250 and whole == sums[1] * sums[0]
    assert dims.parse(str(whole)) == whole
    ones = {s.name: 1 for s in dims.symbols(whole)}
    assert dims.evaluate(whole, ones) == 3600
    assert dims.bounds(whole) == (0, None)


def test_broadcast_is_not_maximum():
    assert dims.broadcast(1, n) == n
    assert dims.broadcast(n, n) == n
    assert dims.broadcast(n, 5) == 5
    assert dims.broadcast(0, 1) == 0
    assert dims.evaluate(dims.broadcast(n, m), {"n": 1, "m": 0}) == 0
    assert dims.evaluate(dims.broadcast(n, m), {"n": 0, "m": 1}) == 0


def test_sizes_that_cannot_broadcast_are_an_error():
    with pytest.raises(ValueError, match="2 and 3"):
        dims.broadcast(2, 3)


def test_broadcasting_a_part_with_its_whole_gives_the_whole():
    assert dims.broadcast(dims.minimum(n, 7), n) == n
    assert dims.broadcast(dims.broadcast(n, m), m) == dims.broadcast(n, m)


def test_the_run_tells_what_repeats_where_sizes_do_not():
    assert dims.repeats(1, n) == 1
    assert dims.repeats(n, n) == 0
    assert dims.repeats(5, n) == 0
    either = dims.repeats(n, dims.broadcast(n, m))
    assert [dims.evaluate(either, {"n": size}) for size in (0, 1, 2)] == [0, 1, 0]


def test_equality_is_true_false_or_unknown():
    assert dims.equal(n + m, m + n) is True
    assert dims.equal(n, n + 1) is False
    assert dims.equal(n, -1) is False
    assert dims.equal(n, m) is None


def test_order_is_true_false_or_unknown():
    assert dims.less(n, n + 1) is True
    assert dims.less(n + 1, n) is False
    assert dims.less(-1, n) is True
    assert dims.less(n, m) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (n, (0, None)),
        (z, (None, None)),
        (h + 2, (3, None)),
        (-n, (None, 0)),
        (1 - n, (None, 1)),
        (n // 2, (0, None)),
        (dims.clamp(n, 2, 5), (2, 5)),
        (3 * dims.clamp(n, 2, 5) - 1, (5, 14)),
        (dims.compare("lt", n, m), (0, 1)),
        (1 - dims.compare("eq", n, m), (0, 1)),
        (n - dims.maximum(n - 2, 0), (0, 2)),
        (n - 4 * (n // 4), (0, 3)),
        (2 * (z // 2) - z, (-1, 0)),
    ],
)
def test_bounds_follow_from_those_of_symbols(value, expected):
    assert dims.bounds(value) == expected


def test_comparisons_that_are_known_are_numbers():
    assert dims.compare("eq", n, n) == 1
    assert dims.compare("eq", n, -1) == 0
    assert dims.compare("lt", n, n + 1) == 1


def test_substitution_simplifies_again():
    assert dims.substitute(n // 2 + m, {"n": 2 * m}) == 2 * m
    assert dims.substitute(dims.maximum(n, m), {"n": 3, "m": 4}) == 4
    assert dims.substitute(n + m, {}) == n + m


def test_symbols_are_found_inside_operations():
    names = {s.name for s in dims.symbols((n + 1) // 2 + dims.maximum(m, h))}
    assert names == {"n", "m", "h"}


@pytest.mark.parametrize("text", ["n +", "n.x", "f(n)", "1.5", "n if m else h", ""])
def test_text_that_is_no_dimension_is_refused(text):
    with pytest.raises(ValueError, match="is not a dimension"):
        dims.parse(text)


# Against Python's arithmetic on random expressions -----------------------------------------------

NAMES = {"n": 0, "m": 0, "h": 1, "z": None}
ENVIRONMENTS = st.fixed_dictionaries(
    {"n": st.integers(0, 9), "m": st.integers(0, 300), "h": st.integers(1, 9), "z": st.integers(-20, 20)}
)


class Invalid(Exception):
    """A division by zero, or sizes that do not broadcast."""


def _python_broadcast(a, b):
    if a != b and 1 not in (a, b):
        raise Invalid
    return b if a == 1 else a


def _nonzero(function):
    def checked(a, b):
        if b == 0:
            raise Invalid
        return function(a, b)

    return checked


def _truncate(a, b):
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


OPERATIONS = [
    (operator.add, operator.add),
    (operator.sub, operator.sub),
    (operator.mul, operator.mul),
    (operator.floordiv, _nonzero(operator.floordiv)),
    (operator.mod, _nonzero(operator.mod)),
    (dims.truncated_divide, _nonzero(_truncate)),
    (dims.ceil_divide, _nonzero(lambda a, b: -(-a // b))),
    (dims.minimum, min),
    (dims.maximum, max),
    (dims.broadcast, _python_broadcast),
    (lambda a, b: dims.compare("eq", a, b), lambda a, b: int(a == b)),
    (lambda a, b: dims.compare("lt", a, b), lambda a, b: int(a < b)),
]


def _symbolic(tree):
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return symbol(tree, NAMES[tree])
    function, left, right = tree
    return OPERATIONS[function][0](_symbolic(left), _symbolic(right))


def _number(tree, env):
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    function, left, right = tree
    return OPERATIONS[function][1](_number(left, env), _number(right, env))


TREES = st.recursive(
    st.one_of(st.integers(-9, 9), st.sampled_from(list(NAMES))),
    lambda inner: st.tuples(st.integers(0, len(OPERATIONS) - 1), inner, inner),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(TREES, ENVIRONMENTS)
def test_evaluation_agrees_with_python(tree, env):
    try:
        expected = _number(tree, env)
    except Invalid:
        assume(False)
    try:
        value = _symbolic(tree)
    except (ValueError, ZeroDivisionError):
        assume(False)
    assert dims.evaluate(value, env) == expected


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(TREES, ENVIRONMENTS)
def test_no_size_is_beyond_its_bounds(tree, env):
    try:
        expected, value = _number(tree, env), _symbolic(tree)
    except (Invalid, ValueError, ZeroDivisionError):
        assume(False)
    low, high = dims.bounds(value)
    assert low is None or low <= expected
    assert high is None or expected <= high


def test_what_is_left_behind_a_cut_is_one_formula_however_it_is_written():
    n = symbol("n")
    kept = dims.minimum(n, 1)
    assert n - kept == -(kept - n) == dims.maximum(n - 1, 0)
    assert dims.equal(-(n - kept), kept - n) is True


def test_nothing_times_an_open_size_is_nothing():
    n = symbol("n")
    nothing = n * (1 // (n + 2))
    assert dims.bounds(nothing) == dims.bounds(nothing * -1) == (0, 0)
    rest = 1 % (n + 2)
    assert dims.minimum(0, rest) == dims.minimum(rest, 0) == 0


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(TREES)
def test_text_is_parsed_to_the_same_dimension(tree):
    try:
        value = _symbolic(tree)
    except (ValueError, ZeroDivisionError):
        assume(False)
    assert dims.parse(str(value), NAMES) == value


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(TREES, ENVIRONMENTS)
def test_substituting_numbers_evaluates(tree, env):
    try:
        expected, value = _number(tree, env), _symbolic(tree)
    except (Invalid, ValueError, ZeroDivisionError):
        assume(False)
    assert dims.substitute(value, env) == expected


def test_images_of_more_channels_than_are_taken_have_fewer_pixels():
    assert [dims.usual(axis, ["n", "c", "h", "w"]) for axis in range(4)] == [1, 3, 224, 224]
    assert [dims.usual(axis, [None, 3, None, None]) for axis in (0, 2, 3)] == [1, 224, 224]
    assert {dims.usual(axis, ["n", 64, "h", "w"]) for axis in (2, 3)} == {dims.FEATURES}
    assert {dims.usual(axis, ["n", 64, "d", "h", "w"]) for axis in (2, 3, 4)} == {dims.FEATURES}
    assert dims.usual(2, ["n", 8, "past", 64]) == 224  # heads, of a cache of keys
    assert dims.usual(2, ["n", 64, "steps"]) == dims.usual(1, ["n", "steps"]) == dims.LENGTH
    assert dims.usual(0, []) == 1


@pytest.mark.parametrize(
    "before, axis, after, found",
    [
        ((2, 6, 5), 1, (2, 1, 6, 5), 2),
        ((n, m, 5), 1, (n, m, 1, 5), 1),
        ((n * m, 5), 1, (n, m, 5), 2),
        ((n, m, 6), 2, (n, m, 2, 3), None),
        ((2, 6, 5), 1, (6, 2, 5), None),
        ((0, 3, 5), 1, (0, 3, 5), 1),
        ((5, 0, 4), 0, (5, 0, 7), None),
        ((5, 3, 0), 1, (7, 3, 0), None),
        ((0, 5, 3, 0), 1, (0, 7, 5, 0), None),
    ],
)
def test_an_axis_stays_under_another_shape_if_as_much_is_around_it(before, axis, after, found):
    assert dims.reshaped_axis(before, axis, after) == found


def test_a_factor_that_is_typically_nothing_does_not_take_the_others_along():
    nothing = dims.maximum(dims.symbol("n") - 1000, 0)
    assert dims.typical(nothing) == 1
    assert dims.typical(nothing * 640) == 640


def test_a_size_is_typical_where_the_user_says_so():
    n, seq = dims.symbol("n"), dims.symbol("seq", typical=1000)
    assert dims.typical(n * seq) == dims.LENGTH * 1000
    assert dims.typical(seq - 2000) == 1


def test_within_ones_every_size_that_only_the_run_knows_is_1():
    n = dims.symbol("n", typical=1000)
    with dims.of_ones():
        assert dims.typical(n) == 1 and dims.typical(3 * n + 4) == 7 and dims.typical(5) == 5
    assert dims.typical(n) == 1000


def test_within_many_no_size_that_only_the_run_knows_is_few():
    n, b = dims.symbol("n", typical=1000), dims.symbol("b", typical=1)
    with dims.of_many(64):
        assert dims.typical(n) == 1000 and dims.typical(b) == 64 and dims.typical(5) == 5
    assert dims.typical(b) == 1
