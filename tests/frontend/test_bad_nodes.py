"""Models whose nodes cannot work are refused in one line that names the node, within a second or few and
little memory, and odd ones are accepted."""

import pytest
from support.bad_models import Case, write
from support.bad_nodes import BAD, BOMBS, ODD
from support.confined import run_confined

import onnxc
from onnxc.commands.checking import check_model
from onnxc.diagnostics import ModelErrors


def ids(case: Case) -> str:
    return case.name


def problems(case: Case, folder) -> list[str]:
    path = write(case, folder)
    return ModelErrors(check_model(path)[1], path).lines()


@pytest.mark.parametrize("case", BAD, ids=ids)
def test_a_bad_node_is_refused_in_one_short_line(case, tmp_path):
    (line,) = problems(case, tmp_path)
    assert line.startswith(str(tmp_path / "model.onnx"))
    assert len(line.encode()) <= 1000
    for word in case.words:
        assert word in line


@pytest.mark.parametrize("case", ODD, ids=ids)
def test_an_odd_node_is_accepted(case, tmp_path):
    assert problems(case, tmp_path) == []


@pytest.mark.parametrize("case", BOMBS, ids=ids)
def test_what_explodes_is_left_to_the_run_or_refused(case, tmp_path):
    ended = run_confined(lambda: print(*problems(case, tmp_path), sep="\n"))
    assert ended.status == 0, ended.output
    assert len(ended.output.strip().splitlines()) <= 1


@pytest.mark.parametrize("name", ["8 GB of zeros", "4 GB of rows", "900 transposes of a constant"])
def test_what_explodes_is_not_written_into_the_library(name, tmp_path):
    (case,) = (case for case in BOMBS if case.name == name)
    ended = run_confined(lambda: onnxc.compile(case.content, tmp_path / "a.so", target="x86-64-v3"))
    assert ended.status == 0, ended.output
    assert (tmp_path / "a.so").stat().st_size < 4 << 20


def test_the_cases_are_many_and_have_names_of_their_own():
    names = [case.name for case in (*BAD, *BOMBS, *ODD)]
    assert len(set(names)) == len(names) >= 120
