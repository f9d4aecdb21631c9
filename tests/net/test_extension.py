"""A broker and a subscriber with operators of their own, as a user starts them."""

import json
import signal
import subprocess
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path

import pytest

import contrada as ct
from tests.asynchronous import TEST_S_MAX
from tests.net.processes import serving
from tests.own_operators import CONTRADA, EXTENSION, contrada, write_module


@pytest.mark.slow
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
            while subscriber.poll() is None:  # Until it is in force, publications are not matched.
                sent = contrada(tmp_path, "pub", "name=abc", "--to", address)
                sent = contrada(tmp_path, "pub", "name=abcd", "--to", address)
                assert sent.returncode == 0, sent.stderr
            assert subscriber.stdout is not None
            assert [json.loads(line) for line in subscriber.stdout] == [{"name": "abcd"}]
        refused = contrada(tmp_path, "sub", "name longer '3'", "--to", address)
        assert refused.returncode == 2
        broker.send_signal(signal.SIGTERM)
        _, said = broker.communicate(timeout=TEST_S_MAX)
        assert broker.returncode == 0
        assert "Traceback" not in said


@pytest.mark.parametrize("is_network", [False, True])
def test_commands_reach_the_sites_that_have_all_wanted_bits(
    is_network: bool, broker_address: str
) -> None:
    """Site-Select: a command would reach sites without the required bits, or miss others."""
    sites = {"lathe": "0f", "press": "0b", "mill": "0f01", "idle": ""}
    one, two, last = ({"wanted": bytes.fromhex(bits)} for bits in ("05", "0101", ""))
    reached: dict[str, list[ct.Notification]] = {}
    with ct.connect_sync(broker_address if is_network else None) as service, ExitStack() as stack:
        subscriptions = {
            name: stack.enter_context(service.subscribe(f'wanted set<= x"{bits}"'))
            for name, bits in sites.items()
        }
        # The last one wants nothing of a site, and so reaches all.
        service.publish_batch([one, two, last])
        for name, found in subscriptions.items():
            bare = (ct.Notification(each) for each in found)
            reached[name] = [*takewhile(lambda each: each != ct.Notification(last), bare)]
    first, second = ct.Notification(one), ct.Notification(two)
    assert reached == {"lathe": [first], "press": [], "mill": [first, second], "idle": []}


@pytest.mark.slow
def test_a_broker_without_an_operator_forwards_possible_matches(tmp_path: Path) -> None:
    """A remote subscriber with an extension operator would get nothing, or everything."""
    write_module(tmp_path)
    named = ["--port", "0", "--name"]
    with ExitStack() as stack:
        _, away = stack.enter_context(serving(*named, "plain"))
        knows = [*named, "knows", "--neighbour", away, "--extension", EXTENSION]
        _, near = stack.enter_context(serving(*knows, folder=tmp_path))
        wish = [*CONTRADA, "sub", "name longer '3' and a = 1", "--to", near, "--json"]
        wish += ["--extension", EXTENSION, "--count", "1"]
        with subprocess.Popen(wish, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as subscriber:
            stack.callback(subscriber.kill)
            while subscriber.poll() is None:  # Until it is in force, publications are lost.
                for name in ("abc", "abcd"):
                    sent = contrada(tmp_path, "pub", f"name={name}", "a=1", "--to", away)
                    assert sent.returncode == 0, sent.stderr
            assert subscriber.stdout is not None
            assert [json.loads(line) for line in subscriber.stdout] == [{"name": "abcd", "a": 1}]
        counted = contrada(tmp_path, "stats", away, "--json")
        assert "subscribe: unknown operator" in counted.stdout
