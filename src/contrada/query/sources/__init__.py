"""Sources: what answers questions from data of some kind, and says which data it has.

Records in memory, a function, a table of a database, files. Each gives just those items that
answer: what its kind of data can decide by itself is left to that, and everything is decided
exactly again.

Source: CU-CS-948-03 §4 (query application; advertisements may say more than there is).
"""

from contrada.query.sources.files import FileSource
from contrada.query.sources.source import DataSource, FunctionSource, RecordSource
from contrada.query.sources.tables import TableSource

__all__ = ["DataSource", "FileSource", "FunctionSource", "RecordSource", "TableSource"]
