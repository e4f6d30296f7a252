"""Threads: any number of them gives the same bits, and none is relied upon."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from support.handmade_models import HERE, NOWHERE, cc

from onnxc.codegen.abi import ERRORS
from onnxc.errors import RunError
from onnxc.loading.loader import load


def inputs(n: int, fail_at: int = NOWHERE):
    random = np.random.default_rng(n)
    return (random.standard_normal(n, np.float32), random.standard_normal(n, np.float32), np.int64(fail_at))


def test_results_are_the_same_bits_for_any_number_of_threads(affine_path):
    sizes = (1, 16, 100, 1009, 20000)
    serial = load(affine_path, threads=1)
    wanted = [serial(*inputs(n)).tobytes() for n in sizes]
    for threads in range(2, 9):
        model = load(affine_path, threads=threads)
        for _ in range(5):
            assert [model(*inputs(n)).tobytes() for n in sizes] == wanted


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_the_lowest_failing_part_is_reported(affine_path, threads):
    model = load(affine_path, threads=threads)
    for fail_at in (0, 1, 499, 500, 999):
        with pytest.raises(RunError, match=f"index {fail_at} is out of range") as caught:
            model(*inputs(1000, fail_at))
        assert caught.value.status == ERRORS["index_out_of_range"]


def test_threads_that_sleep_wake_up(affine_path):
    import time

    model = load(affine_path, threads=3)
    wanted = load(affine_path, threads=1)(*inputs(5000)).tobytes()
    for _ in range(5):
        time.sleep(0.01)  # longer than they spin
        assert model(*inputs(5000)).tobytes() == wanted


def test_concurrent_calls_share_threads_and_agree(affine_path):
    model, wanted, wrong = load(affine_path, threads=4), {}, []
    for n in (200, 3000, 40000):
        wanted[n] = load(affine_path, threads=1)(*inputs(n)).tobytes()

    def work() -> None:
        for _ in range(20):
            wrong.extend(n for n in wanted if model(*inputs(n)).tobytes() != wanted[n])

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_the_child_of_a_fork_has_threads_of_its_own(affine_path):
    model = load(affine_path, threads=3)
    wanted = model(*inputs(5000)).tobytes()
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            same = all(model(*inputs(5000)).tobytes() == wanted for _ in range(3))
            threads = len(os.listdir("/proc/self/task"))
            model.close()
            os._exit(10 + threads if same else 1)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [13, 13, 13]  # the caller and two workers
    assert model(*inputs(5000)).tobytes() == wanted


def test_without_threads_a_model_runs_serially(affine_path):
    program = f"""
import resource, numpy as np
from onnxc.loading.loader import load
model = load({str(affine_path)!r}, threads=4)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
import os
if os.getuid() == 0:  # the limit does not bind root
    os.setuid(65534)
x = np.arange(5000, dtype=np.float32)
result = model(x, x, np.array({NOWHERE}))  # other values import modules, which this user may not read
assert (result == 4 * x).all()
print(len(os.listdir("/proc/self/task")))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr


def test_workers_leave_signals_to_the_program(affine_path):
    model = load(affine_path, threads=3)
    model(*inputs(5000))
    mine = str(threading.get_native_id())
    known = {str(thread.native_id) for thread in threading.enumerate()} | {mine}
    masks = []
    for task in set(os.listdir("/proc/self/task")) - known:
        with open(f"/proc/self/task/{task}/status") as file:
            masks += [int(line.split()[1], 16) for line in file if line.startswith("SigBlk")]
    assert sum(mask & 1 << 14 != 0 for mask in masks) >= 2  # SIGTERM is blocked


def test_the_callers_rounding_mode_changes_no_result_and_is_kept(affine_path):
    import ctypes

    libm = ctypes.CDLL("libm.so.6")
    wanted = load(affine_path, threads=2)(*inputs(1000)).tobytes()
    model = load(affine_path, threads=2)
    x, upward = inputs(1000), 0x800
    libm.fesetround(upward)
    result = model(*x)
    mode = libm.fegetround()
    libm.fesetround(0)
    assert result.tobytes() == wanted and mode == upward


@pytest.fixture(scope="module", params=[(), ("-fsanitize=thread", "-g")], ids=["plain", "sanitized"])
def hammer(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("pools") / "pools"
    cc("-O1", *request.param, HERE / "pools.c", "-o", path, "-pthread", "-lm", "-ldl")
    return path


@pytest.mark.parametrize("threads, callers", [(2, 1), (3, 1), (8, 1), (3, 4)])
def test_every_part_runs_once_however_threads_meet(hammer, threads, callers):
    command = [hammer, str(threads), str(callers), "600"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_a_pool_ends_whatever_its_threads_were_about_to_sleep_through(hammer):
    done = subprocess.run([hammer, "end"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_threads_are_woken_for_work_that_is_worth_it(hammer):
    done = subprocess.run([hammer, "wake"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0 2 2\n"), done.stderr
