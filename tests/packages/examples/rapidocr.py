import json

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr import RapidOCR

image = Image.new("RGB", (480, 200), "white")
for row, text in enumerate(("Hello world 2026", "onnxc compiles models", "3.14159")):
    ImageDraw.Draw(image).text((20, 10 + 60 * row), text, fill="black", font=ImageFont.load_default(32))
found = RapidOCR()(np.asarray(image))
boxes = np.asarray(found.boxes).round().astype(int).tolist()
print(json.dumps([list(found.txts), [float(score) for score in found.scores], boxes]))
