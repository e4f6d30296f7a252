"""Random networks compute what ONNX Runtime computes, whatever kernels, layouts and borders they are given,
and the same bits with any number of threads.

The examples are the same in every run; `ONNXC_DRAWS=N` draws N for each target."""

import os

import pytest
from support import random_networks, random_transformers
from support.agreement import rival, same

import onnxc
from onnxc.target import LEVELS, runs_here

MORE = int(os.environ.get("ONNXC_DRAWS", 0))
TARGETS = ["native", *(name for name, level in LEVELS.items() if runs_here(level))]
EXAMPLES = [
    (target, 1000 * k + seed)
    for k, target in enumerate(TARGETS)
    for seed in range(MORE or (12 if target == "native" else 4))
]


@pytest.mark.parametrize("kind", [random_networks, random_transformers], ids=["images", "tokens"])
@pytest.mark.parametrize("target, seed", EXAMPLES)
def test_networks_compute_the_same_at_every_size(tmp_path, kind, target, seed):
    model, runs = kind.network(seed)
    library, session = onnxc.compile(model, tmp_path / "network.so", target=target), rival(model)
    alone, together = (onnxc.load(library, threads=count) for count in (1, 2 + seed % 3))
    for feeds in runs:
        results = alone.run(None, feeds)
        for got, shared in zip(results, together.run(None, feeds), strict=True):
            assert got.tobytes() == shared.tobytes()
        for got, expected in zip(results, session.run(None, feeds), strict=True):
            same(got, expected, 1e-4)
