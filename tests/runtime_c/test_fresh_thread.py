"""What a thread that runs a library for the first time needs of the C library: fresh_thread.c."""

import platform

import pytest
from support.handmade_models import DIVIDE, HERE, Parts, cc, said


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="its malloc has another name")
def test_a_threads_first_run_takes_no_memory(tmp_path):
    library = Parts(tmp_path / "work", HERE / "divide.c", DIVIDE, b"").link(tmp_path / "model.so")
    cc("-O1", HERE / "fresh_thread.c", "-ldl", "-pthread", "-o", tmp_path / "program")
    assert said(tmp_path / "program", library) == []
