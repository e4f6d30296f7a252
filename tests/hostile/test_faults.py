"""Every allocation of every kind of model fails once: a status each time, the next call works, nothing is
left. The same with the runtime under the address and undefined-behaviour sanitizers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import faults
from support.handmade_models import sanitizing_compiler

import onnxc


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", faults.allocator(folder))
        faults.compile_models(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", faults.MODELS)
def test_every_refused_allocation_is_survived(folder, name):
    assert faults.refuse_each(folder, name) >= 2


@pytest.mark.slow
def test_text_that_loops_carry_takes_no_more_memory_in_more_rounds_and_runs(folder):
    most, in_use = faults.counters(folder, "most", "in_use")
    words = np.array(["a", "b"], object)
    with onnxc.load(folder / "carried_text.so") as model:
        blocks = []
        for rounds in (20, 20, 2000, 20):
            most.value = before = in_use.value
            last, other = model.run(None, {"x": words, "n": np.int64(rounds), "m": np.int64(3)})
            assert last.tolist() == [f"{rounds - 1}{k}" for k in range(3)]
            assert other.tolist() == [f"{rounds - 2}{k}" for k in range(3)]
            del last, other
            blocks.append((most.value - before, in_use.value))
    assert len(set(blocks[1:])) == 1


@pytest.mark.slow
def test_text_that_loops_collect_is_in_few_blocks(folder):
    most, in_use = faults.counters(folder, "most", "in_use")
    with onnxc.load(folder / "collected_text.so") as model:
        before = in_use.value
        _, rows = model.run(None, {"x": np.array(["a"], object), "n": np.int64(1000)})
    assert rows[:, 0].tolist() == [f"a{k}" for k in range(1000)]
    assert most.value < before + 60


@pytest.mark.slow
def test_every_refused_allocation_is_survived_without_a_wrong_step(tmp_path):
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    program = [sys.executable, str(Path(faults.__file__))]
    compiler = faults.allocator(tmp_path, sanitizing_compiler(tmp_path))
    environment = {**os.environ, "CC": compiler}
    subprocess.run([*program, "compile", tmp_path], env=environment, check=True, timeout=600)
    environment.update(LD_PRELOAD=found.stdout.strip(), ASAN_OPTIONS="detect_leaks=0", PYTHONMALLOC="malloc")
    done = subprocess.run(
        [*program, "run", tmp_path], env=environment, capture_output=True, text=True, timeout=900
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(faults.MODELS)
