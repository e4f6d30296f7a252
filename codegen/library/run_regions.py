"""Branches and loops of the model as branches and loops of `run`.

A region's code stands where its node does. The result of a branch is a pointer that the branch taken sets;
what a loop carries has memory of its own, into which each iteration's values are copied when it ends. So have
the characters of strings, which the nodes that made them free in the next iteration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from ...ir import dims
from ...ir.dims import Dim
from ...ir.graph import Node, TensorType, Value
from .. import abi
from ..lowering.plan_memory import Branch, Location, Texts, is_text
from .run_memory import RunMemory


class Regions(RunMemory, ABC):
    """The part of the run function that writes If and Loop."""

    @abstractmethod
    def nodes(self, nodes: Iterable[Node]) -> None:
        """Writes the nodes, in that order."""

    @contextmanager
    def region(self) -> Iterator[None]:
        """Code that may not run: what it computes is not known after it."""
        known, checked, defined = dict(self.known), set(self.checked), set(self.defined)
        yield
        self.known, self.checked, self.defined = known, checked, defined

    def _forget(self, names: set[str]) -> None:
        """Drops what was computed from variables that have other values now."""
        if names:
            self.known = {
                d: v for d, v in self.known.items() if not names & {s.name for s in dims.symbols(d)}
            }

    def _if(self, node: Node) -> None:
        f, op, fresh = self.f, node.op, self._fresh(node)
        condition = f.compare("ne", f.load("i8", self.address(node.inputs[0])), 0, "i8")
        labels = f.fresh_label("then"), f.fresh_label("else"), f.fresh_label("joined")
        f.branch_if(condition, labels[0], labels[1])
        for branch, label in ((op.then, labels[0]), (op.otherwise, labels[1])):
            f.label(label)
            with self.region():
                if branch in self.plan.branches:
                    self._enter(self.plan.branches[branch], node)
                self.nodes(branch.nodes)
                for inner, outer in zip(branch.outputs, node.outputs):
                    if isinstance(outer.type, TensorType):
                        f.store(
                            "ptr",
                            self.address(inner),
                            self.slot("values", self.plan.locations[outer].slot),
                            8,
                        )
                    else:
                        self._copy_object(self.plan.locations[outer], self.address(inner), hold=True)
                self._give_shapes(branch.outputs, node, fresh)
            f.branch(labels[2])
        f.label(labels[2])
        self.defined |= fresh
        self._forget(fresh)

    def _enter(self, branch: Branch, node: Node) -> None:
        """Has the arena of a branch made for the sizes that its buffers have in this run."""
        f = self.f
        with self.overflow_checked(node.origin):
            for index in range(branch.first, branch.end):
                size = f.maximum(self.dimension(self.plan.buffers[index].nbytes), 0)
                f.store("i64", size, self.slot("sizes", index), 8)
        pointer = f.call(
            "ptr",
            self.service("enter_branch"),
            "ptr %ctx",
            f"i32 {branch.memory.index}",
            f"i64 {branch.first}",
            f"i64 {branch.end}",
            f"i32 {self.tables.node(node.origin)}",
        )
        self.leave_if(f.compare("eq", pointer, "null", "ptr"))
        f.store("ptr", pointer, self.slot("values", branch.memory.slot), 8)

    def _give_shapes(self, inner: Sequence[Value], node: Node, fresh: set[str]) -> None:
        """Sets the variables of a node's result types from the shapes of the region's values that the
        results are."""
        given: set[str] = set()
        for value, outer in zip(inner, node.outputs):
            if not isinstance(outer.type, TensorType):
                continue
            for found, size in zip(value.shape, outer.shape):
                number = self.dimension(found)
                if isinstance(size, Dim) and str(size) in fresh and str(size) not in given:
                    given.add(str(size))
                    self.set_variable(str(size), number)
                elif isinstance(size, Dim) and str(size) in given:
                    stored = self.f.load("i64", self.slot("dims", self.tables.variable(str(size))), 8)
                    changed = self.f.compare("ne", stored, number)
                    self.fail_if(changed, node.origin, "dims_mismatch", number, stored)

    def _loop(self, node: Node) -> None:
        f, op, body = self.f, node.op, node.op.body
        fresh, texts = self._fresh(node), self.plan.texts.get(node)
        iteration, condition, *carried = body.inputs[: 2 + op.carried]
        trips = f.load("i64", self.address(node.inputs[0]))
        varying = self._varying(node)
        self._carry(node.inputs[2 : 2 + op.carried], carried, varying, [None] * op.carried)
        scans = [
            (inner, outer) for inner, outer in zip(body.outputs[1 + op.carried :], node.outputs[op.carried :])
        ]
        counter = f.hoisted("alloca i64", "ptr")
        f.store("i64", "0", counter, 8)
        f.store("i8", f.load("i8", self.address(node.inputs[1])), self.address(condition))
        self._open_scans(scans, texts)
        head, inside, after = (f.fresh_label("iterate"), f.fresh_label("body"), f.fresh_label("finished"))
        f.branch(head)
        f.label(head)
        self._forget(varying)
        now = f.load("i64", counter, 8)
        goes_on = f.compare("ne", f.load("i8", self.address(condition)), 0, "i8")
        more = f.binary("and", goes_on, f.compare("slt", now, trips), "i1")
        f.branch_if(more, inside, after)
        f.label(inside)
        with self.region():
            self.defined |= varying
            f.store("i64", now, self.address(iteration))
            self.leave_if_failed(f.call("i32", self.service("cancelled"), "ptr %ctx"))
            self.nodes(body.nodes)
            for inner, outer in scans:
                self._append(node, inner, outer, now, texts)
            again = f.load("i8", self.address(body.outputs[0]))
            self._carry(body.outputs[1 : 1 + op.carried], carried, varying, self.plan.staging[node], texts)
            f.store("i8", again, self.address(condition))
            f.store("i64", f.binary("add", now, 1, "i64"), counter, 8)
        f.branch(head)
        f.label(after)
        self._finish_loop(node, carried, varying, fresh, now)

    def _varying(self, node: Node) -> set[str]:
        """The variables that the body's carried inputs define."""
        names: set[str] = set()
        for value in node.op.body.inputs[2 : 2 + node.op.carried]:
            if isinstance(value.type, TensorType):
                names |= {s.name for d in value.shape for s in dims.symbols(d)}
        return names - self.defined

    def _carry(
        self,
        values: Sequence[Value],
        carried: Sequence[Value],
        varying: set[str],
        staging: Sequence[Location | None],
        texts: Texts | None = None,
    ) -> None:
        """Copies values into the memory of the carried ones, by way of `staging` where that would overwrite
        what is still to be read; the sizes follow. texts: where the characters of strings are copied, too."""
        locations = self.plan.locations
        sources = [
            None if locations[value] == locations[into] else self._source(value, stage)
            for value, into, stage in zip(values, carried, staging)
        ]
        shapes = [
            [self.dimension(d) for d in v.shape] if isinstance(v.type, TensorType) else [] for v in values
        ]
        for sizes, into in zip(shapes, carried):
            for number, size in zip(sizes, into.shape if sizes else ()):
                if isinstance(size, Dim) and str(size) in varying:
                    self.set_variable(str(size), number)
        self._forget(varying)
        for source, into in zip(sources, carried):
            if source is None:
                continue
            if isinstance(into.type, TensorType):
                self.copy(self.make(into), *source)
            else:
                self._copy_object(locations[into], source[0], hold=True)
        changed = [into for value, into in zip(values, carried) if is_text(into) and value is not into]
        if texts is None or not changed:
            return
        for into in changed:  # some of them may be characters of others
            self._keep_texts(texts.following, self.address(into), self.size(into.tensor.nbytes))
        self.f.statement(
            f"call void {self.service('move')}(ptr %ctx, i32 {texts.carried}, i32 {texts.following})"
        )

    def _keep_texts(self, slot: int, strings: str, nbytes: str) -> None:
        """Copies the characters of so many bytes of strings to where the context's slot keeps them."""
        self.leave_if_failed(
            self.f.call(
                "i32",
                self.service("keep_texts"),
                "ptr %ctx",
                f"i32 {slot}",
                f"ptr {strings}",
                f"i64 {nbytes}",
            )
        )

    def _source(self, value: Value, stage: Location | None) -> tuple[str, str]:
        """(address, bytes) of a value, of its copy when there is a stage for it."""
        if not isinstance(value.type, TensorType):
            source = self.address(value)
            if stage is not None:
                self._copy_object(stage, source, hold=True)
                source = self.at(stage)
            return source, str(abi.VALUE_BYTES)
        source, nbytes = self.address(value), self.size(value.tensor.nbytes)
        if stage is not None:
            copied = self.obtain(stage, value.tensor.nbytes)
            self.copy(copied, source, nbytes)
            source = copied
        return source, nbytes

    def _open_scans(self, scans: Sequence[tuple[Value, Value]], texts: Texts | None) -> None:
        """Memory for collected values whose number and size are known, and zero for the sizes that
        iterations will tell. The characters that the loop collected when it ran before are freed."""
        if texts is not None:
            self.f.statement(f"call void {self.service('hold')}(ptr %ctx, i32 {texts.collected}, ptr null)")
        for _, outer in scans:
            if self.plan.locations[outer].kind != "heap":
                self.make(outer)
            for size in outer.shape[1:]:
                if isinstance(size, Dim) and str(size) not in self.defined and size.terms[0][0]:
                    self.set_variable(str(size), "0")

    def _append(self, node: Node, inner: Value, outer: Value, now: str, texts: Texts | None) -> None:
        """Stores an iteration's value as row `now` of the collected one."""
        f, location = self.f, self.plan.locations[outer]
        for found, size in zip(inner.shape, outer.shape[1:]):
            if not isinstance(size, Dim) or str(size) in self.defined:
                continue
            slot, number = self.slot("dims", self.tables.variable(str(size))), self.dimension(found)
            first = f.load("i64", slot, 8)
            wrong = f.binary("and", f.compare("ne", first, number), f.compare("ne", now, 0), "i1")
            self.fail_if(wrong, node.origin, "dims_mismatch", number, first)
            f.store("i64", number, slot, 8)
        row = self.size(inner.tensor.nbytes)
        if location.kind == "heap":
            total = f.mul(f.binary("add", now, 1, "i64"), row)
            pointer = f.call(
                "ptr", self.service("buffer"), "ptr %ctx", f"i32 {location.index}", f"i64 {total}"
            )
            self.leave_if(f.compare("eq", pointer, "null", "ptr"))
            f.store("ptr", pointer, self.slot("values", location.slot), 8)
        end = f.offset(self.address(outer), f.mul(now, row))
        self.copy(end, self.address(inner), row)
        if texts is not None and is_text(outer):
            self._keep_texts(texts.collected, end, row)

    def _finish_loop(
        self, node: Node, carried: Sequence[Value], varying: set[str], fresh: set[str], now: str
    ) -> None:
        """The sizes of the loop's results."""
        self._give_shapes(carried, node, fresh)
        for outer in node.outputs[node.op.carried :]:
            count = outer.shape[0]
            if isinstance(count, Dim) and str(count) in fresh:
                self.set_variable(str(count), now)
            location = self.plan.locations[outer]
            if location.kind == "heap":  # there may have been no iteration to make it
                pointer = self.f.call(
                    "ptr", self.service("buffer"), "ptr %ctx", f"i32 {location.index}", "i64 0"
                )
                self.leave_if(self.f.compare("eq", pointer, "null", "ptr"))
                self.f.store("ptr", pointer, self.slot("values", location.slot), 8)
        self.defined |= fresh
        self._forget(fresh | varying)
