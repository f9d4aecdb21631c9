"""Questions to sources of data, and sources that answer them.

A question is asked once; it travels to those sources whose descriptions it meets, and each answers
with its items. This room says what a question is and how a source of any kind answers it. How it
travels is decided in `routing`; who runs it, on which thread and until when, in `runtime`.

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
