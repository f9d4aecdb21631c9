"""Files with secrets: whole, or not there."""

import resource
from pathlib import Path

import pytest

from contrada.errors import InputError
from contrada.service.security.secret_files import read_secret, write_secret


def test_a_secret_that_has_no_room_leaves_no_file(tmp_path: Path) -> None:
    """Another attempt would find a file without the whole secret, and refuse to write over it."""
    file = tmp_path / "key"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9, before[1]))
    try:
        with pytest.raises(InputError, match="too large"):
            write_secret(file, b"a long secret")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    write_secret(file, b"a long secret")
    with pytest.raises(InputError, match="not written over"):
        write_secret(file, b"another one")
    assert read_secret(file, 99) == b"a long secret"
    assert file.stat().st_mode & 0o777 == 0o600
