"""Imports go one way: from room to room as they stand in the architecture, and in no circle between modules.

Imports inside functions count like any other. What `TYPE_CHECKING` guards is none: it names types.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import onnxc
from onnxc import codegen, passes, runtime_c

FOLDERS = {package.__name__: Path(package.__file__).parent for package in (onnxc, passes, codegen, runtime_c)}

#: A room imports itself and rooms of rows above its own. Rooms of one row know nothing of each other.
ROOMS = (
    ("record", "records", "version"),
    ("errors", "console"),
    ("diagnostics", "options", "places", "trailer", "codegen.abi"),
    ("cache", "custom"),
    ("facts",),
    ("ir",),
    ("target",),
    ("frontend", "passes", "codegen.costs", "codegen.text"),
    ("codegen.kernel",),
    ("codegen.tiles",),
    ("codegen.nests", "codegen.calibration"),
    ("codegen.kernels",),
    ("codegen.lowering",),
    ("codegen.library",),
    ("given",),
    ("driver",),
    ("loading",),
    ("onnxruntime", "inputs"),
    ("narrowing", "tuning"),
    ("",),  # onnxc itself: compile, load, InferenceSession
    ("portable",),
    ("demo", "sklearn", "ray", "spark"),
    ("commands",),
    ("__main__",),
)

#: Imports that close a circle on purpose: `repr` of an expression and `str` of a graph are their IR text.
PRINTING = {("onnxc.ir.expr", "onnxc.ir.text"), ("onnxc.ir.graph", "onnxc.ir.text")}


@cache
def modules() -> dict[str, Path]:
    """The file of every module by its name."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


def what_runs(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        names_types = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        if isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)) and not names_types:
            yield node
            yield from what_runs(node)


def imported(name: str, source: str) -> Iterator[str]:
    """The modules of onnxc that the module `name` imports."""
    package = name.split(".") if modules()[name].name == "__init__.py" else name.split(".")[:-1]
    for node in what_runs(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                yield whole if whole in modules() else module


@cache
def imports() -> dict[str, set[str]]:
    """What every module imports of onnxc."""
    return {
        name: {other for other in imported(name, path.read_text()) if other in modules()} - {name}
        for name, path in modules().items()
    }


def room(module: str) -> tuple[int, str]:
    """The row of a module's room, and the room: the most exact one that holds it."""
    inner = module.removeprefix("onnxc").removeprefix(".")
    rooms = [(row, r) for row, several in enumerate(ROOMS) for r in several]
    found = [(row, r) for row, r in rooms if inner == r or (r and inner.startswith(f"{r}."))]
    assert found or inner in ("codegen", "runtime_c"), f"{module} is in no room"  # these are empty
    return max(found, key=lambda row_and_room: len(row_and_room[1]), default=(0, inner))


def upward(graph: dict[str, set[str]]) -> list[str]:
    """Imports of a room that stands in the same row or below."""
    found = []
    for name, others in graph.items():
        (row, own), targets = room(name), [(other, *room(other)) for other in others]
        found += [f"{name} -> {other}" for other, below, its in targets if its != own and below >= row]
    return sorted(found)


def test_rooms_import_only_what_stands_above_them():
    assert upward(imports()) == []


def test_the_parts_of_the_compiler_know_nothing_of_each_other():
    parts = {"onnxc.frontend", "onnxc.passes", "onnxc.codegen"}

    def part(module: str) -> str:
        return ".".join(module.split(".")[:2])

    pairs = [(name, other) for name, others in imports().items() for other in others]
    assert [p for p in pairs if {*map(part, p)} <= parts and part(p[0]) != part(p[1])] == []


def listed(module: str) -> str:
    """The module as the architecture's table names its file or folder."""
    package = max((p for p in FOLDERS if module == p or module.startswith(f"{p}.")), key=len)
    inside = modules()[module].relative_to(FOLDERS[package])
    path = Path(package.rpartition(".")[2]) / inside
    return f"{path.parent}/" if path.name == "__init__.py" and module != "onnxc" else str(path)


def test_the_table_of_the_architecture_has_every_package_and_outer_module_in_the_order_of_their_rooms():
    page = Path(__file__).parents[1] / "docs" / "architecture.md"
    table = page.read_text().split("\n## Rooms\n")[1].split("\n## ")[0]
    told = re.findall(r"^\| `([^`]+)` \|", table, re.M)
    outer = {name for name in modules() if name.rpartition(".")[0] in ("", "onnxc", "onnxc.codegen")}
    packages = {name for name, path in modules().items() if path.name == "__init__.py"}
    names = {listed(name): name for name in (outer | packages) - {"onnxc.codegen"}}
    assert {f"onnxc.{name}".rstrip(".") for row in ROOMS for name in row} <= outer | packages
    assert sorted(names) == sorted(
        path for path in told if path.startswith(("onnxc/", "passes/", "codegen/", "runtime_c/"))
    )
    rows = [room(names[path])[0] for path in told if path in names and path != "runtime_c/"]
    assert rows == sorted(rows)


def test_commands_the_demo_and_progress_alone_print():
    printing = {name for name, others in imports().items() if "onnxc.console" in others}
    allowed = ("onnxc.commands.", "onnxc.demo", "onnxc.loading.progress")
    assert [name for name in sorted(printing) if not name.startswith(allowed)] == []


def test_no_module_imports_itself_through_others():
    graph = {name: {o for o in others if (name, o) not in PRINTING} for name, others in imports().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"imports go in a circle: {' <- '.join(error.args[1])}") from None


def test_imports_for_printing_are_still_needed():
    assert all(other in imports()[name] for name, other in PRINTING)


def test_an_import_the_wrong_way_is_found_wherever_it_stands():
    inside = "def f():\n    from ..codegen.kernels import gemm\n    import onnxc.driver\n"
    found = set(imported("onnxc.passes.fuse_maps", inside))
    assert found == {"onnxc.codegen.kernels.gemm", "onnxc.driver"}
    assert len(upward({"onnxc.passes.fuse_maps": found})) == 2
    assert not upward({"onnxc.driver": {"onnxc.ir.ops"}})


def test_names_for_type_checkers_are_no_imports():
    assert not set(imported("onnxc.ir.graph", "if TYPE_CHECKING:\n    from .ops import Op\n"))
