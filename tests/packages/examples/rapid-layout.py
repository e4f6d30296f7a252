import json

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapid_layout import RapidLayout

page = Image.new("RGB", (600, 800), "white")
draw = ImageDraw.Draw(page)
draw.text((150, 30), "A short report", fill="black", font=ImageFont.load_default(40))
for row in range(16):
    draw.text((50, 110 + 22 * row), "words in a paragraph that goes on and on " * 2, fill="black")
draw.rectangle((100, 500, 500, 700), fill=(90, 140, 200))
draw.text((180, 720), "Figure 1. A blue rectangle", fill="black", font=ImageFont.load_default(16))
found = RapidLayout()(np.asarray(page))
print(json.dumps([list(found.class_names), [float(s) for s in found.scores], np.round(found.boxes).tolist()]))
