import io
import json

import ddddocr
import numpy as np
from PIL import Image, ImageDraw, ImageFont


def picture(text: str, size: tuple[int, int] = (120, 40)) -> bytes:
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((10, 4), text, fill="black", font=ImageFont.load_default(28))
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


found = {}
for text in ("ab12", "Q7xK", "9"):
    found[text] = ddddocr.DdddOcr(show_ad=False).classification(picture(text))
    found[f"{text} old"] = ddddocr.DdddOcr(old=True, show_ad=False).classification(picture(text))
    found[f"{text} beta"] = ddddocr.DdddOcr(beta=True, show_ad=False).classification(picture(text))
reader = ddddocr.DdddOcr(show_ad=False)
reader.set_ranges(6)
spread = reader.classification(picture("ab12"), probability=True)
numbers = {str(name): np.asarray(value).ravel()[:50].tolist() for name, value in spread.items()}
found["probabilities"] = numbers
detector = ddddocr.DdddOcr(det=True, ocr=False, show_ad=False)
found["detection"] = [[int(n) for n in box] for box in detector.detection(picture("A  B", (300, 150)))]
slide = ddddocr.DdddOcr(det=False, ocr=False, show_ad=False)
piece, whole = picture("A", (40, 40)), picture("x A", (200, 60))
found["slide"] = slide.slide_match(piece, whole, simple_target=True)["target"]
print(json.dumps(found, default=int))
