"""`spark_session`: the Spark session of a pipeline, configured for a short run on one machine."""

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.metadata import version
from itertools import dropwhile, takewhile
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.request import getproxies, proxy_bypass

from contrada.errors import EngineError, InputError, MissingRequirementError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MAJOR_MIN: Final = 17
"""The oldest Java that Spark supports; an older one is refused."""

DRIVER_MEMORY: Final = "1g"
"""Memory of the JVM. In local mode it runs the tasks, too; Python workers have their own."""

CANCEL_S: Final = 0.5
"""Seconds between looking for a signal, and between repeated cancellations of jobs."""

INTERRUPT_WAIT_S: Final = 60.0
"""Seconds for an interrupted pipeline to end. Beyond it: it is abandoned, logged."""

JAVA_WAIT_S: Final = 30.0
"""Seconds for Java to print its version. Beyond it: it is refused, logged."""

STOP_RETRIES_MAX: Final = 3
"""Retries of ending a session at a Connect server. Beyond it: the server ends it later."""

LISTED_PATHS_MAX: Final = 100_000
"""Paths that the driver lists itself. Beyond it: Spark starts a job."""

PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
"""The setting that makes Spark push filters to Python data sources."""

PROBE_WAIT_S: Final = 10.0
"""Seconds to connect to a master or Connect server. Beyond it: no session starts."""

REMOTE_PORT: Final = 15002
"""Default port of a Spark Connect server."""

MASTER_PORT: Final = 7077
"""Default port of a Spark master."""

_LOCAL: Final = r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[(\s*\d+\s*,){2}\s*\d+\s*\]"
_MASTER: Final = re.compile(rf"{_LOCAL}|yarn|k8s://\S+|spark://[^\s/]+")
_REMOTE: Final = re.compile(rf"{_LOCAL}|sc://[^\s/]+(/.*)?")
_PLACES: Final = re.compile(r"(sc|spark)://([^\s/]+)")
_PLACE: Final = re.compile(r"(?:.*@)?(?:\[(?P<v6>.+)\]|(?P<host>[^:]+))(?::(?P<port>\d{1,5}))?")

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
_remote: Final[list["SparkSession"]] = []
"""The open sessions of Connect servers."""

_starting: Final = threading.Event()
"""Whether a session is starting, which has no jobs yet."""

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")


@contextmanager
def spark_session(
    cores: int | None = None,
    name: str = "contrada",
    master: str | None = None,
    remote: str | None = None,
    *,
    java_options: str | None = None,
    conf: Mapping[str, str] | None = None,
    is_short: bool = False,
) -> Iterator["SparkSession"]:
    """Yields a session on this machine's cores, at the `master` of a cluster, or at a `remote`
    Connect server. `java_options` are by default those of the class archive; with `is_short` Java
    compiles quickly, for little data. Raises MissingRequirementError without PySpark or Java, and
    EngineError if no master or server listens; errors of Spark inside the block become EngineError.
    """
    check_requirements(needs_java=remote is None)
    check_listening(remote or master or "local")
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    if not master:  # On a cluster this variable may name another path.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    # Permanent: py4j logs at the end of the process, too.
    logging.getLogger().addFilter(_is_not_py4j)
    cores = cores or os.cpu_count() or 1
    builder = configure(SparkSession.builder.appName(name))
    builder = builder.remote(remote) if remote else builder.master(master or f"local[{cores}]")
    settings = _QUERIES if remote else _settings(cores, master, java_options, is_short=is_short)
    for key, value in _merge_settings(settings, conf or {}).items():
        builder = builder.config(key, value)
    try:
        _starting.set()
        try:
            session = builder.getOrCreate()
        finally:
            _starting.clear()
        if remote is None:
            # It would print a traceback after the end of Java, which the waiting call raises.
            server: Any = session.sparkContext._accumulatorServer
            server.handle_error = lambda request, address: _LOG.debug("Java is gone", exc_info=True)
        else:
            _remote.append(session)
        try:
            yield session
        finally:
            if session in _remote:
                _bound_retries(session)
                _remote.remove(session)
            session.stop()
    except ConnectionError as error:  # Only Java is connected in this block.
        raise EngineError("its Java process has ended") from error
    except (Py4JError, PySparkException) as error:
        java = getattr(SparkContext._gateway, "proc", None)
        has_ended = java is not None and java.poll() is not None
        reason = "its Java process has ended" if has_ended else cause_of(str(error))
        raise EngineError(reason) from error


