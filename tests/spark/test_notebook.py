"""The example notebook: each cell prints what the notebook shows."""

import contextlib
import io
import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def code_cells():
    notebook = json.loads(NOTEBOOK.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            shown = "".join(text for output in cell["outputs"] for text in output["text"])
            yield "".join(cell["source"]), shown


@pytest.mark.usefixtures("spark")  # the notebook gets this session, and does not stop it
def test_notebook_prints_shown_outputs():
    names = {}
    for number, (code, shown) in enumerate(code_cells(), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"cell {number}", "exec"), names)
        assert printed.getvalue() == shown, f"cell {number}"
    assert number >= 7
