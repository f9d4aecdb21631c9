"""Kernels that match a batch of rows in columns, a block of rows at a time.

Row by row, each row reads the entries of its buckets. A block reads each column once, and groups
its rows by the buckets that they reach. So the entries of a bucket are read once for all of these
rows, and a guard is compared with many of them in one operation, without a branch. Matches that
guards do not decide are checked row by row, as are *odd* rows, which have a value without a key.

A block is in arrays of its own: between two of its rows another notification may be matched.
"""

from contrada.matching.kernels import match, schema
from contrada.matching.kernels.column_visits import ABSENT, domain_of, visit_buckets
from contrada.matching.kernels.memory import (
    bytes_at,
    entry,
    first_lane,
    kernel,
    lanes_within,
    prefetch,
)
from contrada.matching.kernels.schema import ColumnRows, Ints, Memory
from contrada.matching.kernels.scratch import INT32_MAX, MASK, begin, begin_attr, load_row

BLOCK_MIN = 16
"""Rows of a block at least."""
SAMPLED = 16
"""One in so many rows of a block is read first, to learn how many share a bucket."""
ROW_GAIN = 12
"""Comparisons, one by one, that take as long as what a block saves for each row without them."""
PREFETCHED = 16
"""Entries that are prefetched before they are compared."""
NOWHERE = 0
EVERYWHERE = schema.LANES
COLUMNS = 2 * schema.LANES
"""Positions in `lanes`: of halves of which none passes a guard, or all; and of the columns."""


# --- the entries of buckets -----------------------------------------------------------------------


@kernel
def lanes_of(c: int, m: Memory) -> int:
    """Returns the position in `lanes` of a column's halves, for the rows that are compared."""
    counters, lanes, halves, rows = m.counters[0], m.lanes, m.halves, m.lane_rows
    at = COLUMNS + schema.LANES * c
    if m.lane_stamps[c] != counters.lane_stamp:
        m.lane_stamps[c] = counters.lane_stamp
        begin = counters.block_size * c
        for i in range(counters.lanes):
            lanes[at + i] = halves[begin + rows[i]]
    return at


@kernel
def subject_of(guard: int, m: Memory) -> tuple[int, int, int, int, int]:
    """The position in `lanes` of a guard's subjects; NOWHERE or EVERYWHERE.

    And whether the guard is none; a range; another value than one: each decides by itself. And
    whether a half matters.
    """
    kind, domain = (guard >> schema.GUARD_KIND_SHIFT) & 7, (guard >> schema.GUARD_DOMAIN_SHIFT) & 7
    if kind == schema.GUARD_NONE or kind == schema.GUARD_SET:
        return EVERYWHERE, kind == schema.GUARD_NONE, 0, 0, 0
    has = m.state[guard & schema.GUARD_ATTR]
    if has.epoch != m.counters[0].block_epoch or has.only_domain != domain:
        return NOWHERE, 0, 0, 0, 0
    is_half = kind < schema.GUARD_OTHER
    return lanes_of(has.first, m), 0, kind == schema.GUARD_RANGE, not is_half, is_half


@kernel
def list_passing(first: int, end: int, m: Memory) -> int:
    """Lists the entries of a bucket that some lanes may match, each above the bits of these lanes,
    in `pending`; returns their number.
    """
    pending, lanes, count, lane_count = m.pending, m.lanes, 0, m.counters[0].lanes
    last = last_second = -1
    at, _, _, _, is_half = subject_of(0, m)
    second, is_second_half = at, is_half
    for i in range(first, end):
        its = m.entries[i]
        prefetch(m.entries, i + PREFETCHED)
        if its.guard != last:
            last = its.guard
            at, _, _, _, is_half = subject_of(last, m)
        if its.second != last_second:
            last_second = its.second
            second, _, _, _, is_second_half = subject_of(last_second, m)
        low = its.low if is_half else ABSENT + 1
        high = its.high if is_half else INT32_MAX
        second_low = its.second_low if is_second_half else ABSENT + 1
        second_high = its.second_high if is_second_half else INT32_MAX
        found = lanes_within(lanes, lane_count, at, low, high, second, second_low, second_high)
        # Written in any case, and kept by counting it, as in `match.look_through`.
        pending[count] = (i << schema.LANES) | found
        count += found != 0
    return count


