"""Kernels of patterns: they step the runs of many automata through a batch of notifications.

An *automaton* is a pattern in one group, under the number `group * patterns + pattern`. Its runs
are in a table, the oldest first, between `head` and `tail`. By the proof in `patterns.runs` the
highest stage is first, so that a stage is an interval: it begins at `ends[stage + 1]` and ends
before `ends[stage]`. A move of all runs of a stage writes the notification to each, and changes one
end.
"""

from typing import NamedTuple

from contrada.matching.kernels.memory import array_entry, kernel
from contrada.matching.kernels.schema import Grid, Ints

HEAD, TAIL = 0, 1
RUNS, RUN_REFS, MATCHES, MATCH_REFS, DROPPED, COUNTS = range(6)


class EntryColumns(NamedTuple):
    """Notifications by automaton and then in order; `steps` has a bit for each matching filter."""

    automata: Ints
    times: Ints
    steps: Ints
    rows: Ints


class RunColumns(NamedTuple):
    """Runs by automaton, the oldest first; `rows[begins[i]:]` are the notifications of run i."""

    automata: Ints
    starts: Ints
    stages: Ints
    begins: Ints
    rows: Ints


class PatternColumns(NamedTuple):
    """The lengths of patterns, their spans (-1 is none), and whether they are `every`."""

    lengths: Ints
    spans: Ints
    every: Ints


class RunTable(NamedTuple):
    """Room for the runs of one automaton: a row of notifications each, and the ends of stages."""

    starts: Ints
    rows: Grid
    ends: Ints
    span: Ints


@array_entry
def regroup(order: Ints, groups: Ints, places: Ints, out: Ints) -> None:
    """Puts rows by groups, stable within a group; `places` has the beginning of each group."""
    for i in range(len(order)):
        group = groups[order[i]]
        out[places[group]] = order[i]
        places[group] += 1


@array_entry
def most_of_one(automata: Ints) -> int:
    """Returns the largest number of runs of one automaton."""
    most = count = 0
    for run in range(len(automata)):
        count = count + 1 if run > 0 and automata[run] == automata[run - 1] else 1
        most = max(most, count)
    return most


@kernel
def load_runs(table: RunTable, runs: RunColumns, run: int, automaton: int) -> int:
    """Loads the runs of an automaton into an empty table; returns the number of the next run."""
    for stage in range(len(table.ends)):
        table.ends[stage] = 0
    tail = 0
    while run < len(runs.automata) and runs.automata[run] == automaton:
        table.starts[tail] = runs.starts[run]
        for place in range(runs.stages[run]):
            table.rows[tail, place] = runs.rows[runs.begins[run] + place]
        tail += 1
        for stage in range(1, runs.stages[run] + 1):
            table.ends[stage] = tail
        run += 1
    table.span[HEAD], table.span[TAIL] = 0, tail
    return run


@kernel
def drop_to(table: RunTable, head: int) -> None:
    """Drops the oldest runs, before a head."""
    table.span[HEAD] = head
    for stage in range(1, len(table.ends)):
        table.ends[stage] = max(table.ends[stage], head)


@kernel
def outlive(table: RunTable, within: int, time: int) -> None:
    """Drops the runs with a span that ends before a time."""
    head, tail = table.span[HEAD], table.span[TAIL]
    if within < 0 or head == tail or table.starts[head] >= time - within:
        return
    while head < tail and table.starts[head] < time - within:
        head += 1
    drop_to(table, head)


