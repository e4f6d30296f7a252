"""Small models of the architectures that people export, each in the forms in which they are deployed: they
agree with ONNX Runtime at several sizes, and give the same bits with any number of threads."""

import numpy as np
import pytest
from support import storage_forms
from support.architectures import ARCHITECTURES

import onnxc
from onnxc.commands.comparison import onnxruntime_session

#: form → (greatest, mean) difference from ONNX Runtime, as parts of the largest magnitude. Where values are
#: rounded to a grid, another order of a sum moves some of them by a step.
FORMS = {
    storage_forms.weights_behind_casts: (2e-5, 2e-6),
    storage_forms.half: (1e-2, 2e-3),
    storage_forms.qdq: (3e-2, 3e-3),
    storage_forms.qoperator: (3e-2, 3e-3),
    storage_forms.dynamic: (3e-2, 3e-3),
}
EVERY = pytest.mark.parametrize("name", ARCHITECTURES)
THREADS = 1, 2, 8


def by_onnxruntime(model):
    """As it is written: ONNX Runtime's own rewriting of quantised models rounds elsewhere."""
    return onnxruntime_session(model, threads=1, optimise=False)


def check(model, folder, feeds, greatest=2e-5, mean=2e-6, optimize="full"):
    library = onnxc.compile(model, folder / "model.so", optimize=optimize)
    rival = by_onnxruntime(model)
    loaded = [onnxc.load(library, threads=count) for count in THREADS]
    for run in feeds:
        results, *others = [compiled.run(None, run) for compiled in loaded]
        for other in others:
            assert [a.tobytes() for a in other] == [a.tobytes() for a in results]
        for got, expected in zip(results, rival.run(None, run), strict=True):
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
            far = np.abs(got.astype(np.float64) - expected) / np.abs(expected).max()
            assert far.max() <= greatest and far.mean() <= mean, (far.max(), far.mean())


@EVERY
def test_every_size_that_is_known_agrees(name, tmp_path):
    architecture = ARCHITECTURES[name]
    run = architecture.runs()[-1]
    check(architecture.model(run), tmp_path, [architecture.feeds(run)])


@EVERY
@pytest.mark.slow
def test_sizes_that_only_the_run_knows_agree(name, tmp_path):
    architecture = ARCHITECTURES[name]
    check(architecture.model(), tmp_path, map(architecture.feeds, architecture.runs()))


@EVERY
@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_every_form_agrees(name, form, tmp_path):
    architecture = ARCHITECTURES[name]
    feeds = [architecture.feeds(run) for run in architecture.runs()]
    whole = architecture.model()
    model = form(whole, storage_forms.values_of(whole, feeds[0]))
    check(model, tmp_path, feeds, *FORMS[form], optimize="fast")
