"""Models exported from other frameworks agree with ONNX Runtime: those in the folder that ONNXC_ZOO names.

They are too large to keep and take the frameworks to make, so without a folder this file is not collected;
`test_architectures.py` holds small ones of the same architectures.
"""

import numpy as np
import pytest
from support.agreement import check_model
from support.sources import ZOO


def text(batch, length):
    return {"input_ids": (batch, length), "attention_mask": (batch, length)}


def decoding(past):
    shapes = {f"past_{k}_{side}": (1, 12, past, 64) for k in range(12) for side in "kv"}
    return {"attention_mask": (1, past + 1), **shapes}


def whole_mask(shapes):
    return (
        {"attention_mask": np.ones(shapes["attention_mask"], np.int64)} if "attention_mask" in shapes else {}
    )


SIZES = {
    "minilm": [text(1, 128), text(3, 17)],
    "bert_base": [text(1, 32), text(2, 9)],
    "distilbert": [text(1, 32), text(2, 9)],
    "gpt2_decode": [decoding(16), decoding(33)],
}


@pytest.mark.parametrize("path", sorted(ZOO.glob("*.onnx")), ids=lambda path: path.stem)
def test_an_exported_model_agrees(path, tmp_path):
    check_model(path, tmp_path, SIZES.get(path.stem, [{}]), given=whole_mask)
