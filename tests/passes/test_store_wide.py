"""store_wide: 16-bit floats that somebody reads as float32 are stored as float32, rounded."""

from support.pass_text import agrees, becomes, clean, stays

from onnxc.passes.store_wide import store_wide


def test_what_is_read_wide_is_moved_and_stored_wide():
    text = """graph g(%x: float16[2, 3], %y: float16[4, 2]) {
        %0 = map(%x) { mul($0, $0) }
        %1 = transpose(%0) perm=(1, 0)
        %2 = concat(%1, %y) axis=0
        %3 = map(%2) { cast($0, float32) }
        return %3
    }"""
    becomes(
        clean(store_wide),
        text,
        """graph g(%x: float16[2, 3], %y: float16[4, 2]) {
        %0 = map(%x) { cast(mul($0, $0), float32) }
        %1 = transpose(%0) perm=(1, 0)
        %2 = map(%y) { cast($0, float32) }
        %3 = concat(%1, %2) axis=0
        return %3
    }""",
    )
    agrees(store_wide, text)


def test_who_reads_the_value_besides_rounds_what_is_wide():
    text = """graph g(%x: bfloat16[2, 3]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%0) { cast($0, float32) }
        %2 = map(%0, %x) { add($0, $1) }
        %3 = reduce(%0) kind=max axes=(1)
        %4 = reduce(%0) kind=sum axes=(1) body={ cast($0, float32) }
        return %1, %2, %3, %0, %4
    }"""
    becomes(
        clean(store_wide),
        text,
        """graph g(%x: bfloat16[2, 3]) {
        %0 = map(%x) { cast(exp($0), float32) }
        %1 = map(%0, %x) { add(cast($0, bfloat16), $1) }
        %2 = map(%0) { cast($0, bfloat16) }
        %3 = reduce(%2) kind=max axes=(1)
        %4 = reduce(%0) kind=sum axes=(1)
        return %0, %1, %3, %2, %4
    }""",
    )
    agrees(store_wide, text)


def test_values_that_nobody_makes_or_nobody_reads_wide_stay_narrow():
    stays(
        store_wide,
        """graph g(%x: float16[2, 3], %i: int64[2]) {
        %0 = map(%x) { cast($0, float32) }
        %1 = gather(%x, %i) form=axis axis=1
        %2 = map(%1) { exp($0) }
        %3 = transpose(%2) perm=(1, 0)
        return %0, %3
    }""",
    )


def test_what_only_moves_an_input_moves_it_narrow():
    stays(
        store_wide,
        """graph g(%x: float16[2, 6]) {
        %0 = reshape(%x) shape=(4, 3)
        %1 = transpose(%0) perm=(1, 0)
        %2 = map(%1) { cast($0, float32) }
        return %2
    }""",
    )


def test_rows_that_are_gathered_are_gathered_wide():
    text = """graph g(%x: float16[2, 3], %i: int64[4]) {
        %0 = map(%x) { exp($0) }
        %1 = gather(%0, %i) form=axis axis=0
        %2 = map(%1) { cast($0, float32) }
        return %2
    }"""
    becomes(
        clean(store_wide),
        text,
        """graph g(%x: float16[2, 3], %i: int64[4]) {
        %0 = map(%x) { cast(exp($0), float32) }
        %1 = gather(%0, %i) form=axis axis=0
        return %1
    }""",
    )
