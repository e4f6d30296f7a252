"""Files and streams of text are UTF-8 whatever the locale is."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [path for room in ("onnxc", "passes", "codegen") for path in sorted((ROOT / room).rglob("*.py"))]


def leaves_encoding_open(call):
    """Whether the locale chooses the encoding of a file or of a process's streams."""
    method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if method else getattr(call.func, "id", "")
    named = {keyword.arg for keyword in call.keywords}
    if "encoding" in named:
        return False
    if name in ("open", "fdopen"):
        of_path = method and name == "open"
        modes = [a.value for a in call.args[0 if of_path else 1 :][:1] if isinstance(a, ast.Constant)]
        return "b" not in modes[0] if modes else not of_path
    return "text" in named or name in ("read_text", "write_text", "TextIOWrapper")


@pytest.mark.parametrize(
    ("call", "open_"),
    [
        ("open(path)", True),
        ("open(path, 'w')", True),
        ("open(path, 'rb')", False),
        ("open(path, encoding='utf-8')", False),
        ("path.read_text()", True),
        ("path.write_text(text, encoding='utf-8')", False),
        ("subprocess.run(command, text=True)", True),
        ("os.fdopen(file, 'w')", True),
    ],
)
def test_the_rule_tells_calls_apart(call, open_):
    assert leaves_encoding_open(ast.parse(call).body[0].value) is open_


def test_text_names_its_encoding():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and leaves_encoding_open(node)
    ]
    assert SOURCES and not found
