import json

import numpy as np
from detect_tumor import TumorDetector
from PIL import Image

rng = np.random.default_rng(0)
y, x = np.mgrid[:224, :224]
head = (((x - 112) / 80) ** 2 + ((y - 112) / 95) ** 2 < 1) * 120.0
head += (((x - 140) / 14) ** 2 + ((y - 90) / 12) ** 2 < 1) * 90
image = Image.fromarray(np.clip(head + rng.normal(0, 6, head.shape), 0, 255).astype(np.uint8)).convert("RGB")
image.save("head.png")
result = TumorDetector().predict("head.png")
print(json.dumps(json.loads(result.model_dump_json())))
