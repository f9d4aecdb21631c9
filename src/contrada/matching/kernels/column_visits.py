"""Kernels that read the columns of a block of rows, and list the rows of each bucket.

`visit_buckets` reads each column once. Of a value it keeps the upper half of its key, or of a text
the hash, for guards. A row is *odd* if one of its values has no key: it is matched by itself.
"""

from contrada.matching.kernels import schema
from contrada.matching.kernels.bucket_lookup import collect_attr, find_bucket, look_up
from contrada.matching.kernels.evaluate import same_text
from contrada.matching.kernels.memory import bytes_at, double_bits, kernel, number_at, prefetch
from contrada.matching.kernels.schema import ColumnRow, ColumnRows, Memory
from contrada.matching.kernels.scratch import (
    BOOL,
    BOOLEAN,
    DOUBLE,
    EXACT_MAX,
    FLOAT,
    INT32_MIN,
    KIND_TEXT,
    MASK,
    NUMBER,
    STRING,
    TEXT,
    TIME,
    TIMESTAMP,
    begin,
    begin_attr,
    bit_at,
    finished,
    integer_at,
    load_cell,
    ordered,
    place_hash,
    point_hash,
    text_hash,
)
from contrada.model.domains.values import TIME_MAX_US, TIME_MIN_US

LOOK_UPS = 128
"""Values of a column that are looked up together."""
ABSENT = INT32_MIN
"""The half of a row without the attribute: less than that of any key, and of the end of a range."""


@kernel
def key_cell(column: ColumnRow, row: int) -> tuple[int, int]:
    """Returns the key of a value outside text, and whether it is odd: NaN, a whole number that is
    no double, or a time out of range.
    """
    kind, data = column.kind, column.data
    if kind == DOUBLE or kind == FLOAT:
        if kind == FLOAT:
            number = number_at(data, row, "f")
        else:
            number = number_at(data, row, "d")
        return ordered(double_bits(number)), number != number
    if kind == BOOLEAN:
        return bit_at(data, row), False
    integer = integer_at(kind, data, row)
    if kind == TIMESTAMP:
        return integer, (integer < TIME_MIN_US) | (integer > TIME_MAX_US)
    return ordered(double_bits(integer)), (integer < -EXACT_MAX) | (integer > EXACT_MAX)


@kernel
def domain_of(kind: int) -> int:
    """Returns the domain of a column's values."""
    if kind >= STRING:
        return TEXT
    if kind == TIMESTAMP:
        return TIME
    return BOOL if kind == BOOLEAN else NUMBER


@kernel
def text_cell(column: ColumnRow, row: int) -> tuple[int, int]:
    """Returns the position of a text in its column, and its length."""
    if column.kind == STRING:
        start, end = number_at(column.data, row, "i"), number_at(column.data, row + 1, "i")
    else:
        start, end = number_at(column.data, row, "q"), number_at(column.data, row + 1, "q")
    return start, end - start


@kernel
def is_null(column: ColumnRow, row: int) -> int:
    """Whether a row has no value."""
    if column.valid == 0:
        return False
    return 1 - bit_at(column.valid, row)


@kernel
def read_keys(column: ColumnRow, at: int, first: int, m: Memory) -> None:
    """Stores the upper halves of a column's keys, outside text; marks odd rows."""
    halves, rows = m.halves, m.block_rows
    for i in range(m.counters[0].block_size):
        row = column.offset + first + i
        key, odd = key_cell(column, row)
        here = 1 - is_null(column, row)
        halves[at + i] = key >> 32 if here else ABSENT
        rows[i].odd |= odd & here


# --- the buckets of rows --------------------------------------------------------------------------


@kernel
def visit(bucket: int, row: int, m: Memory) -> None:
    """Adds a row of the block to those of a bucket. There must be room."""
    counters, of_bucket = m.counters[0], m.bucket_visits
    its = m.visits[counters.visits]
    its.bucket, its.row, its.next = bucket, row, of_bucket[bucket] - 1
    counters.visits += 1
    of_bucket[bucket] = counters.visits


@kernel
def is_cell(bucket: int, column: ColumnRow, row: int, m: Memory) -> int:
    """Whether a bucket of one value is the value's of a row, not another's with the same hash."""
    its, domain = m.buckets[bucket], domain_of(column.kind)
    if its.of_attr != column.attr or its.of_domain != domain:
        return False
    low, high = its.of_low + 0, its.of_high + 0
    of = (high << 32) | (low & MASK)
    if domain == TEXT:
        start, length = text_cell(column, row)
        return same_text(m, of, bytes_at(column.text, start + length), start, length)
    key, _ = key_cell(column, row)
    return key == of


