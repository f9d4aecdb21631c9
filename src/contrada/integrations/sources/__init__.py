"""Sources of queries: records in memory, a function, a table of a database, files.

Each yields exactly the items that match a query, and describes its data. Conditions that the
database or file format can evaluate are pushed down to it, and every item is checked exactly again.

Source: CU-CS-948-03 §4 (query application; advertisements may cover more than exists).
"""

from contrada.integrations.sources.file_source import FileSource
from contrada.integrations.sources.table_source import TableSource
from contrada.service.query.source import DataSource, FunctionSource, RecordSource

__all__ = ["DataSource", "FileSource", "FunctionSource", "RecordSource", "TableSource"]
