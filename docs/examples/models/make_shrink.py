"""Makes shrink.onnx: bitmaps of 32 x 32 dots (0 or 1) to images of 8 x 8, in which every number counts the
dots of a block of 4 x 4. So were the images made that digits.onnx learned from."""

from pathlib import Path

import onnx.parser

MODEL = """
    <ir_version: 8, opset_import: ["" : 17]>
    shrink (uint8[count, 32, 32] bitmap) => (float[count, 8, 8] image) {
        blocks = Constant <value = int64[5] {0, 8, 4, 8, 4}> ()
        within = Constant <value = int64[2] {2, 4}> ()
        dots = Cast <to = 1> (bitmap)
        parts = Reshape (dots, blocks)
        image = ReduceSum <keepdims = 0> (parts, within)
    }
"""

if __name__ == "__main__":
    model = onnx.parser.parse_model(MODEL)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, Path(__file__).with_name("shrink.onnx"))
