"""eliminate_dead: what nobody reads goes, what binds a needed size stays."""

from support.pass_text import becomes, stays

from onnxc.ir.graph import walk
from onnxc.ir.text_parser import parse
from onnxc.passes import eliminate_dead as module
from onnxc.passes.eliminate_dead import eliminate_dead


def test_what_nobody_reads_goes_with_what_only_it_reads():
    becomes(
        eliminate_dead,
        """graph g(%x: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%0) { log($0) }
        %2 = map(%x) { neg($0) }
        return %2
    }""",
        """graph g(%x: float32[n]) {
        %2 = map(%x) { neg($0) }
        return %2
    }""",
    )


def test_a_graph_without_outputs_needs_nothing():
    becomes(
        eliminate_dead,
        """graph g(%x: float32[n]) {
        %0 = map(%x) { exp($0) }
        return
    }""",
        """graph g(%x: float32[n]) {
        return
    }""",
    )


def test_a_node_stays_whole_while_one_of_its_results_is_read():
    stays(
        eliminate_dead,
        """graph g(%x: float32[n]) {
        %0, %1 = sort(%x) axis=0
        return %1
    }""",
    )


def test_a_bind_stays_while_a_size_needs_it():
    stays(
        eliminate_dead,
        """graph g(%x: float32[8], %s: int64[1]) {
        bind(%s) symbols=(k)
        %0 = slice(%x) starts=(0) sizes=(k) steps=(1)
        return %0
    }""",
    )


def test_a_bind_stays_while_a_start_needs_it():
    stays(
        eliminate_dead,
        """graph g(%x: float32[8], %s: int64[1]) {
        bind(%s) symbols=(k)
        %0 = slice(%x) starts=(k) sizes=(2) steps=(1)
        return %0
    }""",
    )


def test_a_bind_stays_while_an_expression_needs_its_size():
    stays(
        eliminate_dead,
        """graph g(%x: int64[8], %s: int64[1]) {
        bind(%s) symbols=(k)
        %0 = map(%x) { add($0, size(k)) }
        return %0
    }""",
    )


def test_a_bind_goes_with_the_last_that_needs_its_size():
    becomes(
        eliminate_dead,
        """graph g(%x: float32[8], %s: int64[1]) {
        bind(%s) symbols=(k)
        %0 = slice(%x) starts=(0) sizes=(k) steps=(1)
        return %x
    }""",
        """graph g(%x: float32[8], %s: int64[1]) {
        return %x
    }""",
    )


def test_a_call_stays_while_a_size_that_it_tells_is_needed():
    stays(
        eliminate_dead,
        """graph g(%x: float32[n]) {
        %0 = runtime_call(%x) symbol=nonzero : int64[1, k]
        %1 = elements() dims=(k) shape=(1)
        return %1
    }""",
    )


def test_a_branch_stays_while_a_size_that_it_tells_is_needed():
    stays(
        eliminate_dead,
        """graph g(%c: bool[], %x: float32[n]) {
        %0 = if(%c, %x) then=(%a: float32[n]) {
            %1 = concat(%a, %a) axis=0
            return %1
        } otherwise=(%a: float32[n]) { return %a } : float32[k]
        %2 = elements() dims=(k) shape=(1)
        return %2
    }""",
    )


def test_what_no_branch_reads_is_not_captured():
    becomes(
        eliminate_dead,
        """graph g(%c: bool[], %x: float32[n], %y: float32[n]) {
        %0 = map(%y) { exp($0) }
        %1 = if(%c, %x, %0) then=(%a: float32[n], %b: float32[n]) {
            %2 = map(%b) { neg($0) }
            return %a
        } otherwise=(%a: float32[n], %b: float32[n]) { return %a } : float32[n]
        return %1
    }""",
        """graph g(%c: bool[], %x: float32[n], %y: float32[n]) {
        %1 = if(%c, %x) then=(%a: float32[n]) { return %a } otherwise=(%a: float32[n]) {
            return %a
        } : float32[n]
        return %1
    }""",
    )


def test_what_one_branch_reads_is_captured_by_both():
    stays(
        eliminate_dead,
        """graph g(%c: bool[], %x: float32[n], %y: float32[n]) {
        %0 = if(%c, %x, %y) then=(%a: float32[n], %b: float32[n]) {
            return %a
        } otherwise=(%a: float32[n], %b: float32[n]) { return %b } : float32[n]
        return %0
    }""",
    )


