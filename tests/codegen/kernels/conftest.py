"""Kernels are run in memory behind which nobody may read or write."""

import pytest
from support import harness
from support.guarded import guarded


@pytest.fixture(autouse=True)
def forbid_the_memory_behind_operands(monkeypatch):
    monkeypatch.setattr(harness, "aligned", guarded)
