import json

import numpy as np
from speechmos.plcmos import PLCMOS

seconds = np.arange(3 * 16000) / 16000
sound = 0.3 * np.sin(2 * np.pi * 180 * seconds) * (np.sin(2 * np.pi * 3 * seconds) > 0)
sound += np.random.default_rng(0).normal(0, 0.02, sound.shape)
np.random.seed(1)
print(json.dumps(PLCMOS()(sound.clip(-1, 1))["plcmos"]))
