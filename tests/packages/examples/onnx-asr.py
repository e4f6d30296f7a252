import json

import numpy as np
from onnx_asr.preprocessors.preprocessor import OnnxPreprocessor
from onnx_asr.preprocessors.resampler import Resampler

rng = np.random.default_rng(0)
seconds = np.arange(16000) / 16000
waves = np.stack([np.sin(2 * np.pi * tone * seconds) for tone in (220, 440)]).astype(np.float32)
waves += rng.normal(0, 0.05, waves.shape).astype(np.float32)
lengths = np.array([16000, 12000])
found = {}
for name in ("gigaam_v2", "gigaam_v3", "kaldi", "nemo80", "nemo128", "whisper80", "whisper128", "wespeaker"):
    features, sizes = OnnxPreprocessor(name, {})(waves, lengths)
    found[name] = [
        list(features.shape),
        sizes.tolist(),
        features[:, ::7, ::17].astype(float).round(4).tolist(),
    ]
for rate in (8000, 11025, 22050, 24000, 32000, 44100, 48000):
    made, sizes = Resampler(16000, {})(waves, lengths, rate)
    found[str(rate)] = [list(made.shape), sizes.tolist(), made[:, ::101].astype(float).tolist()]
print(json.dumps(found))
