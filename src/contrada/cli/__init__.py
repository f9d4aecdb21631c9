"""The command `contrada`.

Exit status: 0 success; 1 a service cannot be reached or closed the connection, Spark ended a run,
the output cannot be written, or a simulated world has a violation; 2 bad input, a bad address or
wrong usage; 3 a name in an option is not in the input; 4 answers to a question are missing; 130
ended by Ctrl-C; 143 ended early by SIGTERM. Every error is one line on standard error.
"""

import click

from contrada.cli.lazy_group import LazyGroup
from contrada.cli.option_variables import PREFIX

COMMANDS = {
    "serve": ("contrada.cli.serve:serve", "Run a broker."),
    "network": ("contrada.cli.network:network", "Run the brokers of a file."),
    "pub": ("contrada.cli.pub:pub", "Publish notifications."),
    "sub": ("contrada.cli.sub:sub", "Subscribe, and print notifications."),
    "adv": ("contrada.cli.adv:adv", "Advertise, or list advertisements."),
    "offer": ("contrada.cli.offer:offer", "Offer a table or files to queries."),
    "ask": ("contrada.cli.ask:ask", "Query sources of data."),
    "gossip": ("contrada.cli.gossip:gossip", "Run groups that gossip over UDP."),
    "user": ("contrada.cli.user:user", "Manage users and their permissions."),
    "key": ("contrada.cli.key:key", "Make keys that sign notifications."),
    "stats": ("contrada.cli.stats:stats", "Show the counters of a broker."),
    "top": ("contrada.cli.top:top", "Show the rates of brokers."),
    "inspect": ("contrada.cli.inspect:inspect", "Show the state and routes of a broker."),
    "story": ("contrada.cli.story:story", "Show the history of a notification or subscription."),
    "queue": ("contrada.cli.queue:queue", "Show and change the queues of a broker."),
    "store": ("contrada.cli.store:store", "Back up stores, and restore them."),
    "doctor": ("contrada.cli.doctor:doctor", "Find faults, and suggest remedies."),
    "match": ("contrada.cli.match:match", "Match files against subscriptions, offline."),
    "console": ("contrada.cli.console:console", "Try filters in a browser."),
    "translate": ("contrada.cli.translate:translate", "Translate rules to filters."),
    "asyncapi": ("contrada.cli.asyncapi:asyncapi", "Print the AsyncAPI document of an app."),
    "feed": ("contrada.cli.feed:feed", "Poll feeds for new entries."),
    "bridge": ("contrada.cli.bridge:bridge", "Bridge AMQP, Kafka, MQTT, NATS or Redis."),
    "mqtt": ("contrada.cli.bridge:mqtt", "Former name of `bridge mqtt`."),
    "xml": ("contrada.cli.xml:xml", "Send and receive documents."),
    "pipeline": ("contrada.cli.pipeline:pipeline", "Run a pipeline over files and tables."),
    "spark": ("contrada.cli.spark:spark", "Run a cluster of Spark here."),
    "simulate": ("contrada.cli.simulate:simulate", "Simulate networks of brokers."),
    "help": ("contrada.cli.manual:manual", "Print a page of the documentation."),
}
__all__ = ["main"]


@click.group(
    cls=LazyGroup,
    commands_by_name=COMMANDS,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "auto_envvar_prefix": PREFIX,
    },
)
@click.version_option(package_name="contrada")
def main() -> None:
    """Content-based, type-based and sequence-aware publish/subscribe.

    \b
    contrada serve                                     # a broker on port 7655
    contrada sub "price < 100 and symbol prefix 'D'"   # in a second terminal
    contrada pub symbol=DIS price=61.5                 # in a third one

    Clients such as pub, sub and ask take the address of their broker as --to, commands about a
    broker as their last argument. The default is contrada://127.0.0.1:7655.

    Every option is also an environment variable, CONTRADA_COMMAND_OPTION: CONTRADA_SERVE_HTTP=8080
    is --http 8080 of `contrada serve`. Flags override it. A repeated option has a line for each.
    """  # noqa: D301 - click reads the escape