def test_a_loop_keeps_what_it_carries_and_drops_what_it_only_captures():
    becomes(
        eliminate_dead,
        """graph g(%t: int64[], %c: bool[], %x: float32[n], %y: float32[n]) {
        %0 = loop(%t, %c, %x, %y) carried=1 body=(%i: int64[], %d: bool[], %a: float32[n], %b: float32[n]) {
            %1 = map(%b) { exp($0) }
            %2 = map(%a) { neg($0) }
            return %d, %2
        } : float32[n]
        return %0
    }""",
        """graph g(%t: int64[], %c: bool[], %x: float32[n], %y: float32[n]) {
        %0 = loop(%t, %c, %x) carried=1 body=(%i: int64[], %d: bool[], %a: float32[n]) {
            %2 = map(%a) { neg($0) }
            return %d, %2
        } : float32[n]
        return %0
    }""",
    )


def test_a_branch_returns_only_what_is_read():
    becomes(
        eliminate_dead,
        """graph g(%c: bool[], %x: float32[n], %y: float32[n]) {
        %0, %1, %2 = if(%c, %x, %y) then=(%a: float32[n], %b: float32[n]) {
            %3 = map(%a) { exp($0) }
            %4 = map(%b) { exp($0) }
            return %3, %4, %a
        } otherwise=(%a: float32[n], %b: float32[n]) {
            return %a, %b, %a
        } : float32[n], float32[n], float32[n]
        return %2, %0
    }""",
        """graph g(%c: bool[], %x: float32[n], %y: float32[n]) {
        %0, %2 = if(%c, %x) then=(%a: float32[n]) {
            %3 = map(%a) { exp($0) }
            return %3, %a
        } otherwise=(%a: float32[n]) { return %a, %a } : float32[n], float32[n]
        return %2, %0
    }""",
    )


def test_a_result_of_a_branch_stays_while_a_size_that_it_tells_is_needed():
    stays(
        eliminate_dead,
        """graph g(%c: bool[], %x: float32[n]) {
        %0, %1 = if(%c, %x) then=(%a: float32[n]) {
            %2 = concat(%a, %a) axis=0
            return %2, %a
        } otherwise=(%a: float32[n]) { return %a, %a } : float32[k], float32[n]
        %3 = elements() dims=(k) shape=(1)
        return %1, %3
    }""",
    )


def test_a_loop_does_not_collect_what_is_not_read():
    becomes(
        eliminate_dead,
        """graph g(%t: int64[], %c: bool[], %x: float32[n]) {
        %0, %1, %2, %3 = loop(%t, %c, %x, %x) carried=2
            body=(%i: int64[], %d: bool[], %a: float32[n], %b: float32[n]) {
            %4 = map(%a) { exp($0) }
            %5 = map(%b) { log($0) }
            return %d, %4, %b, %4, %5
        } : float32[n], float32[n], float32[s, n], float32[s, n]
        return %2
    }""",
        """graph g(%t: int64[], %c: bool[], %x: float32[n]) {
        %0, %1, %2 = loop(%t, %c, %x, %x) carried=2
            body=(%i: int64[], %d: bool[], %a: float32[n], %b: float32[n]) {
            %4 = map(%a) { exp($0) }
            return %d, %4, %b, %4
        } : float32[n], float32[n], float32[s, n]
        return %2
    }""",
    )


def test_dead_nodes_go_in_nested_regions():
    becomes(
        eliminate_dead,
        """graph g(%c: bool[], %x: float32[n]) {
        %0 = if(%c, %c, %x) then=(%d: bool[], %a: float32[n]) {
            %1 = if(%d, %a) then=(%b: float32[n]) {
                %2 = map(%b) { exp($0) }
                return %b
            } otherwise=(%b: float32[n]) { return %b } : float32[n]
            return %1
        } otherwise=(%d: bool[], %a: float32[n]) { return %a } : float32[n]
        return %0
    }""",
        """graph g(%c: bool[], %x: float32[n]) {
        %0 = if(%c, %c, %x) then=(%d: bool[], %a: float32[n]) {
            %1 = if(%d, %a) then=(%b: float32[n]) {
                return %b
            } otherwise=(%b: float32[n]) { return %b } : float32[n]
            return %1
        } otherwise=(%d: bool[], %a: float32[n]) { return %a } : float32[n]
        return %0
    }""",
    )


def test_a_node_in_nested_regions_is_asked_once_for_its_sizes(monkeypatch):
    text = "%a"
    for k in range(6):
        inner = f"%{k} = map(%a) {{ exp($0) }}" if text == "%a" else text
        text = f"""%{k + 10} = if(%d, %d, %a) then=(%d: bool[], %a: float32[n]) {{
            {inner}
            return %{k + 9 if k else k}
        }} otherwise=(%d: bool[], %a: float32[n]) {{ return %a }} : float32[n]"""
    graph = parse(f"graph g(%d: bool[], %a: float32[n]) {{ {text} return %15 }}")
    asked = []
    own = module._own_variables
    monkeypatch.setattr(module, "_own_variables", lambda node: asked.append(node) or own(node))
    assert len(list(walk(eliminate_dead(graph)))) == len(asked) == 7
