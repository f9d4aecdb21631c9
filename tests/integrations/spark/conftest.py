"""One Spark session for all tests of this directory: its start takes most of their time."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from contrada.errors import MissingRequirementError
from contrada.integrations.spark.spark_session import check_requirements, spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores."""
    try:
        check_requirements()
    except MissingRequirementError as missing:
        pytest.skip(str(missing))
    with spark_session(2, "tests") as session:
        yield session
