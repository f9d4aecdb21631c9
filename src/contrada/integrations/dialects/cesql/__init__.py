"""CESQL, the CloudEvents SQL expression language 1.0: parser, evaluation, translation to filters.

`parse` and `evaluate` follow the specification, including errors. `read` returns a rule of filters
and a residue. `cesql_values` documents the attributes of a CloudEvent in a notification.
"""

from contrada.integrations.dialects.cesql.cesql_parser import parse
from contrada.integrations.dialects.cesql.cesql_translator import filters, read, read_rules
from contrada.integrations.dialects.cesql.cesql_values import ErrorKind, Fault
from contrada.integrations.dialects.cesql.evaluation import Evaluation, evaluate, holds
from contrada.integrations.dialects.cesql.expression_tree import Expression

__all__ = [
    "ErrorKind",
    "Evaluation",
    "Expression",
    "Fault",
    "evaluate",
    "filters",
    "holds",
    "parse",
    "read",
    "read_rules",
]
