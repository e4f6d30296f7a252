import json
import wave

import numpy as np
from basic_pitch import FilenameSuffix, build_icassp_2022_model_path
from basic_pitch.inference import predict

rate = 22050
time = np.arange(rate) / rate
notes = [np.sin(2 * np.pi * f * time) + 0.4 * np.sin(4 * np.pi * f * time) for f in (261.6, 329.6, 392.0)]
samples = (np.concatenate(notes) * 0.4 * 32767).astype(np.int16)
with wave.open("notes.wav", "wb") as file:
    file.setnchannels(1)
    file.setsampwidth(2)
    file.setframerate(rate)
    file.writeframes(samples.tobytes())
output, _, events = predict("notes.wav", build_icassp_2022_model_path(FilenameSuffix.onnx))
sums = {name: float(np.mean(value)) for name, value in output.items()}
print(json.dumps({"means": sums, "notes": sorted(int(event[2]) for event in events)}))
