"""Taps that reach an image."""

from onnxc.codegen.tiles.taps import KnownTaps


def test_a_tile_uses_the_taps_that_reach_the_image_from_any_of_its_pixels():
    taps = KnownTaps(3, 1, 12, 12, 16, 16)
    assert [taps.between(y, y) for y in (0, 3, 4, 11, 12, 15)] == [
        (1, 3),
        (1, 3),
        (1, 2),
        (1, 2),
        (0, 2),
        (0, 2),
    ]
    assert taps.between(0, 15) == (0, 3) and taps.used(1) == 24 and taps.used(16) == 3
    assert KnownTaps(3, 1, 18, 18, 16, 16).used(1) == 16
