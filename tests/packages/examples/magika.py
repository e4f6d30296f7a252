import json

from magika import Magika

texts = {
    "python": b"import os\n\ndef main():\n    print(os.getcwd())\n\nif __name__ == '__main__':\n    main()\n"
    * 4,
    "c": b'#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n' * 6,
    "json": b'{"a": [1, 2, 3], "b": {"c": null, "d": "text"}}' * 8,
    "html": b"<!doctype html><html><head><title>x</title></head><body><p>text</p></body></html>" * 5,
    "noise": bytes(range(256)) * 16,
}
magika = Magika()
results = {name: magika.identify_bytes(text) for name, text in texts.items()}
print(json.dumps({name: [str(r.output.label), float(r.score)] for name, r in results.items()}))
