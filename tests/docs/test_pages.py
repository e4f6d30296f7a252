"""What README and the pages of docs/ tell their readers to do: commands and programs are taken from the page
and run, in a folder that has the files that the page speaks of.

A block is a program (python, c), commands (lines that begin with `$ `), or is only read (output, a tree, a
diff). One that begins with a comment of a name alone, `# rules.py` or `/* clamp.c */`, is that file. Of pages
but README this is `outside`, for it takes minutes.
"""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.caches import with_runtime
from support.tables import scores

import onnxc.demo
from onnxc.codegen.kernels import KERNELS
from onnxc.options import PRECISIONS, Options
from onnxc.passes.pipeline import passes
from onnxc.target import find_target

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
COMMAND = re.compile(r"^\$ (.*(?:\\\n.*)*)", re.M)
FILE = re.compile(r"^(?:#|/\*|//|<!--) ([\w.-]+\.\w+)(?: \*/| -->)?\n")

#: Of what `.ci/run` does itself, in an environment of its own, no test does it again.
OF_CI = ("pip install . && onnxc demo", "pip install '.[test]' && pytest")
#: Commands that end with another status than 0, for what they show is a fault.
STATUS = {"onnxc check broken.onnx": 1}
#: Where blocks of a language are shown to be read: parts of files of the compiler.
READ = {"architecture.md": ("python",)}
#: What measures models that are not in the repository, and what is built around the README's lines of C.
ELSEWHERE = ("python benchmarks/", "cc ")


def blocks(page):
    """(language, text) of each block of a page."""
    return BLOCK.findall(page.read_text())


def commands(body):
    return [command.partition("  #")[0].strip() for command in COMMAND.findall(body)]


def runnable(body):
    """The commands that are run one by one: not what CI does itself, nor what other tests here do."""
    return [c for c in commands(body) if c not in OF_CI and not c.startswith(ELSEWHERE)]


def needs_installation(body):
    return any("pip install" in command for command in runnable(body))


# The files that pages speak of --------------------------------------------------------------------


def image_model(batch):
    """x [batch, 3, 224, 224] -> y [batch, 10]"""
    weights = np.linspace(-1, 1, 30).astype(np.float32).reshape(3, 10)
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    ports = [("x", [batch, 3, 224, 224]), ("y", [batch, 10])]
    inputs, outputs = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports)
    graph = helper.make_graph(nodes, "g", [inputs], [outputs], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def decoder():
    """Logits of the running sum of all ids: `past` grows along its first axis."""
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["new"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["past.0", "new"], ["present.0"], axis=0),
        helper.make_node("ReduceSum", ["present.0", "axes"], ["logits"], keepdims=0),
    ]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["tokens", 4])
    past = helper.make_tensor_value_info("past.0", TensorProto.FLOAT, ["length", 4])
    present = helper.make_tensor_value_info("present.0", TensorProto.FLOAT, ["length + tokens", 4])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [4])
    axes = numpy_helper.from_array(np.array([0]), "axes")
    graph = helper.make_graph(nodes, "g", [ids, past], [logits, present], [axes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def broken():
    """Three nodes that are wrong, for `check`, which names them."""
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="n_a"),
        helper.make_node("Gelu", ["a"], ["b"], name="n_b"),
        helper.make_node("Relu", ["w"], ["y"], name="n_y"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def clamping():
    """A model with the operator that docs/custom_operators.md brings, twice as rule and as C function."""
    node = helper.make_node("Clamp", ["x"], ["y"], domain="my.domain", high=1.0)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def provide(folder, page):
    """The files that a page takes for granted, and a cache."""
    with_runtime(folder / "cache")
    shutil.copy(Path(onnxc.demo.__file__).parent / "digits.onnx", folder / "digits.onnx")
    models = {"model.onnx": image_model("batch"), "decoder.onnx": decoder(), "broken.onnx": broken()}
    if page.name == "custom_operators.md":
        models["model.onnx"] = clamping()
    if page.name == "batch.md":
        models["model.onnx"] = scores()
    for name, model in models.items():
        onnx.save(model, folder / name)
    (folder / "program.py").write_text(
        "import onnxruntime, sys\nprint(onnxruntime.get_device(), sys.argv[1:])\n"
    )


# Running --------------------------------------------------------------------------------------------


def environment(folder):
    """This process's, whose programs come first and whose cache is the folder's."""
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {
        **os.environ,
        "PATH": tools,
        "ONNXC_CACHE": str(folder / "cache"),
        "PYSPARK_PYTHON": sys.executable,
    }


def run(command, folder, status=0):
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert ended.returncode == status, f"{command}\n{ended.stdout}{ended.stderr}"


#: Values that programs of pages speak of without making them.
PREAMBLE = """\
import numpy as np
import onnxc
x = np.zeros((1, 3, 224, 224), np.float32)
ids = np.ones((1, 4), np.int64)
rows = np.ones((5, 3), np.float32)
"""


def carry_out(page, folder, installing):
    """Does what the page says, block by block; how many commands and programs that were."""
    done, programs = 0, ""
    for language, body in blocks(page):
        if named := FILE.match(body):
            (folder / named[1]).write_text(body)
            continue
        if needs_installation(body) != installing:
            continue
        if language == "python" and language not in READ.get(page.name, ()):
            programs += body
            (folder / "page.py").write_text(PREAMBLE + programs)
            run(f"{sys.executable} -P page.py", folder)
            done += 1
        asked = runnable(body)
        status = {STATUS.get(command, 0) for command in asked}
        if asked:
            run("set -e\n" + "\n".join(asked), folder, max(status))
        done += len(asked)
    return done


def pages(installing):
    """The pages with something to do, of the one kind or of the other."""

    def has(page):
        return any(
            needs_installation(body) == installing and (runnable(body) or language == "python")
            for language, body in blocks(page)
        )

    found = [page for page in PAGES if has(page) and page.name not in READ]
    return [pytest.param(p, id=p.name, marks=[pytest.mark.outside] * (p.name != "README.md")) for p in found]


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(installing=False))
def test_what_a_page_says_works(page, tmp_path):
    provide(tmp_path, page)
    assert carry_out(page, tmp_path, installing=False)


@pytest.mark.parametrize("page", pages(installing=True))
def test_what_a_page_installs_works(page, tmp_path):
    provide(tmp_path, page)
    assert carry_out(page, tmp_path, installing=True)


@pytest.mark.slow
def test_the_c_program_of_the_readme_is_built_and_runs(tmp_path):
    """Around the lines that the page shows: declarations of what they name."""
    onnx.save(image_model(1), tmp_path / "model.onnx")
    (body,) = [body for language, body in blocks(ROOT / "README.md") if language == "c"]
    include, rest = body.split("\n", 1)
    (command,) = [
        line for _, text in blocks(ROOT / "README.md") for line in commands(text) if line.startswith("cc ")
    ]
    (tmp_path / "program.c").write_text(
        f"{include}\n#include <stdio.h>\nstatic float input[3 * 224 * 224], output[10];\n"
        f"int main(void) {{\n{rest}\nreturn 0;\n}}\n"
    )
    run(f"onnxc compile model.onnx -o model.so && {command} && ./program", tmp_path)


def test_what_ci_does_itself_is_what_the_readme_says():
    text = (ROOT / ".ci" / "run").read_text()
    assert all(part in text for command in OF_CI for part in command.split(" && "))
    told = [command for _, body in blocks(ROOT / "README.md") for command in commands(body)]
    assert set(OF_CI) <= set(told)


def test_groups_of_tests_and_what_ci_runs_are_told_once_by_the_page_on_contributing():
    telling = [page.name for page in PAGES if re.search(r"`pytest -m (quick|outside)`", page.read_text())]
    assert telling == ["contributing.md"]
    told = re.findall(r"`([^`]+)`", (ROOT / "docs" / "contributing.md").read_text())
    ran = (ROOT / ".ci" / "run").read_text().partition("pip install '.[test]'\n")[2]
    steps = {step.removesuffix(" .") for step in re.split(r" && |\n", ran) if step}
    assert steps and steps <= set(told)


def test_every_benchmark_that_a_page_names_is_there():
    named = {name for page in PAGES for name in re.findall(r"benchmarks/\w+\.py", page.read_text())}
    assert named and not [name for name in named if not (ROOT / name).exists()]


def test_what_benchmarks_take_of_the_package_is_there():
    def is_there(module, name):
        try:
            return hasattr(importlib.import_module(module), name) or importlib.import_module(
                f"{module}.{name}"
            )
        except ImportError:
            return False

    taken = set()
    for path in (ROOT / "benchmarks").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "onnxc":
                taken |= {(path.name, node.module, alias.name) for alias in node.names}
    assert taken and not [each for each in sorted(taken) if not is_there(*each[1:])]


def listed_by_the_architecture(heading):
    """The names in the first column of a section's table."""
    section = (ROOT / "docs" / "architecture.md").read_text().split(f"\n### {heading}")[1].split("\n##")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.M)


