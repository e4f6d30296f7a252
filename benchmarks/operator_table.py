"""docs/operators.md, made of schemas, rules and `operator_cases.py`:

    python benchmarks/operator_table.py > docs/operators.md

Types are those that ONNX's schema (or, where there is none, the rule) allows of all inputs. What an operator
reaches is read off the graph that one node of it is lowered to, at a size that users have, for x86-64-v4.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable

import onnx
from operator_cases import CASES

from onnxc.codegen.lowering.select_kernels import runs_kernel, select_kernels
from onnxc.frontend import schemas
from onnxc.frontend.importer import import_model
from onnxc.frontend.operators import RULES
from onnxc.ir import ops
from onnxc.ir.graph import Graph, walk
from onnxc.passes.pipeline import optimise
from onnxc.target import find_target

TARGET = "x86-64-v4"
GROUPS = {
    "floats": {"float", "double", "float16", "bfloat16"},
    "integers": {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": {"bool"},
    "string": {"string"},
    "complex": {"complex64", "complex128"},
    "float8": {"float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"},
    "float6": {"float6e2m3", "float6e3m2"},
    "4 and 2 bits": {"int4", "uint4", "float4e2m1", "int2", "uint2"},
}
HEAD = """# Operators

Every operator that onnxc compiles; `python benchmarks/operator_table.py` makes this page of the code.

*Versions* are the operator sets in which an operator has a form of its own: a model of any set from the first
on finds its form. *Types* are the element types of all inputs. *Reaches* names the kernels
(`codegen/kernels/`) that compute a node of it which stands alone in a model, in float32 where it can be, for
x86-64-v4, at the sizes of `benchmarks/operator_cases.py`; in quotes what is a function of the runtime
(`runtime_c/`); *memory* where nothing is computed. `loop_nest` stands there only where nothing else does. In
a model its neighbours may take a node in.
"""


def element_types(allowed: Iterable[str]) -> str:
    """Types as ONNX writes them, by groups of elements."""
    names = {text.split("(")[-1].rstrip(")") for text in allowed if "tensor(" in text}
    found = []
    for group, members in GROUPS.items():
        some = members & names
        if some == members and len(members) > 1:
            found.append(group)
        else:
            found += sorted(some)
    kinds = [
        name
        for start, name in (("seq(", "sequence"), ("optional(", "optional"), ("map(", "map"))
        if any(start in text for text in allowed)
    ]
    return ", ".join([*found, *(f"{kind}s" for kind in kinds)])


def versions(domain: str, op_type: str) -> list[int]:
    return sorted(_known().get((domain, op_type)) or {rule.since for rule in RULES[domain, op_type]})


@functools.cache
def _known() -> dict[tuple[str, str], set[int]]:
    """The versions in ONNX's schemas, by operator."""
    found: dict[tuple[str, str], set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    return found


def types(domain: str, op_type: str) -> str:
    newest = versions(domain, op_type)[-1]
    signature = schemas.signature(domain, op_type, newest)
    if signature is None:  # the newest form says that there is none any more
        signature = next(
            s for v in reversed(versions(domain, op_type)) if (s := schemas.signature(domain, op_type, v))
        )
    return element_types({text for parameter in signature.inputs for text in parameter.types})


def reached(graph: Graph) -> list[str]:
    """What computes the nodes of a graph with kernels: `loop_nest` only where nothing else does, and nothing
    that only moves values to another layout."""
    found: dict[str, None] = {}
    grouped = {inner for n in walk(graph) if isinstance(n.op, ops.Fused) for inner in walk(n.op.region)}
    for node in walk(graph):
        if isinstance(node.op, ops.RuntimeCall):
            found[f'"{node.op.symbol}"'] = None
        elif node.choice is not None:
            found[node.choice.kernel.__name__.rsplit(".", 1)[-1]] = None
        elif isinstance(node.op, (ops.If, ops.Loop)):
            found[type(node.op).__name__] = None
        elif runs_kernel(node) and node not in grouped:
            found["?"] = None
    work = found.keys() - {"reorder", "loop_nest"} or found.keys() - {"reorder"}
    return sorted(work) or ["memory"]


def kernels() -> dict[tuple[str, str], list[str]]:
    """What the cases of each operator reach."""
    target = find_target(TARGET)
    found: dict[tuple[str, str], list[str]] = {}
    for case in CASES:
        graph = import_model(case.model()).graph
        chosen = reached(select_kernels(optimise(graph, target), target))
        known = found.setdefault((case.domain, case.op), [])
        known += [name for name in chosen if name not in known]
        known.sort()
    return found


def note(domain: str, op_type: str) -> str:
    """The first sentence that the rule says of itself."""
    if (domain, op_type) not in RULES:
        return "by the function that its schema has"
    text = inspect.getdoc(RULES[domain, op_type][0].function) or ""
    return " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".").replace("|", "\\|")


def operators() -> list[tuple[str, str]]:
    """(domain, operator) of all there are: those with rules, and those whose schemas have functions."""
    by_function = {
        (schema.domain, schema.name)
        for schema in onnx.defs.get_all_schemas()
        if (schema.has_function or schema.has_context_dependent_function) and not schema.deprecated
    }
    return sorted({*RULES, *by_function})


def page() -> str:
    lines, reach, before = [HEAD], kernels(), None
    for domain, op_type in operators():
        if domain != before:
            lines += [f"\n## {domain or 'ai.onnx'}\n", "| operator | versions | types | reaches | notes |"]
            lines.append("|---|---|---|---|---|")
            before = domain
        cells = (
            op_type,
            ", ".join(map(str, versions(domain, op_type))),
            types(domain, op_type),
            ", ".join(reach.get((domain, op_type), ())),
            note(domain, op_type),
        )
        lines.append(f"| {' | '.join(cells)} |".replace("  ", " "))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
