import json

import numpy as np
from captcha_recognizer.slider import Slider
from PIL import Image, ImageDraw

pixels = np.random.default_rng(0).normal(128, 20, (160, 320, 3)).clip(0, 255).astype(np.uint8)
image = Image.fromarray(pixels)
ImageDraw.Draw(image).rectangle((200, 60, 245, 105), fill=(40, 40, 40), outline="white", width=2)
ImageDraw.Draw(image).rectangle((10, 60, 55, 105), fill=(200, 190, 60), outline="white", width=2)
slider = Slider()
box, confidence = slider.identify(np.asarray(image), conf=0.05)
print(json.dumps({"box": [float(n) for n in box], "confidence": confidence}))