def _bound_retries(session: "SparkSession") -> None:
    """Bounds the retries of calls to a lost Connect server, by default ten minutes."""
    client: Any = session.client
    for policy in client.get_retry_policies():  # Running calls read it again.
        policy.max_retries = STOP_RETRIES_MAX


def _merge_settings(settings: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """Merges the user's settings; Java options are appended to the existing ones."""
    merged = {**settings, **conf}
    if _JAVA_OPTIONS in conf and _JAVA_OPTIONS in settings:
        merged[_JAVA_OPTIONS] = f"{settings[_JAVA_OPTIONS]} {conf[_JAVA_OPTIONS]}"
    return merged


def parse_conf(pairs: Iterable[tuple[str, str]], source: str) -> dict[str, str]:
    """Checks Spark settings of a user. Raises InputError that names their `source`."""
    conf = dict(pairs)
    for key in conf:
        if not key.startswith("spark."):
            raise InputError(source, f"found the setting {key!r}, expected spark.…")
        if key in _OWN_SETTINGS:
            raise InputError(source, f"found {key}, {_OWN_SETTINGS[key]}")
    return conf


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Drops log records of py4j: it logs errors that it raises, too."""
    return "py4j" not in Path(record.pathname).parts


def cause_of(text: str) -> str:
    """Returns the most specific line of an error: of Python, else of the innermost cause, with the
    file that Spark could not read.
    """
    cause, file = _innermost(text), _UNREAD_FILE.search(text)
    # Readers of formats seldom name the file, such as "Socket is closed by peer" for bad bytes.
    if file is None or file[1].partition(":")[2].lstrip("/") in cause:
        return cause
    return f"{file[1]}: {cause}"


def _innermost(text: str) -> str:
    text = text.partition("=== Streaming Query ===")[0]
    if details := _GRPC_DETAILS.search(text):
        return details[1]
    lines = [line for line in text.splitlines() if line.strip()]
    if _TRACEBACK in text:
        # The text after the last indented frames, up to the frames of Java.
        raised = text.rpartition(_TRACEBACK)[2].splitlines()
        after = dropwhile(lambda line: line.startswith(" "), raised)
        lines = [*takewhile(lambda line: "\tat " not in line, after)]
        return _SQLSTATE.sub("", " ".join(line.strip() for line in lines if line.strip()))
    lines = [line.strip() for line in lines if not line.lstrip().startswith(_JAVA_STACK)]
    causes = [line for line in lines if line.startswith(("Caused by: ", ": "))]
    return (causes or lines or ["it gave no reason"])[-1].removeprefix("Caused by").lstrip(": ")


_UNREAD_FILE: Final = re.compile(r"error while reading file (\S+?)\.?\s")
_TRACEBACK: Final = "Traceback (most recent call last):\n"
_GRPC_DETAILS: Final = re.compile(r'of RPC that terminated with:\n.*\n\tdetails = "(.*)"\n')
_JAVA_STACK: Final = ("at ", "Driver stacktrace:", "SQLSTATE: ")
_JAVA_VERSION: Final = re.compile(r"^\s*java\.specification\.version = (\d+)", re.MULTILINE)
_SQLSTATE: Final = re.compile(r"( *SQLSTATE: \w+)+$")


def run_interruptibly(work: Callable[[threading.Event], T], *, is_endless: bool = False) -> T:
    """Runs work that uses Spark; Ctrl-C cancels its jobs and stops its session in order. Of a
    session that is still starting, it terminates Java.

    Endless work usually ends by Ctrl-C: then only the event is set, and the result is returned. The
    work makes the session in a thread of its own, since PySpark cannot recover from a signal during
    a call to Java. It must start no further step once its event is set.
    """
    stop = threading.Event()
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work(stop))
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="pipeline", daemon=True)
    try:
        thread.start()
        while not outcome.done():  # A signal to another thread does not wake this one.
            wait((outcome,), CANCEL_S)
        return outcome.result()
    except KeyboardInterrupt:
        stop.set()
        give_up_s = monotonic() + INTERRUPT_WAIT_S
        while thread.is_alive() and monotonic() < give_up_s:
            if _starting.is_set():
                is_endless = False  # It has no result.
                _terminate_java()
            elif not is_endless:
                _cancel_jobs()
            thread.join(CANCEL_S)
        if is_endless and outcome.done():
            return outcome.result()
        if thread.is_alive():
            _LOG.warning(
                "the pipeline did not end within %(wait_s)g s; it is left behind",
                {"wait_s": INTERRUPT_WAIT_S},
            )
        raise


def _terminate_java() -> None:
    from pyspark import SparkContext

    java = getattr(SparkContext._gateway, "proc", None)
    if java is not None:  # Else it is loaded just now, and PySpark does not know it yet.
        java.terminate()


def _cancel_jobs() -> None:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException

    for session in tuple(_remote):
        _bound_retries(session)
        with suppress(PySparkException):  # It is stopping, or its server has ended.
            session.interruptAll()
    # A starting or stopped context has no Java side.
    java = getattr(SparkContext._active_spark_context, "_jsc", None)
    if java is not None:
        with suppress(Py4JError):  # The context is stopping with its jobs.
            java.sc().cancelAllJobs()


def check_requirements(*, needs_java: bool = True) -> None:
    """Raises MissingRequirementError with an installation hint."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        remedy = "install the extra: pip install 'contrada[spark]'"
        raise MissingRequirementError(error.name or "pyspark", remedy) from None
    if not needs_java:
        return
    wanted = f"a Java of at least {JAVA_MAJOR_MIN} (openjdk-17-jre-headless)"
    remedy = f"install {wanted} or set JAVA_HOME"
    java = _java()
    if java is None:
        raise MissingRequirementError("Java", remedy)
    major = _java_major(java)
    if major < JAVA_MAJOR_MIN:
        raise MissingRequirementError(f"Java {JAVA_MAJOR_MIN} (found {java}, {major})", remedy)


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which(os.path.join(home, "bin", "java")) if home else shutil.which("java")


def _java_major(java: str) -> int:
    """Returns the major version of a Java; 0 if it prints none in time."""
    command = (java, "-XshowSettings:properties", "-version")
    try:
        printed = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=JAVA_WAIT_S
        )
    except subprocess.TimeoutExpired:
        _LOG.warning(
            "%(path)s did not print its version within %(wait_s)g s",
            {"path": java, "wait_s": JAVA_WAIT_S},
        )
        return 0
    found = _JAVA_VERSION.search(printed.stderr)
    return int(found[1]) if found else 0


