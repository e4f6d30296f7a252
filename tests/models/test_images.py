"""ImageDecoder: formats that are read here, damaged files of all formats, and libraries that are missing."""

import struct
import zlib

import numpy as np
import pytest
from onnx.backend.test.case.node import _image_decoder_data
from support.small_models import parsed

import onnxc
from onnxc.codegen.library import images
from onnxc.codegen.library.compiler import find_compiler
from onnxc.errors import CompileError
from onnxc.target import find_target

DECODE = """images (uint8[N] file) => (uint8[A,B,3] rgb, uint8[C,D,3] bgr, uint8[E,F,1] grey) {
    rgb = ImageDecoder (file)
    bgr = ImageDecoder <pixel_format = "BGR"> (file)
    grey = ImageDecoder <pixel_format = "Grayscale"> (file) }"""

PIXELS = np.random.default_rng(3).integers(0, 256, (5, 7, 3)).astype(np.uint8)
GREY = PIXELS[..., :1]


@pytest.fixture(scope="module")
def decode(tmp_path_factory):
    if missing := images.missing(find_target()):
        with pytest.raises(CompileError, match="ImageDecoder needs"):
            onnxc.compile(parsed(DECODE), tmp_path_factory.mktemp("images") / "images.so")
        pytest.skip(f"a model that decodes is refused here, as it should be: no {', '.join(missing)}")
    path = tmp_path_factory.mktemp("images") / "images.so"
    model = onnxc.load(onnxc.compile(parsed(DECODE), path))
    return lambda data: model.run(None, {"file": np.frombuffer(data, np.uint8)})


def bmp(bits, rows, palette=b"", height=None, packing=0, masks=b""):
    stride = [row + bytes(-len(row) % 4) for row in rows]
    start = 54 + len(masks) + len(palette)
    height = len(rows) if height is None else height
    head = struct.pack("<IiiHHIIiiII", 40, 7, height, 1, bits, packing, 0, 0, 0, len(palette) // 4, 0)
    return b"BM" + struct.pack("<IHHI", 0, 0, 0, start) + head + masks + palette + b"".join(stride)


def packed(values, bits):
    """Numbers of few bits in bytes, the first in the high ones."""
    text = "".join(f"{v:0{bits}b}" for v in values)
    text += "0" * (-len(text) % 8)
    return bytes(int(text[k : k + 8], 2) for k in range(0, len(text), 8))


def png(pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(
        ">IIBBBBB", pixels.shape[1], len(pixels), 8, {1: 0, 3: 2, 4: 6}[pixels.shape[2]], 0, 0, 0
    )
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


LOW = PIXELS[..., 0] >> 4
PALETTE = bytes(range(64))
COLOURS = np.frombuffer(PALETTE, np.uint8).reshape(16, 4)[:, 2::-1]
WORDS = (LOW.astype(np.uint16) << 11).astype("<u2")
EXACT = {
    "bmp of 24 bits": (bmp(24, [row[:, ::-1].tobytes() for row in PIXELS[::-1]]), PIXELS),
    "bmp from the top": (bmp(24, [row[:, ::-1].tobytes() for row in PIXELS], height=-5), PIXELS),
    "bmp of 4 bits": (bmp(4, [packed(row, 4) for row in LOW[::-1]], PALETTE), COLOURS[LOW]),
    "bmp of 1 bit": (bmp(1, [packed(row & 1, 1) for row in LOW[::-1]], PALETTE[:8]), COLOURS[LOW & 1]),
    "bmp with masks": (
        bmp(
            16,
            [row.tobytes() for row in WORDS[::-1]],
            packing=3,
            masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F),
        ),
        np.stack([(LOW * 255.0 + 15) // 31, LOW * 0, LOW * 0], -1).astype(np.uint8),
    ),
    "pnm of bytes": (b"P6 # colours\n7 5\n255\n" + PIXELS.tobytes(), PIXELS),
    "pnm of text": (b"P3 7 5 255 " + b" ".join(b"%d" % v for v in PIXELS.flat), PIXELS),
    "pgm": (b"P5\n7 5\n255\n" + GREY.tobytes(), GREY.repeat(3, 2)),
    "pgm of two bytes": (b"P5\n7 5\n65535\n" + (GREY.astype(">u2") * 257).tobytes(), GREY.repeat(3, 2)),
    "pbm": (
        b"P4\n7 5\n" + b"".join(packed(row & 1, 1) for row in LOW),
        np.where(LOW & 1, 0, 255)[..., None].repeat(3, 2).astype(np.uint8),
    ),
    "png": (png(PIXELS), PIXELS),
    "grey png": (png(GREY), GREY.repeat(3, 2)),
    "transparent png": (png(np.concatenate([PIXELS, GREY], -1)), PIXELS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_pixels_are_those_stored(decode, name):
    data, pixels = EXACT[name]
    rgb, bgr, grey = decode(data)
    np.testing.assert_array_equal(rgb, pixels)
    np.testing.assert_array_equal(bgr, pixels[..., ::-1])
    luma = pixels.astype(np.float64) @ [0.299, 0.587, 0.114]
    assert np.abs(grey[..., 0] - luma).max() <= 0.51


def files():
    """A file of every format."""
    for name, stored in vars(_image_decoder_data).items():
        if name.endswith("_rgb"):
            yield stored.data.tobytes()
    yield from (data for data, _ in EXACT.values())


def test_damaged_files_have_pixels_or_none(decode):
    random = np.random.default_rng(1)
    for data in files():
        for length in (1, 12, len(data) // 2, len(data) - 1):
            assert decode(data[:length])[0].shape[2] == 3
        for at in random.integers(len(data) // 2, len(data), 3):
            damaged = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
            assert decode(damaged)[0].shape[2] == 3


@pytest.mark.parametrize("data", [b"", b"P6 7 5 255\n", b"BM", b"GIF89a", bmp(24, [b""], height=1 << 30)])
def test_what_is_no_image_has_no_pixels(decode, data):
    assert [x.shape for x in decode(data)] == [(0, 0, 3), (0, 0, 3), (0, 0, 1)]


def test_missing_libraries_are_named_with_their_packages(tmp_path):
    with pytest.raises(
        CompileError, match=r"libwebp.*libjpeg-dev libpng-dev libtiff-dev libwebp-dev libopenjp2"
    ):
        images.require(find_target(), [*find_compiler(), "-nostdinc", "-isystem", str(tmp_path)])
