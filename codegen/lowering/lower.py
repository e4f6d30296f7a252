"""lower: a graph of core ops becomes what one target runs.

graph ─ tabulate ─▶ tables ─ select_kernels ─▶ kernels, layouts ─ share_code ─▶ more equal nodes
    ─ emit ─▶ code of each node ─ plan_memory ─▶ where values live

What comes after lowering (`codegen/library`) decides nothing: several targets in one library are several
`Lowered`s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from ...errors import LimitError, Origin
from ...ir import dims
from ...ir.graph import Constant, Graph, Node, TensorType, walk
from ...ir.ops import Fused
from ...ir.verify import InvalidGraph, verify
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Code
from . import distances
from .check_plan import check_plan
from .equal_nodes import form_in, seen
from .plan_memory import ARENA_LIMIT, MemoryPlan, place, plan_memory
from .select_kernels import runs_kernel, select_kernels
from .share_code import share_code
from .tabulate import tabulate
from .tuned import Tuned


@dataclass(frozen=True)
class Lowered:
    """A graph as a target runs it: its nodes have kernels and its values layouts; codes: what each node
    executes; plan: where every value lives."""

    target: Target
    graph: Graph
    codes: Mapping[Node, Code]
    plan: MemoryPlan

    @property
    def workspace_bytes(self) -> int | None:
        """Bytes for intermediate values and scratch of a run in one thread; None where the inputs decide."""
        scratch = [step.scratch for code in self.codes.values() for step in code.steps]
        known = [size for size in scratch if isinstance(size, int)]
        if not self.plan.static or len(known) < len(scratch):
            return None
        return self.plan.arena_bytes + max(known, default=0)


def lower(
    graph: Graph,
    target: Target,
    stage: Callable[[str], None] = lambda name: None,
    dump: Callable[[str, Graph], None] = lambda name, graph: None,
    emitted: Callable[[Code], None] = lambda code: None,
    tuned: Tuned | None = None,
) -> Lowered:
    """graph for the target. stage is told what begins, dump gets the graph with its kernels, emitted each
    distinct code as soon as it is written. tuned: what was seen of choices of kernels. Raises
    UnsupportedError for an op that no kernel takes, LimitError for a static arena over ARENA_LIMIT."""
    stage("select kernels")
    graph = tabulate(graph, target)
    with dims.of_ones():
        least = replace(
            target, least_run_bytes=costs.touched(graph), least_run_ns=costs.least_time(target, graph)
        )
    among = replace(least, run_bytes=costs.touched(graph), run_ns=costs.least_time(target, graph))
    graph = select_kernels(graph, among, tuned)
    dump("select_kernels", graph)
    shared, before = share_code(graph, among), graph
    graph = shared.graph
    dump("share_code", graph)
    verify_kernels(graph)
    stage("emit kernels")
    codes = emit_kernels(graph, among, emitted, shared.numbers)
    stage("plan memory")
    plan = plan_memory(graph, codes)
    _check_arena(plan)
    others = plan.heaps - len({branch.memory.index for branch in plan.branches.values()})
    if (plan.static or graph.states) and not others:
        check_plan(graph, codes, plan)
    lowered = Lowered(target, graph, with_distances(graph, among, codes, plan), plan)
    if tuned is not None:
        tuned.given(replace(lowered, graph=before, codes=shared.before(lowered.codes)))
    return lowered


def emit_kernels(
    graph: Graph, target: Target, emitted: Callable[[Code], None], numbers: Collection[Constant]
) -> dict[Node, Code]:
    """The code of every node that a kernel runs; equal nodes have the same, emitted once. numbers: those that
    code does not depend on."""
    codes: dict[Node, Code] = {}
    known: dict[object, Code] = {}
    for node in walk(graph):
        if node.choice is not None:
            key = seen(node, form_in(node, numbers))
            if key not in known:
                known[key] = node.choice.kernel.emit(node, node.choice, target)
                emitted(known[key])
            codes[node] = known[key]
    return codes


def with_distances(
    graph: Graph, target: Target, codes: Mapping[Node, Code], plan: MemoryPlan
) -> dict[Node, Code]:
    """The codes, which know how long their steps wait for what a run used long before."""
    found: dict[Node, Code] = {}
    known: set[int] = set()
    for node, passed in distances.passed(graph, codes, plan).items():
        code = codes[node]
        lines = 0 if id(code) in known else sum(step.text.count("\n  ") for step in code.steps)
        found[node] = _delayed(code, node, costs.away(target, node, costs.CODE_BYTES * lines, passed))
        known.add(id(code))
    return found


def _delayed(code: Code, node: Node, away: Estimate) -> Code:
    """The code of a node whose first step waits for what is away, of which its kernel knows nothing."""
    if not round(away.total) or not code.steps:
        return code
    computed = {v for v in (*node.inputs, *node.outputs) if v.constant is None}
    first, *others = code.steps
    try:
        count = sum((v.type.nbytes for v in computed if isinstance(v.type, TensorType)), 0)
        first = replace(first, work=first.work + costs.work(away, count))
    except dims.TooComplex:
        return code  # less is reckoned with than it takes, of what has many sizes anyway
    return replace(code, steps=(first, *others))


def verify_kernels(graph: Graph) -> None:
    """Raises InvalidGraph unless graph is valid and every node that a kernel runs has one."""
    verify(graph, "layout")
    grouped = {inner for node in walk(graph) if isinstance(node.op, Fused) for inner in walk(node.op.region)}
    for node in walk(graph):
        if node.choice is None and node not in grouped and runs_kernel(node):
            raise InvalidGraph(
                "it has no kernel", origin=Origin(node=node.origin, op_type=type(node.op).__name__)
            )


def _check_arena(plan: MemoryPlan) -> None:
    nbytes, before = plan.arena_bytes, plan.buffers[: plan.first_of_branches]
    if plan.branches and all(isinstance(buffer.nbytes, int) for buffer in before):
        nbytes = place([replace(buffer) for buffer in before])
    if nbytes > ARENA_LIMIT:
        raise LimitError(
            f"the model needs {nbytes:,} bytes for its intermediate values, "
            f"more than the limit of {ARENA_LIMIT:,}"
        )
