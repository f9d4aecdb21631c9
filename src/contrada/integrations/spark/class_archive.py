"""What sessions on this machine start from faster: the classes of Spark as Java has them in memory.

Java writes them down when a process ends, and maps them when the next one begins (class-data
sharing, JEP 350). A session and its first match need a third less processor time so. The file is
of one Java and one PySpark: its name has a digest of both. Java itself looks whether it fits, and
goes on without it where it does not.
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
"""How long it may take to write the classes down. Beyond it: it is given up, with an error."""

QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Java would warn of each class that it leaves out, and of a file that does not fit."""


def archive() -> Path:
    """Where the classes are kept, or will be: among the caches of the user."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches).absolute() / "contrada" / "spark" / f"{_digest()}.jsa"


def java_options() -> str:
    """The options with which Java uses the classes; none where they were not kept."""
    kept = archive()
    return f'"-XX:SharedArchiveFile={kept}" {QUIET}' if kept.is_file() else ""


def keep_classes() -> Path:
    """Start a session of Spark, match something, and keep the classes that this took.

    They replace those kept before, all or none. Some 150 MB; half a minute. Raises EngineError
    where Java does not write them.
    """
    kept = archive()
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
            said = (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
            raise EngineError(f"Java kept no classes: {said}")
        new.replace(kept)
    for old in set(kept.parent.glob("*.jsa")) - {kept}:
        old.unlink(missing_ok=True)
    return kept


def _digest() -> str:
    """Of the Java and the PySpark that a session would have."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java") or "java"
    path = Path(java).resolve()
    written = path.stat().st_mtime_ns if path.exists() else 0
    said = f"{path} {written} {version('pyspark')} {sys.prefix}"
    return blake2b(said.encode(), digest_size=8).hexdigest()
