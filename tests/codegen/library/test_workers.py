"""Child processes that run LLVM: kept warm, lost without harm, gone with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from onnxc.codegen.library import objects, workers
from onnxc.errors import CompileError
from onnxc.target import find_target

TARGET = find_target()
TEXT = "define i32 @f{0}() {{\n  ret i32 {0}\n}}\n"
FATAL = 'module asm ".nonsense"\n'  # LLVM has no parser for it here, and aborts


@pytest.fixture(autouse=True)
def nothing_is_there_before(monkeypatch, tmp_path):
    monkeypatch.setenv("ONNXC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def apart(monkeypatch):
    """Every module becomes an object of its own, however small."""
    monkeypatch.setattr(objects, "GROUP", 0)


@pytest.fixture
def generate(tmp_path):
    def made(*texts, jobs=2):
        with objects.CodeGeneration(tmp_path, jobs) as generation:
            for number, text in enumerate(texts):
                generation.add(f"m{number}", text, TARGET.triple, TARGET.processor)
            return generation.finish()

    return made


def idle() -> list[int]:
    return [worker.process.pid for worker in workers.idle()]


def test_a_worker_is_used_again(generate):
    generate(TEXT.format(1), jobs=1)
    before = idle()
    generate(TEXT.format(2), jobs=1)
    assert idle() == before and len(before) >= 1


def test_objects_come_in_the_order_of_their_modules(generate, apart):
    made = generate(*(TEXT.format(k) for k in range(20)))
    assert [path.name for path in made] == [f"m{k}.o" for k in range(20)]
    assert len({path.read_bytes() for path in made}) == 20


def test_text_that_llvm_refuses_is_an_error_and_the_worker_stays(generate):
    generate(TEXT.format(1), jobs=1)
    before = idle()
    with pytest.raises(CompileError, match=r"code generation failed: .*expected"):
        generate("define i32 @f( {", jobs=1)
    assert idle() == before


def test_an_abort_of_llvm_ends_the_worker_alone(generate):
    with pytest.raises(CompileError, match=r"code generation ended with signal 6: .*LLVM ERROR"):
        generate(FATAL, jobs=1)
    assert len(generate(TEXT.format(1))) == 1


def test_a_worker_that_was_killed_while_idle_is_replaced(generate, apart):
    generate(TEXT.format(1))
    for worker in workers.idle():
        worker.process.kill()
        worker.process.wait()
    assert len(generate(TEXT.format(1), TEXT.format(2))) == 2


def test_a_worker_that_ended_while_a_thread_waited_for_more_is_replaced(tmp_path, apart):
    with objects.CodeGeneration(tmp_path, 1) as generation:
        generation.add("m0", TEXT.format(1), TARGET.triple, TARGET.processor)
        while not (tmp_path / "m0.o").exists():
            time.sleep(0.01)
        (worker,) = generation._workers
        worker.process.kill()
        worker.process.wait()
        generation.add("m1", TEXT.format(2), TARGET.triple, TARGET.processor)
        assert len(generation.finish()) == 2


def test_a_worker_that_is_killed_at_work_is_an_error(generate, monkeypatch):
    take = workers.take

    def killed():
        worker = take()
        worker.process.kill()
        return worker

    monkeypatch.setattr(workers, "take", killed)
    with pytest.raises(CompileError, match="code generation ended with signal 9: no message"):
        generate(TEXT.format(1))


def test_a_worker_that_takes_too_long_is_ended(generate, monkeypatch):
    stuck = []
    monkeypatch.setattr(objects, "TIMEOUT", 0.2)
    monkeypatch.setattr(workers.Worker, "compile", lambda self, *_: (stuck.append(self), self.process.wait()))
    with pytest.raises(CompileError, match=r"code generation took more than 0\.2 seconds"):
        generate(TEXT.format(1))
    assert stuck[0].process.poll() == -signal.SIGKILL


@pytest.mark.parametrize("jobs", [0, 1])
def test_small_modules_are_one_object_in_the_order_in_which_they_came(generate, jobs, monkeypatch, tmp_path):
    text = (
        "@table = internal constant [1 x i32] [i32 {0}]\n"
        "define internal i32 @help() {{\n  %1 = load i32, ptr @table\n  ret i32 %1\n}}\n"
        "define i32 @f{0}() {{\n  %1 = call i32 @help()\n  ret i32 %1\n}}\n"
    )
    (made,) = generate(*(text.format(k) for k in range(5)), jobs=jobs)
    before = made.read_bytes()
    monkeypatch.setenv("ONNXC_CACHE", str(tmp_path / "another"))
    assert made.name == "m0.o"
    assert [before.count(b"\0f%d\0" % k) for k in range(5)] == [1] * 5
    (made,) = generate(*(text.format(k) for k in range(5)), jobs=jobs)
    assert made.read_bytes() == before
    long = "; " + "long " * objects.GROUP + "\n"
    made = generate(*(TEXT.format(k) + long * (k == 1) for k in range(3)), jobs=jobs)
    assert [path.name for path in made] == ["m1.o", "m0.o"]


def test_threads_compile_side_by_side(tmp_path, apart):
    def compile_some(number):
        folder = tmp_path / str(number)
        folder.mkdir()
        with objects.CodeGeneration(folder, 2) as generation:
            for k in range(5):
                generation.add(f"m{k}", TEXT.format(100 * number + k), TARGET.triple, TARGET.processor)
            made[number] = [path.read_bytes() for path in generation.finish()]

    made: dict[int, list[bytes]] = {}
    threads = [threading.Thread(target=compile_some, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({data for number in range(4) for data in made[number]}) == 20
    assert len(idle()) <= (os.cpu_count() or 1)


def test_a_fork_has_workers_of_its_own(generate):
    generate(TEXT.format(1), jobs=1)
    before = idle()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            generate(TEXT.format(2), jobs=1)
            status = 0 if idle() and not set(idle()) & set(before) else 2
            workers.stop()
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    generate(TEXT.format(3), jobs=1)
    assert idle() == before


@pytest.mark.parametrize("end", ["pass", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_workers_end_with_their_parent(end):
    program = (
        "import os; from onnxc.codegen.library import workers\n"
        f"workers.start(2); print(*[w.process.pid for w in workers.idle()], flush=True); {end}"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60)
    pids = done.stdout.split()
    assert len(pids) == 2, done.stderr
    for _ in range(500):
        if not any(os.path.exists(f"/proc/{pid}") for pid in pids):
            return
        time.sleep(0.02)
    pytest.fail("a worker is still there")
