"""Contexts that are destroyed or another model's, in libraries that check them; memory and threads of the
caller's; forks: handles.c."""

from dataclasses import replace

import pytest
from support.handmade_models import AFFINE, DIVIDE, HERE, Parts, cc, said, scale_bytes

from onnxc.codegen.library.weights import side_file_head


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program, with two models in archives that share one runtime. One has its weights in a file."""
    folder = tmp_path_factory.mktemp("handles")
    archives = []
    apart = replace(AFFINE, weights_file="affine.weights", weights_digest=bytes(32))
    (folder / "affine.weights").write_bytes(side_file_head(bytes(32), 64) + scale_bytes(3))
    for source, description in (("affine.c", apart), ("divide.c", DIVIDE)):
        parts = Parts(folder / source, HERE / source, replace(description, checks_handles=True), b"")
        archives.append(parts.link(folder / f"{description.prefix}.a"))
    cc("-O1", HERE / "handles.c", *archives, "-lm", "-ldl", "-pthread", "-o", folder / "handles")
    return folder / "handles"


def test_a_wrong_context_gets_a_status_and_a_sentence(program):
    others = "the context is one of model 'affine', not of 'divide'"
    ours = "the context is one of model 'divide', not of 'affine'"
    gone = "the context was destroyed, or was never one of model 'divide'"
    assert said(program, "wrong") == [others, ours, ours, *[gone] * 44]


def test_all_memory_comes_from_the_callers_allocator_and_goes_back_there(program):
    assert said(program, "allocator") == ["options: the allocator lacks a function"]


def test_a_pool_of_the_callers_runs_the_parts(program):
    assert said(program, "pool") == []


def test_the_child_of_a_fork_finds_no_lock_held_by_a_thread_that_it_does_not_have(program):
    assert said(program, "fork") == []