def configure(builder: "SparkSession.Builder") -> "SparkSession.Builder":
    """Returns the builder with the settings of this package: filters are pushed to the data source,
    and workers run this interpreter, unless PYSPARK_PYTHON is set.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return builder.config(PUSHDOWN, "true")


_QUERIES: Final = {
    "spark.sql.session.timeZone": "UTC",
    # Element names are case-sensitive.
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings that change the results of queries; they hold in every session."""

_OWN_SETTINGS: Final = {
    **dict.fromkeys(_QUERIES, "by which results would mean something else"),
    "spark.master": "expected --master",
    "spark.remote": "expected --remote",
}
"""Settings that a user cannot set, with the reason or the alternative."""

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

_COMPILING: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=20000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times Java's usual thresholds of the optimising compiler. Rows then cross to Python at half
the cost of quickly compiled code, and a session starts as fast: at the usual thresholds the
optimising compiler would be busy with code that runs once."""

_QUICK: Final = "-XX:TieredStopAtLevel=1"
"""Java's quick compiler alone, which neither counts nor optimises: a pipeline of 1,000 rows then
takes a fifth less processor time, and one of 27 MB a sixth less."""

_LOOPBACK: Final = re.compile(r"local\b|spark://(127\.0\.0\.1|localhost)\b")


def _settings(
    cores: int, master: str | None, java_options: str | None, *, is_short: bool
) -> dict[str, str]:
    own = archive_options() if java_options is None else java_options
    logs = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    java_options = f"{_QUICK if is_short else _COMPILING} -XX:+UseSerialGC {logs} {own}"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": DRIVER_MEMORY,
        _JAVA_OPTIONS: java_options,
        # Workers have the same path, so that they can load the same extensions.
        # Spark sets this for workers of queries: workers of RDDs can then be shared.
        "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.sources.parallelPartitionDiscovery.threshold": str(LISTED_PATHS_MAX),
        **_QUERIES,
    }
    if _LOOPBACK.match(master or "local"):  # Other machines need the name of the driver.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


# --- the class archive ----------------------------------------------------------------------------

QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Java would warn of each class that it leaves out, and of an archive that does not fit."""


