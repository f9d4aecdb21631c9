"""CESQL, the CloudEvents SQL expression language 1.0: read, evaluated, and turned into filters.

`parse` and `evaluate` are the specification's, errors included. `read` makes a rule of filters
and a residue. How a CloudEvent's attributes sit in a notification is said in `values`; what the
specification leaves open, in `parsing` and `evaluation`.
"""

from contrada.dialects.cesql.evaluation import Evaluation, evaluate, holds
from contrada.dialects.cesql.parsing import parse
from contrada.dialects.cesql.translation import filters, read, read_rules
from contrada.dialects.cesql.tree import Expression
from contrada.dialects.cesql.values import ErrorKind, Fault

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
