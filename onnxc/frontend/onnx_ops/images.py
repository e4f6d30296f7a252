"""Import rule of ImageDecoder, a call of the runtime."""

from __future__ import annotations

from ...ir import ops
from ...ir.graph import TensorType
from ..rules import onnx_op
from .common import one_of

_FORMATS = ("RGB", "BGR", "Grayscale")


@onnx_op(since=20)
def ImageDecoder(b, encoded_stream, *, pixel_format="RGB"):
    one_of(pixel_format, _FORMATS, "pixel_format")
    if encoded_stream.rank != 1:
        raise ops.TypeMismatch(f"its input is {encoded_stream.type} where the bytes of a file are needed")
    channels = 1 if pixel_format == "Grayscale" else 3
    type_ = TensorType("uint8", (b.fresh("height"), b.fresh("width"), channels))
    return b.call("decode_image", [encoded_stream], [type_], [_FORMATS.index(pixel_format)])[0]
