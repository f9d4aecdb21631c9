"""`ContradaSource`: the data source `format("contrada")`; see `docs/spark.md`."""

import logging
import sys
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import datasource as D  # noqa: N812 - beside `types as T`
from pyspark.sql import types as T  # noqa: N812 - the name that everyone gives it

from contrada.errors import FormatError
from contrada.integrations.spark.connector import frame_readers as readers
from contrada.integrations.spark.connector.arrow_columns import DEFAULT_SCHEMA
from contrada.integrations.spark.connector.connector_options import Options
from contrada.integrations.spark.connector.frame_writers import BatchWriter, StreamWriter
from contrada.integrations.spark.spark_session import PUSHDOWN

_PUSHES: Final = "pyspark.sql.worker.data_source_pushdown_filters"
_LOG: Final = logging.getLogger(__name__)


class ContradaSource(D.DataSource):
    """Reads subscriptions as frames, and publishes frames."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "contrada"

    def schema(self) -> str:
        """Returns the default schema."""
        return readers.PatternReader.SCHEMA if Options.of(self.options).pattern else DEFAULT_SCHEMA

    def reader(self, schema: T.StructType) -> D.DataSourceReader:
        """Returns a batch reader. Raises FormatError for a wrong combination of options."""
        options = Options.of(self.options)
        if options.pattern:
            if options.durable or options.filter:
                reason = "a pattern is read without `durable` and `filter`"
                raise FormatError("CONFLICTING_OPTIONS", reason)
            return readers.PatternReader(options, schema)
        if options.durable:
            return readers.LogFrameReader(options, schema)
        # A reader with `pushFilters` fails in a session that pushes none.
        if is_pushing():
            return readers.PushingReader(options, schema)
        _LOG.warning(
            "no filters of Spark are sent to the broker: it can use none, or %(key)s "
            "is not set (contrada.integrations.spark.configure sets it)",
            {"key": PUSHDOWN},
        )
        return readers.SubscriptionReader(options, schema)

    def streamReader(self, schema: T.StructType) -> D.DataSourceStreamReader:  # noqa: N802 - Spark's
        """Returns a stream reader. Raises FormatError for a wrong combination of options."""
        options = Options.of(self.options)
        if options.pattern:
            reason = "a pattern cannot be read as a stream: `detect` finds it in one"
            raise FormatError("CONFLICTING_OPTIONS", reason)
        return readers.LogStreamReader(options, schema)

    def writer(self, schema: T.StructType, overwrite: bool) -> D.DataSourceWriter:
        """Returns a batch writer."""
        self._check_append(overwrite)
        return BatchWriter(Options.of(self.options), schema)

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> D.DataSourceStreamWriter:  # noqa: N802 - Spark's
        """Returns a stream writer."""
        self._check_append(overwrite)
        return StreamWriter(Options.of(self.options), schema)

    def _check_append(self, overwrite: bool) -> None:
        if overwrite:
            reason = "publications cannot be overwritten: use the mode append"
            raise FormatError("UNSUPPORTED_MODE", reason)


def is_pushing() -> bool:
    """Whether Spark has started this process to push filters."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHES in sys.modules or (main is not None and main.name == _PUSHES)


def register(session: SparkSession) -> None:
    """Registers `format("contrada")` where Spark cannot find it: in a zip of `--py-files`."""
    session.dataSource.register(ContradaSource)
