"""`has_java`: whether tests and figures that need Spark can run on this machine."""

import os
import shutil


def has_java() -> bool:
    """Whether Spark would find a Java."""
    return "JAVA_HOME" in os.environ or shutil.which("java") is not None
