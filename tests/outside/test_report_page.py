"""The page of `onnxc profile --html` in a browser: every node is drawn, and what is clicked is chosen."""

import re
import shutil
import subprocess

import pytest

from onnxc.commands.report import Flow, page

pytestmark = pytest.mark.outside

NODES = 1000
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--dump-dom",
]


def profile(count=NODES):
    """A page of so many nodes, every third of which reads two, of several kernels."""
    peak = {"gflops": 100.0, "gbytes": 10.0, "measured": True}
    told = {
        "file": "m.onnx",
        "target": "native",
        "threads": 1,
        "inputs": "x",
        "peak": peak,
        "ns": 1000 * count,
    }
    work = {
        "multiply_adds": 10**5,
        "bytes": 10**4,
        "gflops": 200.0,
        "gbytes": 10.0,
        "bound_ns": 900.0,
        "of_peak": 0.9,
    }
    told["nodes"] = [
        {
            "node": f"block{k // 10}/layer{k % 10} (Conv)",
            "kernel": ("conv", "gemm", "rows")[k % 3],
            "choice": "conv 14x2",
            "ns": 1000,
            "share": 1 / count,
            "estimated_ns": 1100,
            "parts": 1,
            **work,
        }
        for k in range(count)
    ]
    flow = [
        Flow(tuple({max(k - 1, 0), max(k - 3, 0)} if k % 3 == 0 else {k - 1}) if k else (), 64)
        for k in range(count)
    ]
    return page(told, flow)


def opened(folder, text):
    """(the document once it is drawn, what the browser's console said)"""
    (folder / "page.html").write_text(text)
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or "google-chrome"
    command = [browser, *FLAGS, f"--user-data-dir={folder / 'profile'}", (folder / "page.html").as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    return ended.stdout, [line for line in ended.stderr.splitlines() if "CONSOLE" in line]


def test_every_node_is_drawn_without_a_complaint(tmp_path):
    document, console = opened(tmp_path, profile())
    assert console == []
    assert re.search(r'data-drawn="\d+"', document)
    assert document.count('class="node"') == document.count("<circle") == NODES
    assert document.count("<tr>") == NODES + 1


def test_a_node_that_is_clicked_is_chosen_everywhere(tmp_path):
    click = "<script>document.querySelectorAll('#nodes tbody tr')[2].click()</script>"
    document, console = opened(tmp_path, profile(9).replace("</html>", f"{click}</html>"))
    assert console == []
    assert document.count("chosen") - document.split("</style>")[0].count("chosen") >= 4
    assert re.search(r'<aside id="detail"><b>block0/layer2 \(Conv\)</b>', document)


def test_what_is_wrong_in_a_page_is_seen(tmp_path):
    _, console = opened(tmp_path, profile(2).replace("drawGraph();", "drawNothing();"))
    assert any("drawNothing is not defined" in line for line in console)
