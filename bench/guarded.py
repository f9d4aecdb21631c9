"""A process that publishes over many connections, each of a user of its own; see `bench_security`.

    python -m bench.guarded ADDRESS CONNECTIONS [TOKENS [AUTHORITY]]

Prints a line when all are connected. For each number on standard input it publishes so many
notifications, in batches, one connection after the other, and prints a line.
"""

import asyncio
import ssl
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import contrada as ct
from bench.trips import BATCH, items


async def main(address: str, count: int, tokens: list[str], authority: str | None) -> None:
    tls = ssl.create_default_context(cafile=authority) if authority else None
    async with AsyncExitStack() as stack:
        services = []
        for number in range(count):
            token = tokens[number] if tokens else ""
            name = f"user{number}"  # Alike with and without users.
            service = ct.connect(address, token=token, publisher=name, tls=tls, reconnect=False)
            services.append(await stack.enter_async_context(service))
        print("connected", flush=True)
        loop, turn = asyncio.get_running_loop(), 0
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            for start in range(0, int(line), BATCH):
                await services[turn % count].publish_batch(items(BATCH, start))
                turn += 1
            print("published", flush=True)


if __name__ == "__main__":
    words = [*sys.argv[1:], "", ""]
    listed = Path(words[2]).read_text("utf-8").split() if words[2] else []
    asyncio.run(main(words[0], int(words[1]), listed, words[3] or None))
