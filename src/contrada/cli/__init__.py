"""The command `contrada`.

Exit status: 0 all went well; 1 a service cannot be reached or went away, Spark ended a run, the
output cannot be written, or a simulated world does not hold; 2 bad input, a bad address or wrong
usage; 3 a name that was given is nowhere in the input; 4 answers to a question are missing; 130
ended by Ctrl-C. Every error is one line on standard error.
"""

import click

from contrada.cli.lazy_group import Command, LazyGroup

COMMANDS = {
    "serve": Command("contrada.cli.serve:serve", "Run a broker."),
    "network": Command("contrada.cli.network:network", "Run the brokers of a file."),
    "pub": Command("contrada.cli.pub:pub", "Publish notifications."),
    "sub": Command("contrada.cli.sub:sub", "Subscribe, and print what comes."),
    "adv": Command("contrada.cli.adv:adv", "Advertise, or list what is on offer."),
    "offer": Command("contrada.cli.offer:offer", "Offer a table or files, to be asked."),
    "ask": Command("contrada.cli.ask:ask", "Ask all sources that may know."),
    "gossip": Command("contrada.cli.gossip:gossip", "Groups without brokers, over UDP."),
    "user": Command("contrada.cli.user:user", "Say who may come to a broker, and do what."),
    "key": Command("contrada.cli.key:key", "Keys that sign notifications."),
    "stats": Command("contrada.cli.stats:stats", "Show what a broker did so far."),
    "top": Command("contrada.cli.top:top", "Show how fast brokers work."),
    "inspect": Command("contrada.cli.inspect:inspect", "Show what a broker holds, and why."),
    "store": Command("contrada.cli.store:store", "Back up stores, and restore them."),
    "doctor": Command("contrada.cli.doctor:doctor", "Look for what is wrong, and what to do."),
    "match": Command("contrada.cli.match:match", "Match files against subscriptions, offline."),
    "translate": Command("contrada.cli.translate:translate", "Turn rules of others into filters."),
    "feed": Command("contrada.cli.feed:feed", "Poll feeds: what is new or changed in them."),
    "mqtt": Command("contrada.cli.mqtt:mqtt", "Carry topics of MQTT in and out."),
    "xml": Command("contrada.cli.xml:xml", "Send and receive documents."),
    "pipeline": Command("contrada.cli.pipeline:pipeline", "Run a pipeline on Spark."),
    "spark": Command("contrada.cli.spark:spark", "Run a cluster of Spark here."),
    "simulate": Command("contrada.cli.simulate:simulate", "Networks of brokers in virtual time."),
}


@click.group(
    cls=LazyGroup,
    commands_by_name=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
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
