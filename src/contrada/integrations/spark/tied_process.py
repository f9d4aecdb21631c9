"""`python -m contrada.integrations.spark.tied_process COMMAND ...`: a command that ends with its
stdin.

Java would otherwise outlive a killed parent process.
"""

import signal
import subprocess
import sys
import threading


def main() -> None:
    """Runs the command, and exits with its status."""
    with subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL) as process:
        signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())

        def watch() -> None:
            sys.stdin.buffer.read()
            process.terminate()

        threading.Thread(target=watch, daemon=True).start()
        status = process.wait()
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
