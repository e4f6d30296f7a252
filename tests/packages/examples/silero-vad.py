import json

import numpy as np
import torch
from silero_vad import get_speech_timestamps, load_silero_vad

model = load_silero_vad(onnx=True)
rate = 16000
time = np.arange(2 * rate) / rate
voice = sum(np.sin(2 * np.pi * 140 * k * time) / k for k in range(1, 20)) * (np.sin(2 * np.pi * 4 * time) > 0)
sound = torch.from_numpy(np.concatenate([np.zeros(rate), voice, np.zeros(rate)]).astype(np.float32) * 0.2)
scores = [float(model(sound[k : k + 512], rate)) for k in range(0, len(sound) - 512, 512)]
model.reset_states()
print(json.dumps({"scores": scores, "speech": get_speech_timestamps(sound, model, threshold=0.2)}))
