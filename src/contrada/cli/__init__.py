"""The command `contrada`.

Exit status: 0 success; 1 a service cannot be reached or closed the connection, Spark ended a run,
the output cannot be written, or a simulated world has a violation; 2 bad input, a bad address or
wrong usage; 3 a name in an option is not in the input; 4 answers to a question are missing; 130
ended by Ctrl-C. Every error is one line on standard error.
"""

import click

from contrada.cli.lazy_group import Command, LazyGroup

COMMANDS = {
    "serve": Command("contrada.cli.serve:serve", "Run a broker."),
    "network": Command("contrada.cli.network:network", "Run the brokers of a file."),
    "pub": Command("contrada.cli.pub:pub", "Publish notifications."),
    "sub": Command("contrada.cli.sub:sub", "Subscribe, and print notifications."),
    "adv": Command("contrada.cli.adv:adv", "Advertise, or list advertisements."),
    "offer": Command("contrada.cli.offer:offer", "Offer a table or files to queries."),
    "ask": Command("contrada.cli.ask:ask", "Query sources of data."),
    "gossip": Command("contrada.cli.gossip:gossip", "Run groups that gossip over UDP."),
    "user": Command("contrada.cli.user:user", "Manage users and their permissions."),
    "key": Command("contrada.cli.key:key", "Make keys that sign notifications."),
    "stats": Command("contrada.cli.stats:stats", "Show the counters of a broker."),
    "top": Command("contrada.cli.top:top", "Show the rates of brokers."),
    "inspect": Command("contrada.cli.inspect:inspect", "Show the state and routes of a broker."),
    "store": Command("contrada.cli.store:store", "Back up stores, and restore them."),
    "doctor": Command("contrada.cli.doctor:doctor", "Find faults, and suggest remedies."),
    "match": Command("contrada.cli.match:match", "Match files against subscriptions, offline."),
    "translate": Command("contrada.cli.translate:translate", "Translate rules to filters."),
    "feed": Command("contrada.cli.feed:feed", "Poll feeds for new entries."),
    "mqtt": Command("contrada.cli.mqtt:mqtt", "Bridge topics of MQTT."),
    "xml": Command("contrada.cli.xml:xml", "Send and receive documents."),
    "pipeline": Command("contrada.cli.pipeline:pipeline", "Run a pipeline on Spark."),
    "spark": Command("contrada.cli.spark:spark", "Run a cluster of Spark here."),
    "simulate": Command("contrada.cli.simulate:simulate", "Simulate networks of brokers."),
}


@click.group(
    cls=LazyGroup,
    commands_by_name=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(package_name="contrada")
def main() -> None:
    """Content-based, type-based and sequence-aware publish/subscribe.

    \b
    contrada serve                                     # a broker on port 7655
    contrada sub "price < 100 and symbol prefix 'D'"   # in a second terminal
    contrada pub symbol=DIS price=61.5                 # in a third one
    """  # noqa: D301 - click reads the escape


__all__ = ["main"]
