import json

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr_onnxruntime import RapidOCR

image = Image.new("RGB", (480, 200), "white")
for row, text in enumerate(("Hello world 2026", "onnxc compiles models", "3.14159")):
    ImageDraw.Draw(image).text((20, 10 + 60 * row), text, fill="black", font=ImageFont.load_default(32))
result, _ = RapidOCR()(np.asarray(image))
print(json.dumps([[text, float(score), np.asarray(box).astype(int).tolist()] for box, text, score in result]))
