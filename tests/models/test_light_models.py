"""The onnx package's light models, with their constants and with random weights, agree with ONNX Runtime."""

import pytest
from support.agreement import check_model
from support.sources import light_model, light_models, randomised


@pytest.mark.slow
@pytest.mark.parametrize("name", light_models())
def test_a_light_model_agrees(name, tmp_path):
    check_model(light_model(name), tmp_path, [{}])


@pytest.mark.slow
@pytest.mark.parametrize("name", light_models())
def test_a_light_model_with_random_weights_agrees(name, tmp_path):
    check_model(randomised(name), tmp_path, [{}], classification=True)
