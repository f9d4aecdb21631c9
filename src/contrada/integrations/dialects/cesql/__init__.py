"""CESQL, the CloudEvents SQL expression language 1.0: read, evaluated, and turned into filters.

`parse` and `evaluate` are the specification's, errors included. `read` makes a rule of filters
and a residue. How a CloudEvent's attributes sit in a notification is said in `values`; what the
specification leaves open, in `parsing` and `evaluation`.
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