@kernel
def put_outcomes(i: int, found: int, by_value: int, m: Memory) -> int:
    """Adds an entry to the outcomes of some lanes if its guards decide, and to their undecided
    entries otherwise.
    """
    counters, lanes, its = m.counters[0], m.lanes, m.entries[i]
    done, left = counters.outcomes, counters.undecided
    if done + schema.LANES > len(m.outcomes) or left + schema.LANES > len(m.undecided):
        return schema.NEED_OUTCOMES
    at, is_none, is_range, is_other, _ = subject_of(its.guard, m)
    second, no_guard, in_range, is_not, _ = subject_of(its.second, m)
    is_decided = match.is_decided(its.guard, by_value)
    key = match.key_of(i, m) if is_decided else 0
    while found != 0:
        lane = first_lane(found)
        found &= found - 1
        row = m.lane_rows[lane]
        value, other = lanes[at + lane], lanes[second + lane]
        sure = is_decided & match.is_sure(its.low, its.high, value, is_none, is_range, is_other)
        sure &= match.is_sure(its.second_low, its.second_high, other, no_guard, in_range, is_not)
        if sure:
            m.outcomes[done].row, m.outcomes[done].key = row, key
            m.block_rows[row].end += 1
            m.block_rows[row].chained |= key < 0
            done += 1
        else:
            m.undecided[left].entry, m.undecided[left].by_value = i, by_value
            m.undecided[left].next = m.block_rows[row].undecided - 1
            left += 1
            m.block_rows[row].undecided = left
    counters.outcomes, counters.undecided = done, left
    return schema.OK


@kernel
def check_bucket(bucket: int, m: Memory) -> int:
    """Checks the entries of a bucket for the rows in the lanes."""
    pending, by_value = m.pending, m.buckets[bucket].of_domain != 0
    first = m.buckets[bucket].start
    end = first + m.buckets[bucket].length
    while first < end:
        last = min(end, first + schema.PENDING)
        for n in range(list_passing(first, last, m)):
            found = pending[n] & MASK
            if put_outcomes(pending[n] >> schema.LANES, found, by_value, m) != schema.OK:
                return schema.NEED_OUTCOMES
        first = last
    return schema.OK


@kernel
def has_needed(bucket: int, row: int, m: Memory) -> int:
    """Whether a row has the attribute that all filters of a bucket need, if there is one."""
    counters, needed = m.counters[0], m.buckets[bucket].needed + 0
    if needed < 0:
        return True
    if m.state[needed].epoch != counters.block_epoch:
        return False
    return m.halves[counters.block_size * m.state[needed].first + row] != ABSENT


@kernel
def check_visits(m: Memory) -> int:
    """Checks the entries of all buckets of the block."""
    counters, visits, of_bucket = m.counters[0], m.visits, m.bucket_visits
    for v in range(counters.visits):
        bucket = visits[v].bucket
        link = of_bucket[bucket] - 1
        of_bucket[bucket] = 0
        while link >= 0:
            count = 0
            while link >= 0 and count < schema.LANES:
                m.lane_rows[count] = visits[link].row
                count += has_needed(bucket, m.lane_rows[count] + 0, m)
                link = visits[link].next
            counters.lanes = count
            counters.lane_stamp += 1
            if count > 0 and check_bucket(bucket, m) != schema.OK:
                return schema.NEED_OUTCOMES
    return schema.OK


@kernel
def sort_outcomes(m: Memory) -> None:
    """Sorts the outcomes by their rows; each row gets the end of its own."""
    outcomes, rows, keys, end = m.outcomes, m.block_rows, m.block_keys, 0
    for i in range(m.counters[0].block_size):
        end += rows[i].end
        rows[i].end = end - rows[i].end
    for n in range(m.counters[0].outcomes):
        its = rows[outcomes[n].row]
        keys[its.end] = outcomes[n].key
        its.end += 1


@kernel
def count_visits(columns: ColumnRows, m: Memory) -> None:
    """Counts the visits of buckets, and the rows with each attribute, once the block is matched."""
    counters, rows, halves, buckets = m.counters[0], m.block_rows, m.halves, m.buckets
    size, good = counters.block_size, 0
    for i in range(size):
        good += rows[i].odd == 0
    if buckets[0].length == 0:
        buckets[0].hits += good
    for v in range(counters.visits):
        buckets[m.visits[v].bucket].hits += 1
    for c in range(len(columns)):
        present = 0
        for i in range(size):
            present += (halves[size * c + i] != ABSENT) & (rows[i].odd == 0)
        m.attrs[columns[c].attr].seen += present


