"""Sources: each answers questions from one kind of data, and describes its data.

Records in memory, a function, a table of a database, files. Each gives exactly the items that
answer: conditions that the database or file format can decide are pushed down to it, and everything
is decided exactly again.

Source: CU-CS-948-03 §4 (query application; advertisements may say more than there is).
"""

from contrada.integrations.sources.file_source import FileSource
from contrada.integrations.sources.table_source import TableSource
from contrada.service.query.source import DataSource, FunctionSource, RecordSource

__all__ = ["DataSource", "FileSource", "FunctionSource", "RecordSource", "TableSource"]
