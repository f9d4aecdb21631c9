"""Sources: each answers questions from one kind of data, and describes its data.

Records in memory, a function, a table of a database, files. Each gives exactly the items that
answer: conditions that the database or file format can decide are pushed down to it, and everything
is decided exactly again.

Source: CU-CS-948-03 §4 (query application; advertisements may say more than there is).
"""

from contrada.query.sources.files import FileSource
from contrada.query.sources.source import DataSource, FunctionSource, RecordSource
from contrada.query.sources.tables import TableSource

__all__ = ["DataSource", "FileSource", "FunctionSource", "RecordSource", "TableSource"]