@kernel
def list_visits(columns: ColumnRows, first: int, count: int, m: Memory) -> int:
    """Lists the rows of each bucket that some rows reach."""
    counters, rows = m.counters[0], m.block_rows
    counters.block_size = count
    counters.visits = counters.repeats = 0
    for i in range(count):
        rows[i].end = rows[i].undecided = rows[i].chained = rows[i].odd = 0
    return visit_buckets(columns, first, m)


@kernel
def sample_rows(columns: ColumnRows, first: int, size: int, m: Memory) -> tuple[int, int]:
    """(status, whether the rows of a block share enough entries, or have few), by a sample of its
    first rows.

    Of so many times more rows, each has so many times more others in its buckets.
    """
    counters, visits, of_bucket = m.counters[0], m.visits, m.bucket_visits
    rows = size // SAMPLED
    status, compared, shared = list_visits(columns, first, rows, m), 0, 0
    for v in range(counters.visits):
        link, count = of_bucket[visits[v].bucket] - 1, 0
        of_bucket[visits[v].bucket] = 0
        while link >= 0:
            link = visits[link].next
            count += 1
        compared += count * m.buckets[visits[v].bucket].length
        shared += count * (count - 1) * m.buckets[visits[v].bucket].length
    gained = SAMPLED * shared + ROW_GAIN * rows
    return status, gained >= counters.block_shared_min * compared


@kernel
def match_block(columns: ColumnRows, first: int, size: int, m: Memory) -> int:
    """Matches the next rows as a block, but for its odd rows and undecided entries."""
    counters = m.counters[0]
    counters.outcomes = counters.undecided = 0
    for i in range(schema.LANES):
        m.lanes[NOWHERE + i], m.lanes[EVERYWHERE + i] = ABSENT, 0
    status = list_visits(columns, first, size, m)
    if status == schema.OK:
        begin(m)
        counters.block_epoch = counters.epoch
        for c in range(len(columns)):
            begin_attr(columns[c].attr, m)
            m.state[columns[c].attr].first = c
            m.state[columns[c].attr].only_domain = domain_of(columns[c].kind)
        status = check_visits(m)
    if status != schema.OK:
        for v in range(counters.visits):
            m.bucket_visits[m.visits[v].bucket] = 0
        return status
    sort_outcomes(m)
    count_visits(columns, m)
    counters.block_first, counters.block_end = first, first + size
    return schema.OK


# --- the rows -------------------------------------------------------------------------------------


@kernel
def match_alone(columns: ColumnRows, row: int, cells: Ints, m: Memory) -> int:
    """Matches one row by itself, and outputs its keys."""
    status = load_row(columns, row, cells, m)
    if status == schema.OK:
        match.seek(m)
        status = match.find(m)
    return status


@kernel
def finish_row(columns: ColumnRows, row: int, begin: int, cells: Ints, m: Memory) -> int:
    """Outputs the keys of a row of the block, with those of its undecided entries."""
    counters, its = m.counters[0], m.block_rows[row - m.counters[0].block_first]
    status = load_row(columns, row, cells, m)
    if status != schema.OK:
        return status
    counters.seen += 1
    counters.matched += 1
    counters.doubted = at = chained = 0
    if its.end - begin + 2 > len(m.out):
        return schema.NEED_OUT
    for n in range(begin, its.end):
        at, chained = match.put_keys(m.block_keys[n], at, chained, m)
    counters.out, counters.chained = at, chained
    link = its.undecided - 1
    while link >= 0:
        each = 2 * m.undecided[link].entry + m.undecided[link].by_value
        if match.check_whole(each, m) != schema.OK:
            return schema.NEED_OUT
        link = m.undecided[link].next
    if match.follow_chains(m) != schema.OK:
        return schema.NEED_OUT
    match.name_keys(counters.repeats | (counters.several == schema.REPEATS), m)
    return schema.OK


@kernel
def put_decided(begin: int, end: int, used: int, found: Ints, m: Memory) -> None:
    """Outputs the decided keys of a row of the block."""
    keys = m.block_keys
    if m.counters[0].int_keys != 0:
        for n in range(end - begin):
            found[used + n] = m.keys[keys[begin + n]]
    else:
        for n in range(end - begin):
            found[used + n] = keys[begin + n]


