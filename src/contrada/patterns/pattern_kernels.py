"""Kernels of patterns: functions over arrays, compiled by Numba or run as plain Python.

An *automaton* is a pattern in one group, under the number `group * patterns + pattern`. Its runs
are in a row, the oldest first, between `head` and `tail`. By the proof in `runs` the highest stage
is first, so that a stage is an interval: it begins at `ends[stage + 1]` and ends before
`ends[stage]`. A move of all runs of a stage writes the notification to each, and changes one end.
"""

from typing import Any

import numpy as np

from contrada.matching.kernels.memory import kernel

HEAD, TAIL = 0, 1
RUNS, RUN_REFS, MATCHES, MATCH_REFS, DROPPED, COUNTS = range(6)


@kernel
def regroup(order: Any, groups: Any, places: Any, out: Any) -> None:
    """Puts rows by groups, stable within a group; `places` has the beginning of each group."""
    for row in order:
        group = groups[row]
        out[places[group]] = row
        places[group] += 1


@kernel
def most_of_one(automata: Any) -> Any:
    """Returns the largest number of runs of one automaton."""
    most = count = 0
    for run in range(len(automata)):
        count = count + 1 if run and automata[run] == automata[run - 1] else 1
        most = max(most, count)
    return most


@kernel
def load(table: Any, runs: Any, run: Any, automaton: Any) -> Any:
    """Loads the runs of an automaton into an empty table; returns the number of the next run."""
    automata, begun, stages, begins, noted = runs
    starts, rows, ends, span = table
    ends[:] = 0
    tail = 0
    while run < len(automata) and automata[run] == automaton:
        starts[tail] = begun[run]
        for place in range(stages[run]):
            rows[tail, place] = noted[begins[run] + place]
        tail += 1
        for stage in range(1, stages[run] + 1):
            ends[stage] = tail
        run += 1
    span[HEAD], span[TAIL] = 0, tail
    return run


@kernel
def drop_to(table: Any, head: Any) -> None:
    """Drops the oldest runs, before a head."""
    ends, span = table[2], table[3]
    span[HEAD] = head
    for stage in range(1, len(ends)):
        ends[stage] = max(ends[stage], head)


@kernel
def outlive(table: Any, within: Any, time: Any) -> None:
    """Drops the runs with a span that ends before a time."""
    starts, span = table[0], table[3]
    head = span[HEAD]
    if within < 0 or head == span[TAIL] or starts[head] >= time - within:
        return
    while head < span[TAIL] and starts[head] < time - within:
        head += 1
    drop_to(table, head)


@kernel
def take(
    table: Any, patterns: Any, automaton: Any, bits: Any, row: Any, matches: Any, counts: Any
) -> Any:
    """Moves the runs that wait for a notification; returns whether it may begin a run."""
    rows, ends, span = table[1], table[2], table[3]
    pattern = automaton % len(patterns[0])
    length, is_every = patterns[0][pattern], patterns[2][pattern]
    ends[length] = span[HEAD]
    is_matched = False
    for stage in range(length - 1, 0, -1):
        begin, end = ends[stage + 1], ends[stage]
        if begin == end or not (bits >> stage) & 1:
            continue
        for run in range(begin, end):
            rows[run, stage] = row
        if stage + 1 < length:
            ends[stage + 1] = end
            continue
        is_matched = True
        for run in range(begin, end if is_every else begin + 1):
            put(matches, automaton, rows[run], length, counts, MATCHES)
        drop_to(table, end)
    if is_matched and not is_every:
        drop_to(table, span[TAIL])
        return False
    return True


@kernel
def open_run(
    table: Any, patterns: Any, pattern: Any, time: Any, row: Any, capacity: Any, counts: Any
) -> None:
    """Begins a run, unless it is not needed."""
    starts, rows, ends, span = table
    head, tail = span
    if head < tail and not patterns[2][pattern] and patterns[1][pattern] < 0:
        return
    if tail - head >= capacity:
        counts[DROPPED] += 1
        drop_to(table, head + 1)
        head += 1
    if tail == len(starts):
        for run in range(head, tail):
            starts[run - head] = starts[run]
            rows[run - head] = rows[run]
        for stage in range(len(ends)):
            ends[stage] = max(0, ends[stage] - head)
        head, tail = 0, tail - head
    starts[tail] = time
    rows[tail, 0] = row
    ends[1] = tail + 1
    span[HEAD], span[TAIL] = head, tail + 1


@kernel
def unload(table: Any, automaton: Any, length: Any, runs: Any, counts: Any) -> None:
    """Writes the open runs, the oldest first."""
    starts, rows, ends, span = table
    ends[length] = span[HEAD]
    for stage in range(length - 1, 0, -1):
        for run in range(ends[stage + 1], ends[stage]):
            runs[1][counts[RUNS]] = starts[run]
            put(runs, automaton, rows[run], stage, counts, RUNS)


@kernel
def put(out: Any, automaton: Any, rows: Any, stage: Any, counts: Any, which: Any) -> None:
    """Writes one run with the notifications of its first places."""
    number, begin = counts[which], counts[which + 1]
    out[0][number], out[2][number], out[3][number] = automaton, stage, begin
    for place in range(stage):
        out[4][begin + place] = rows[place]
    counts[which], counts[which + 1] = number + 1, begin + stage


@kernel
def follow(entries: Any, runs: Any, patterns: Any, capacity: Any, out: Any, counts: Any) -> None:
    """Steps the runs of all automata through their entries.

    `entries` are (automata, times, steps, rows), by automaton and then in order; `steps` has a bit
    for each place with a matching filter. `runs` are (automata, starts, stages, begins, rows), by
    automaton and the oldest first: `rows[begins[i]:]` are the notifications of run i. `patterns`
    are (lengths, spans, `every` or not); a span of -1 is none. `out` are two such tables, of the
    open runs and of the matches, with room for all; `counts` gets their lengths.
    """
    automata, times, steps, rows = entries
    of_runs, lengths = runs[0], patterns[0]
    room = 2 * (min(capacity, len(automata)) + most_of_one(of_runs) + 1)
    longest = lengths.max()
    table = (  # the runs of one automaton: starts, notifications, ends, (head, tail)
        np.empty(room, dtype=np.int64),
        np.empty((room, longest), dtype=np.int64),
        np.zeros(longest + 1, dtype=np.int64),
        np.zeros(2, dtype=np.int64),
    )
    entry = run = 0
    while entry < len(automata) or run < len(of_runs):
        if run < len(of_runs) and (entry == len(automata) or of_runs[run] <= automata[entry]):
            automaton = of_runs[run]
        else:
            automaton = automata[entry]
        pattern = automaton % len(lengths)
        run = load(table, runs, run, automaton)
        while entry < len(automata) and automata[entry] == automaton:
            time, bits, row = times[entry], steps[entry], rows[entry]
            outlive(table, patterns[1][pattern], time)
            if take(table, patterns, automaton, bits, row, out[1], counts) and bits & 1:
                open_run(table, patterns, pattern, time, row, capacity, counts)
            entry += 1
        unload(table, automaton, lengths[pattern], out[0], counts)
