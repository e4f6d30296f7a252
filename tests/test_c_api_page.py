"""docs/c_api.md tells of every function and every status of onnxc.h."""

import re
from pathlib import Path

import onnxc
from onnxc.codegen import abi
from onnxc.codegen.library import tables

PAGE = (Path(__file__).parents[1] / "docs" / "c_api.md").read_text()


def test_every_status_has_its_row_with_its_number():
    rows = dict(re.findall(r"^\| `ONNXC_(\w+)` \| (\d+) \|", PAGE, re.M))
    assert rows == {name.upper(): str(number) for name, number in abi.ERRORS.items()}


def test_every_function_of_the_table_is_told_of():
    functions = [name for name, type_ in tables.STRUCTS["onnxc_model"].items() if type_ == "ptr"][7:]
    assert functions[0] == "create" and set(tables._FUNCTIONS) < set(functions)
    first_cells = " ".join(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE, re.M))
    assert not [name for name in functions if f"`{name}`" not in first_cells]


def test_the_page_names_only_what_the_headers_have():
    headers = "".join(path.read_text() for path in Path(onnxc.get_include()).glob("*.h*"))
    named = set(re.findall(r"\bonnxc_(?!add_model|DIR|model\b)\w+|\bONNXC_[A-Z_]+\b", PAGE))
    assert named and not sorted(name for name in named if name not in headers)