@kernel
def match_in_block(
    columns: ColumnRows, row: int, cells: Ints, used: int, found: Ints, m: Memory
) -> tuple[int, int]:
    """Outputs the keys of a row of the block to `found`, behind `used`, if guards decided them;
    otherwise to `out`. (status, their number or -1 for those in `out`).
    """
    counters, rows, i = m.counters[0], m.block_rows, row - m.counters[0].block_first
    begin = rows[i - 1].end + 0 if i > 0 else 0
    count = rows[i].end - begin
    if rows[i].odd:
        return match_alone(columns, row, cells, m), -1
    may_repeat = (count > 1) & (counters.repeats | (counters.several == schema.REPEATS))
    if may_repeat or rows[i].chained or rows[i].undecided:
        return finish_row(columns, row, begin, cells, m), -1
    counters.seen += 1
    counters.matched += 1
    if used + count > len(found):
        return schema.NEED_FOUND, -1
    put_decided(begin, rows[i].end, used, found, m)
    return schema.OK, count


@entry
def match_rows(
    columns: ColumnRows,
    cells: Ints,
    data: int,
    starts: Ints,
    row: int,
    offsets: Ints,
    found: Ints,
    m: Memory,
) -> tuple[int, int]:
    """Matches rows from one on; (status, the next row).

    The rows are those of the columns; or, if `data` is an address and not 0, the spans of msgpack
    at `starts`. `cells` has room for a number of each column and one more. `offsets` and
    `found` get the output of `match`. A row that needs more room of any
    array, or the model (UNREADABLE), is the next one again.
    """
    counters, end = m.counters[0], len(offsets) - 1
    while row < end:
        used, count = offsets[row], -1
        in_block = (counters.block_first <= row) & (row < counters.block_end)
        # The last row is matched by itself: drift looks at its buckets.
        size = min(counters.block_max, end - 1 - row)
        if not in_block and data == 0 and size >= BLOCK_MIN and counters.pools == 0:
            if counters.epoch + 2 * size * (len(columns) + 2) >= schema.EPOCHS_MAX:
                return schema.NEED_STAMPS, row
            status, is_shared = sample_rows(columns, row, size, m)
            if status == schema.OK and is_shared:
                status = match_block(columns, row, size, m)
            if status != schema.OK:
                return status, row
            in_block = is_shared
            if not is_shared:
                counters.block_max = 0  # nor are the later blocks
        if in_block:
            status, count = match_in_block(columns, row, cells, used, found, m)
        elif data != 0:
            status = match.match_span(
                bytes_at(data + starts[row], starts[row + 1] - starts[row]), m
            )
        else:
            status = match_alone(columns, row, cells, m)
        if count < 0:
            count = counters.out
            if status == schema.OK and counters.doubted != 0:
                status = schema.UNREADABLE  # it needs the model, which checks it again
                counters.seen -= 1
                counters.matched -= 1
            if status == schema.OK and used + count > len(found):
                status = schema.NEED_FOUND
            if status == schema.OK:
                for i in range(count):
                    found[used + i] = m.out[i]
        if status != schema.OK:
            return status, row
        row += 1
        offsets[row] = used + count
    return schema.OK, row


# --- the order of keys ----------------------------------------------------------------------------


@kernel
def merge_runs(keys: Ints, begin: int, end: int, room: Ints) -> int:
    """Merges each two neighbouring runs of ascending keys; returns the number of runs before."""
    runs, at = 0, begin
    while at < end:
        middle = at + 1
        while middle < end and keys[middle - 1] <= keys[middle]:
            middle += 1
        last = middle + 1
        while last < end and keys[last - 1] <= keys[last]:
            last += 1
        runs += 1
        if middle < end:
            runs += 1
            last = min(last, end)
            for i in range(middle - at):
                room[i] = keys[at + i]
            left, right, put = 0, middle, at
            while left < middle - at and right < last:
                # Both are read and one is taken, without a branch, which would be unpredictable.
                one, other = room[left], keys[right]
                is_left = one <= other
                keys[put] = one if is_left else other
                left += is_left
                right += 1 - is_left
                put += 1
            for i in range(left, middle - at):
                keys[put + i - left] = room[i]
            at = last
        else:
            at = middle
    return runs


@entry
def sort_rows(offsets: Ints, keys: Ints, room: Ints) -> None:
    """Sorts the keys of each row of a batch; `room` has at least as many places as a row.

    Cost: linear in the keys and in the logarithm of a row's runs of ascending keys, of which there
    is mostly one for each bucket.
    """
    for row in range(len(offsets) - 1):
        begin, end = offsets[row], offsets[row + 1]
        while merge_runs(keys, begin, end, room) > 2:
            pass
