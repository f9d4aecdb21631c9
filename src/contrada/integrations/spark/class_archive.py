"""`write_archive`: an archive of Spark's loaded classes, so that sessions on this machine start
faster.

Java writes the archive when a process ends, and maps it into later processes (class-data sharing,
JEP 350). A session and its first match then need a third less processor time. The archive belongs
to one Java and one PySpark, whose digest is in its name. Java itself checks the archive, and starts
without one that does not fit.
"""

import os
import shutil
import subprocess
import sys
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from contrada.errors import EngineError

ARCHIVE_WAIT_S: Final = 300.0
"""Seconds for writing the archive. Beyond it: the attempt ends with an error."""

QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Java would warn of each class that it leaves out, and of an archive that does not fit."""


def archive_path() -> Path:
    """Returns the path of the archive, in the user's cache directory."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches).absolute() / "contrada" / "spark" / f"{_digest()}.jsa"


def java_options() -> str:
    """Returns the Java options that use the archive; empty without an archive."""
    kept = archive_path()
    return f'"-XX:SharedArchiveFile={kept}" {QUIET}' if kept.is_file() else ""


def write_archive() -> Path:
    """Starts a Spark session, matches rows, and archives the loaded classes, atomically. Cost: some
    150 MB, half a minute. Raises EngineError if Java writes no archive.
    """
    kept = archive_path()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=kept.parent) as folder:
        new = Path(folder) / kept.name
        command = [sys.executable, "-m", "contrada.integrations.spark.archive_loader", str(new)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=ARCHIVE_WAIT_S
            )
        except subprocess.TimeoutExpired:
            raise EngineError(f"Java kept no classes within {ARCHIVE_WAIT_S:g} s") from None
        if done.returncode or not new.is_file():
            reason = (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
            raise EngineError(f"Java kept no classes: {reason}")
        new.replace(kept)
    for old in set(kept.parent.glob("*.jsa")) - {kept}:
        old.unlink(missing_ok=True)
    return kept


def _digest() -> str:
    """Returns a digest of the Java and the PySpark of a new session."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java") or "java"
    path = Path(java).resolve()
    written = path.stat().st_mtime_ns if path.exists() else 0
    text = f"{path} {written} {version('pyspark')} {sys.prefix}"
    return blake2b(text.encode(), digest_size=8).hexdigest()
