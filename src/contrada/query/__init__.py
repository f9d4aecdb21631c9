"""Questions to sources of data, and sources that answer them.

A question is asked once; it travels to those sources whose descriptions it meets, and each answers
with its items. This room defines questions, and how sources of each kind answer them. `routing`
decides how a question travels; `runtime` runs a source, on some thread and until some deadline.

Source: CU-CS-948-03.
"""

from contrada.query.question import Question
from contrada.query.sources import (
    DataSource,
    FileSource,
    FunctionSource,
    RecordSource,
    TableSource,
)

__all__ = ["DataSource", "FileSource", "FunctionSource", "Question", "RecordSource", "TableSource"]