@kernel
def step(
    table: RunTable,
    patterns: PatternColumns,
    automaton: int,
    bits: int,
    row: int,
    matches: RunColumns,
    counts: Ints,
) -> bool:
    """Moves the runs that wait for a notification; returns whether it may begin a run."""
    ends = table.ends
    pattern = automaton % len(patterns.lengths)
    length, is_every = patterns.lengths[pattern], patterns.every[pattern]
    ends[length] = table.span[HEAD]
    is_matched = False
    for stage in range(length - 1, 0, -1):
        begin, end = ends[stage + 1], ends[stage]
        if begin == end or (bits >> stage) & 1 == 0:
            continue
        for run in range(begin, end):
            table.rows[run, stage] = row
        if stage + 1 < length:
            ends[stage + 1] = end
            continue
        is_matched = True
        for run in range(begin, end if is_every != 0 else begin + 1):
            put_run(matches, automaton, table.rows, run, length, counts, MATCHES)
        drop_to(table, end)
    if is_matched and is_every == 0:
        drop_to(table, table.span[TAIL])
        return False
    return True


@kernel
def open_run(
    table: RunTable,
    patterns: PatternColumns,
    pattern: int,
    time: int,
    row: int,
    capacity: int,
    counts: Ints,
) -> None:
    """Begins a run, unless it is not needed."""
    starts, rows, ends = table.starts, table.rows, table.ends
    head, tail = table.span[HEAD], table.span[TAIL]
    if head < tail and patterns.every[pattern] == 0 and patterns.spans[pattern] < 0:
        return
    if tail - head >= capacity:
        counts[DROPPED] += 1
        drop_to(table, head + 1)
        head += 1
    if tail == len(starts):
        for run in range(head, tail):
            starts[run - head] = starts[run]
            for place in range(len(ends) - 1):
                rows[run - head, place] = rows[run, place]
        for stage in range(len(ends)):
            ends[stage] = max(0, ends[stage] - head)
        head, tail = 0, tail - head
    starts[tail] = time
    rows[tail, 0] = row
    ends[1] = tail + 1
    table.span[HEAD], table.span[TAIL] = head, tail + 1


@kernel
def unload(table: RunTable, automaton: int, length: int, runs: RunColumns, counts: Ints) -> None:
    """Writes the open runs, the oldest first."""
    ends = table.ends
    ends[length] = table.span[HEAD]
    for stage in range(length - 1, 0, -1):
        for run in range(ends[stage + 1], ends[stage]):
            runs.starts[counts[RUNS]] = table.starts[run]
            put_run(runs, automaton, table.rows, run, stage, counts, RUNS)


@kernel
def put_run(
    out: RunColumns, automaton: int, rows: Grid, run: int, stage: int, counts: Ints, which: int
) -> None:
    """Writes one run with the notifications of its first places."""
    number, begin = counts[which], counts[which + 1]
    out.automata[number], out.stages[number], out.begins[number] = automaton, stage, begin
    for place in range(stage):
        out.rows[begin + place] = rows[run, place]
    counts[which], counts[which + 1] = number + 1, begin + stage


@array_entry
def follow(
    entries: EntryColumns,
    runs: RunColumns,
    patterns: PatternColumns,
    capacity: int,
    table: RunTable,
    open_runs: RunColumns,
    matches: RunColumns,
    counts: Ints,
) -> None:
    """Steps the runs of all automata through their entries.

    `open_runs` and `matches` get the results, with room for all; `counts` their lengths. The table
    has room for twice the runs of one automaton, and for the longest pattern.
    """
    entry = run = 0
    while entry < len(entries.automata) or run < len(runs.automata):
        automaton = entries.automata[entry] if entry < len(entries.automata) else -1
        if run < len(runs.automata) and (automaton < 0 or runs.automata[run] <= automaton):
            automaton = runs.automata[run]
        pattern = automaton % len(patterns.lengths)
        run = load_runs(table, runs, run, automaton)
        while entry < len(entries.automata) and entries.automata[entry] == automaton:
            time, bits = entries.times[entry], entries.steps[entry]
            row = entries.rows[entry]
            outlive(table, patterns.spans[pattern], time)
            may_begin = step(table, patterns, automaton, bits, row, matches, counts)
            if may_begin and bits & 1 == 1:
                open_run(table, patterns, pattern, time, row, capacity, counts)
            entry += 1
        unload(table, automaton, patterns.lengths[pattern], open_runs, counts)
