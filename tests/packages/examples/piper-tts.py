import json

from piper.hebrew import NakdimonDiacritizer
from piper.tashkeel import TashkeelDiacritizer

arabic = TashkeelDiacritizer()
hebrew = NakdimonDiacritizer()
found = [arabic(text) for text in ("مرحبا بالعالم", "هذا نص قصير للتجربة", "اللغة العربية جميلة جدا")]
found += [hebrew(text) for text in ("שלום עולם", "זה משפט קצר לבדיקה")]
print(json.dumps(found))
