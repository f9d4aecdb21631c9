"""`python -m examples.stock_trade [ADDRESS]`: see `run.py`."""

import asyncio
import sys

import contrada as ct
from examples.stock_trade.run import trade


async def main() -> int:
    """Trade, and say what came of it."""
    async with ct.connect(*sys.argv[1:2]) as service:
        found, wanted = await trade(service)
    for (company, price, day), count in sorted(found.bought.items(), key=lambda it: it[0][2]):
        print(f"{day}  {company:10} at {price:7.2f}  {'' if count == 1 else count}")
    print(f"{found.bought.total()} bought, {found.expired} requests expired")
    if found != wanted:
        print("that is not what the quotes say", file=sys.stderr)
    return found != wanted


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
