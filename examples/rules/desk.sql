-- Conditions of an operations desk, as they stand behind WHERE.

-- name: long delays at JFK
kind = 'flight' AND dep_delay > 120 AND origin = 'JFK';

-- name: not from New York
NOT (origin IN ('JFK', 'LGA', 'EWR')) AND dest NOT LIKE 'B%';

-- name: slow taxi (refused: the difference of two columns is no filter)
dep_time - sched_dep_time > 60
