"""Real quotes: closing prices of five companies, from the package `bokeh_sampledata`."""

import csv
import gzip
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Final

COMPANIES: Final = {
    "AAPL": "Apple",
    "FB": "Facebook",
    "GOOG": "Google",
    "IBM": "IBM",
    "MSFT": "Microsoft",
}


@dataclass(frozen=True, slots=True)
class Close:
    """The price of a company at the end of a day."""

    company: str
    price: float
    day: date


def closes(first: date, last: date) -> list[Close]:
    """Returns the closing prices of these days, day by day. Needs `contrada[examples]`."""
    spec = find_spec("bokeh_sampledata")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("bokeh_sampledata is missing: pip install 'contrada[examples]'")
    packed = Path(spec.submodule_search_locations[0], "_data", "stocks.csv.gz")
    found = []
    with gzip.open(packed, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            day = date.fromisoformat(row["Date"])
            if row["Ticker"] in COMPANIES and first <= day <= last:
                found.append(Close(COMPANIES[row["Ticker"]], float(row["Close"]), day))
    return sorted(found, key=lambda close: (close.day, close.company))