def archive_path() -> Path:
    """Returns the path of the archive of this Java and PySpark, in the user's cache directory."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    java = Path(_java() or "java").resolve()
    written = java.stat().st_mtime_ns if java.exists() else 0
    text = f"{java} {written} {version('pyspark')} {sys.prefix}"
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return Path(caches).absolute() / "contrada" / "spark" / f"{digest}.jsa"


def archive_options() -> str:
    """Returns the Java options that use the archive; empty without an archive."""
    kept = archive_path()
    return f'"-XX:SharedArchiveFile={kept}" {QUIET}' if kept.is_file() else ""


# --- addresses of masters and Connect servers ---------------------------------------------------
# Spark itself tries for a minute to reach a master, and for ten minutes to reach a Connect server.


def check_form(master: str | None, remote: str | None) -> None:
    """Raises InputError for an address that Spark cannot parse."""
    if master is not None and not _MASTER.fullmatch(master):
        expected = "local, local[n], spark://host:port, yarn or k8s://…"
        raise InputError("--master", f"found {master!r}, expected {expected}")
    if remote is not None and not _REMOTE.fullmatch(remote):
        expected = "sc://host:port or local[n]"
        raise InputError("--remote", f"found {remote!r}, expected {expected}")


def check_listening(address: str) -> None:
    """Raises EngineError if no process listens at the address of a master or Connect server. One of
    several masters is enough. Other addresses are not checked, nor is a server behind a proxy.
    """
    places = [*_places(address)]
    if not places:
        return
    failure: OSError | None = None
    for host, port in places:
        if address.startswith("sc:") and _is_behind_proxy(host):
            return
        try:
            with socket.create_connection((host, port), PROBE_WAIT_S):
                return
        except OSError as error:
            failure = error
    kind = "server of Spark Connect" if address.startswith("sc:") else "master of Spark"
    named = ", ".join(f"{host}:{port}" for host, port in places)
    raise EngineError(f"no {kind} listens at {named}: {failure}") from failure


def _places(address: str) -> Iterator[tuple[str, int]]:
    """Yields hosts and ports, where the address has a known form."""
    found = _PLACES.match(address)
    for each in found[2].split(",") if found else ():
        if place := _PLACE.fullmatch(each):
            usual = REMOTE_PORT if address.startswith("sc:") else MASTER_PORT
            yield place["v6"] or place["host"], int(place["port"] or usual)


def _is_behind_proxy(host: str) -> bool:
    """Whether gRPC connects to the host through a proxy."""
    with suppress(OSError):  # Only the proxy may know the name.
        if proxy_bypass(host):
            return False
    return bool(getproxies().keys() & {"grpc", "https", "http"})
