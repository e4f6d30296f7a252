"""The parts of a hand-written model, for tests of how libraries are made of them."""

from __future__ import annotations

import pytest
from support.handmade_models import AFFINE, HERE, Parts, scale_bytes


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> Parts:
    return Parts(tmp_path_factory.mktemp("parts") / "work", HERE / "affine.c", AFFINE, scale_bytes(3))