@kernel
def hash_cell(column: ColumnRow, at: int, row: int, is_placed: int, m: Memory) -> int:
    """Returns the hash of a value's place; -1 without one. Stores the hash of a text at `at`."""
    seed = m.seed[0]
    if column.kind >= STRING:
        start, length = text_cell(column, row)
        h = text_hash(seed, bytes_at(column.text, start + length), start, length)
        m.halves[at] = finished(h)
        return place_hash(seed, column.attr, KIND_TEXT, h) if is_placed else -1
    key, _ = key_cell(column, row)
    return point_hash(seed, column.attr, domain_of(column.kind), key)


@kernel
def visit_values(column: ColumnRow, at: int, first: int, m: Memory) -> int:
    """Adds the rows of the buckets of a column's values, and stores the hashes of texts."""
    counters, pending, slots, rows = m.counters[0], m.pending, m.slots, m.block_rows
    is_placed, mask = m.attrs[column.attr].by_value, len(slots) - 1
    count = counters.block_size
    for start in range(0, count, LOOK_UPS):
        end = min(count, start + LOOK_UPS)
        if counters.visits + LOOK_UPS > len(m.visits):
            return schema.NEED_VISITS
        for i in range(start, end):
            row = column.offset + first + i
            h = -1
            if rows[i].odd == 0:
                if is_null(column, row):
                    m.halves[at + i] = ABSENT
                else:
                    h = hash_cell(column, at + i, row, is_placed, m)
            pending[i - start] = h
            prefetch(slots, h & mask)
        if is_placed == 0:
            continue
        for i in range(end - start):
            prefetch(m.buckets, max(slots[pending[i] & mask] - 1, 0))
        for i in range(start, end):
            bucket = find_bucket(m, pending[i - start]) if pending[i - start] >= 0 else -1
            if bucket < 0:
                continue
            if m.buckets[bucket].of_domain == 0:
                counters.repeats = 1
                visit(bucket, i, m)
            elif is_cell(bucket, column, column.offset + first + i, m):
                visit(bucket, i, m)
    return schema.OK


@kernel
def visit_all_places(column: ColumnRow, at: int, first: int, m: Memory) -> int:
    """Adds the rows of all buckets that a column leads to, value by value; stores the hashes of
    texts.
    """
    counters, is_text = m.counters[0], column.kind >= STRING
    for i in range(counters.block_size):
        row = column.offset + first + i
        if is_text:
            m.halves[at + i] = ABSENT
        if m.block_rows[i].odd or is_null(column, row):
            continue
        begin(m)
        begin_attr(column.attr, m)
        status = load_cell(column, row, m)
        if status != schema.OK:
            return status
        if is_text:
            m.halves[at + i] = m.hulls[2 * column.attr + 1].lowest
        counters.buckets = 0
        collect_attr(column.attr, m)
        look_up(m)
        if counters.visits + counters.buckets > len(m.visits):
            return schema.NEED_VISITS
        for n in range(counters.buckets):
            bucket = m.bucket_list[n] >> 1
            if m.buckets[bucket].of_domain == 0 and m.buckets[bucket].hash >= 0:
                counters.repeats = 1
            visit(bucket, i, m)
    return schema.OK


@kernel
def has_only_values(column: ColumnRow, m: Memory) -> int:
    """Whether filters are assigned to single values of an attribute only, if at all."""
    attr, parts = column.attr, m.parts
    its = m.attrs[attr]
    other = (its.tree >= 0) | (its.presence >= 0) | (its.nocase != 0)
    for i in range(schema.PART_COLUMNS * attr, schema.PART_COLUMNS * (attr + 1)):
        other |= parts[i] != 0
    return other == 0


@kernel
def visit_buckets(columns: ColumnRows, first: int, m: Memory) -> int:
    """Lists the rows of each bucket that the block reaches."""
    counters = m.counters[0]
    count = counters.block_size
    for c in range(len(columns)):
        if columns[c].kind < STRING:
            read_keys(columns[c], count * c, first, m)
    if m.buckets[0].length > 0:
        if count > len(m.visits):
            return schema.NEED_VISITS
        for i in range(count):
            if m.block_rows[i].odd == 0:
                visit(0, i, m)
    for c in range(len(columns)):
        column, status = columns[c], schema.OK
        if not has_only_values(column, m):
            status = visit_all_places(column, count * c, first, m)
        elif column.kind >= STRING or m.attrs[column.attr].by_value:
            status = visit_values(column, count * c, first, m)
        if status != schema.OK:
            return status
    return schema.OK
