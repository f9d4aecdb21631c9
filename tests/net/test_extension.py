"""A broker and a subscriber with operators of their own, as a user starts them."""

import json
import signal
import subprocess
from pathlib import Path

from tests.own_operators import CONTRADA, EXTENSION, contrada, write_module


def test_a_broker_and_a_subscriber_load_the_same_operators(tmp_path: Path) -> None:
    """A filter with an operator of one's own would be refused in the network."""
    write_module(tmp_path)
    serve = [*CONTRADA, "serve", "--port", "0", "--extension", EXTENSION]
    with subprocess.Popen(
        serve, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        address = broker.stdout.readline().strip()
        wish = [*CONTRADA, "sub", "name longer '3'", "--to", address, "--extension", EXTENSION]
        with subprocess.Popen(
            [*wish, "--json", "--count", "1"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        ) as subscriber:
            while subscriber.poll() is None:  # Until it is in force, what is published passes by.
                sent = contrada(tmp_path, "pub", "name=abc", "--to", address)
                sent = contrada(tmp_path, "pub", "name=abcd", "--to", address)
                assert sent.returncode == 0, sent.stderr
            assert subscriber.stdout is not None
            assert [json.loads(line) for line in subscriber.stdout] == [{"name": "abcd"}]
        refused = contrada(tmp_path, "sub", "name longer '3'", "--to", address)
        assert refused.returncode == 2
        broker.send_signal(signal.SIGTERM)
        _, said = broker.communicate(timeout=20)
        assert broker.returncode == 0
        assert "Traceback" not in said
