"""The notebook of `examples/pipelines`, whose cells run in order in one namespace."""

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import examples.pipelines

NOTEBOOK = Path(examples.pipelines.__path__[0], "frames.ipynb")


def test_the_notebook_runs(spark: SparkSession) -> None:
    """A reader's first cells would fail, or the counts that it shows would be others."""
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["spark"].sparkContext is spark.sparkContext
    assert names["counts"] == {"late": 1, "alitalia": 2}
    assert names["seen"].get == {"pairs": 3}