def test_the_page_of_the_architecture_lists_every_kernel_in_the_order_that_breaks_ties():
    names = [kernel.__name__.rpartition(".")[2] for kernel in KERNELS]
    assert listed_by_the_architecture("Kernels") == names


def test_the_page_of_the_architecture_lists_every_pass_in_the_order_in_which_they_first_run():
    listed = listed_by_the_architecture("Passes")
    missing = set(listed)
    for precision, weights in product(PRECISIONS, (None, "int8")):
        steps = passes(find_target("native"), Options(precision=precision, weights=weights))
        names = list(dict.fromkeys(step.__name__ for step in steps))
        assert [name for name in listed if name in names] == names
        missing -= set(names)
    assert not missing


def test_parts_of_the_compiler_that_the_page_of_the_architecture_shows_are_there_as_they_are():
    shown = [re.match(r"# ([\w/]+\.py)\n(.*)", b, re.S) for _, b in blocks(ROOT / "docs" / "architecture.md")]
    quoted = [match.groups() for match in shown if match]
    assert len(quoted) > 2
    assert not [path for path, text in quoted if text not in (ROOT / path).read_text()]


def test_the_index_of_the_site_has_every_page():
    listed = re.findall(r": (\w+\.md)$", (ROOT / "docs" / "site" / "mkdocs.yml").read_text(), re.M)
    assert sorted(listed) == sorted(page.name for page in PAGES if page.name != "README.md")


@pytest.mark.parametrize("page", ["architecture.md", "numerics.md"])
def test_files_of_the_compiler_that_a_page_names_are_there(page):
    text = (ROOT / "docs" / page).read_text()
    named = set(
        re.findall(r"`((?:onnxc|passes|codegen|runtime_c|benchmarks|tests)/[\w/]+\.(?:py|c|h))`", text)
    )
    made_up = {"passes/my_pass.py", "codegen/kernels/my_kernel.py"}
    made_up |= {"tests/passes/test_my_pass.py", "tests/codegen/kernels/test_my_kernel.py"}
    assert not [name for name in sorted(named - made_up) if not (ROOT / name).exists()]


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_links_lead_to_files_and_headings_that_are_there(page):
    def anchors(path):
        headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
        return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}

    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target
