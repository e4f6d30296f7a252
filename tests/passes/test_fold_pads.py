"""fold_pads: padding with zeros enters the convolution that reads it, other padding does not."""

import pytest
from support.pass_text import agrees, becomes, clean, stays

from onnxc.passes.fold_pads import fold_pads

PADDED = """graph g(%x: float32[1, 3, h, w], %k: float32[8, 3, 3, 3]) {
    %value = constant float32[] (VALUE)
    %0 = pad(%x, %value) mode=constant BEFORE_AND_AFTER
    %1 = conv(%0, %k) strides=(2, 2) PADS dilations=(1, 1)
    return %1
}"""


def padded(before_and_after="before=(0, 0, 0, 0) after=(0, 0, 1, 1)", pads="pads=(0, 0, 0, 0)", value="0.0"):
    text = PADDED.replace("BEFORE_AND_AFTER", before_and_after).replace("PADS", pads)
    return text.replace("VALUE", value)


def test_zeros_around_an_image_become_padding():
    becomes(
        clean(fold_pads),
        padded(),
        """graph g(%x: float32[1, 3, h, w], %k: float32[8, 3, 3, 3]) {
        %1 = conv(%x, %k) strides=(2, 2) pads=(0, 0, 1, 1) dilations=(1, 1)
        return %1
    }""",
    )


@pytest.mark.parametrize(("value", "folds"), [(7, True), (0, False)])
def test_what_stands_for_zero_becomes_padding(value, folds):
    text = f"""graph g(%x: uint8[1, 3, 6, 6], %k: int8[8, 3, 3, 3]) {{
        %value = constant uint8[] ({value})
        %0 = pad(%x, %value) mode=constant before=(0, 0, 0, 0) after=(0, 0, 1, 1)
        %1 = conv(%0, %k) strides=(2, 2) pads=(0, 0, 0, 0) dilations=(1, 1) accumulate=int32 zero=7
        return %1
    }}"""
    found = agrees(clean(fold_pads), text)
    assert (len(found.nodes) == 1) == folds


def test_padding_adds_up():
    becomes(
        clean(fold_pads),
        padded("before=(0, 0, 1, 2) after=(0, 0, 3, 4)", "pads=(1, 1, 1, 1)"),
        """graph g(%x: float32[1, 3, h, w], %k: float32[8, 3, 3, 3]) {
        %1 = conv(%x, %k) strides=(2, 2) pads=(2, 3, 4, 5) dilations=(1, 1)
        return %1
    }""",
    )


@pytest.mark.parametrize("size", [(3, 5), (4, 4), (7, 3)])
def test_padding_changes_no_result(size):
    text = padded("before=(0, 0, 1, 0) after=(0, 0, 0, 2)", "pads=(0, 1, 1, 0)")
    agrees(fold_pads, text, h=size[0], w=size[1])


def test_padding_with_other_values_stays():
    stays(clean(fold_pads), padded(value="1.0"))
    stays(clean(fold_pads), padded(value="nan"))


def test_padding_with_a_value_that_the_run_tells_stays():
    stays(
        clean(fold_pads),
        """graph g(%x: float32[1, 3, 8, 8], %v: float32[], %k: float32[8, 3, 3, 3]) {
        %0 = pad(%x, %v) mode=constant before=(0, 0, 1, 1) after=(0, 0, 1, 1)
        %1 = conv(%0, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        return %1
    }""",
    )


def test_repeated_edges_stay():
    stays(
        clean(fold_pads),
        """graph g(%x: float32[1, 3, 8, 8], %k: float32[8, 3, 3, 3]) {
        %0 = pad(%x) mode=edge before=(0, 0, 1, 1) after=(0, 0, 1, 1)
        %1 = conv(%0, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        return %1
    }""",
    )


def test_channels_and_images_of_zeros_stay():
    stays(clean(fold_pads), padded("before=(1, 0, 0, 0) after=(0, 0, 1, 1)"))
    stays(
        clean(fold_pads),
        """graph g(%x: float32[1, 3, 8, 8], %k: float32[8, 4, 3, 3]) {
        %zero = constant float32[] (0.0)
        %0 = pad(%x, %zero) mode=constant before=(0, 1, 0, 0) after=(0, 0, 1, 1)
        %1 = conv(%0, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        return %1
    }""",
    )


def test_cropping_is_no_reason_to_leave_padding():
    becomes(
        clean(fold_pads),
        padded("before=(0, 0, 2, 2) after=(0, 0, 2, 2)", "pads=(-1, -1, -1, -1)"),
        """graph g(%x: float32[1, 3, h, w], %k: float32[8, 3, 3, 3]) {
        %1 = conv(%x, %k) strides=(2, 2) pads=(1, 1, 1, 1) dilations=(1, 1)
        return %1
    }""",
    )


def test_an_image_that_is_cropped_further_than_it_was_padded_stays():
    stays(clean(fold_pads), padded(pads="pads=(-1, -1, -2, -2)"))


def test_padding_of_symbolic_size_stays():
    stays(clean(fold_pads), padded("before=(0, 0, h, 0) after=(0, 0, 0, 0)"))


def test_a_transposed_convolution_keeps_its_padding():
    stays(
        clean(fold_pads),
        """graph g(%x: float32[1, 3, 8, 8], %k: float32[3, 8, 3, 3]) {
        %zero = constant float32[] (0.0)
        %0 = pad(%x, %zero) mode=constant before=(0, 0, 1, 1) after=(0, 0, 1, 1)
        %1 = conv(%0, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1) transposed=true
        return %1
    }""",
    )


def test_a_padded_image_that_others_read_stays_for_them():
    becomes(
        clean(fold_pads),
        """graph g(%x: float32[1, 3, 8, 8], %k: float32[8, 3, 3, 3]) {
        %zero = constant float32[] (0.0)
        %0 = pad(%x, %zero) mode=constant before=(0, 0, 1, 1) after=(0, 0, 1, 1)
        %1 = conv(%0, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        return %0, %1
    }""",
        """graph g(%x: float32[1, 3, 8, 8], %k: float32[8, 3, 3, 3]) {
        %zero = constant float32[] (0.0)
        %0 = pad(%x, %zero) mode=constant before=(0, 0, 1, 1) after=(0, 0, 1, 1)
        %1 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        return %0, %1
    }""",
    )


def test_zeros_of_integers_become_padding():
    becomes(
        clean(fold_pads),
        """graph g(%x: uint8[1, 3, 8, 8], %k: int8[8, 3, 3, 3]) {
        %zero = constant uint8[] (0)
        %0 = pad(%x, %zero) mode=constant before=(0, 0, 1, 1) after=(0, 0, 1, 1)
        %1 = conv(%0, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1) accumulate=int32
        return %1
    }""",
        """graph g(%x: uint8[1, 3, 8, 8], %k: int8[8, 3, 3, 3]) {
        %1 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) accumulate=int32
        return %1
    }""",
    )


def test_padding_enters_a_convolution_of_a_branch():
    becomes(
        clean(fold_pads),
        """graph g(%c: bool[], %x: float32[1, 1, 4], %k: float32[1, 1, 3]) {
        %0 = if(%c, %x, %k) then=(%a: float32[1, 1, 4], %b: float32[1, 1, 3]) {
            %zero = constant float32[] (0.0)
            %1 = pad(%a, %zero) mode=constant before=(0, 0, 1) after=(0, 0, 1)
            %2 = conv(%1, %b) strides=(1) pads=(0, 0) dilations=(1)
            return %2
        } otherwise=(%a: float32[1, 1, 4], %b: float32[1, 1, 3]) { return %a } : float32[1, 1, 4]
        return %0
    }""",
        """graph g(%c: bool[], %x: float32[1, 1, 4], %k: float32[1, 1, 3]) {
        %0 = if(%c, %x, %k) then=(%a: float32[1, 1, 4], %b: float32[1, 1, 3]) {
            %2 = conv(%a, %b) strides=(1) pads=(1, 1) dilations=(1)
            return %2
        } otherwise=(%a: float32[1, 1, 4], %b: float32[1, 1, 3]) { return %a } : float32[1, 1, 4]
        return %0
    }""",
    )
