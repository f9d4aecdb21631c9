"""`RevocationLists`: the certificates that their authorities have revoked, from a PEM file.

A handshake checks the lists in OpenSSL. This finds the connections that began before a list named
their certificate. Reading lists needs `cryptography`, the extra `signing`.

Source: RFC 5280 §5.
"""

import logging
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from contrada.errors import InputError, MissingRequirementError

_BEGIN, _END = "-----BEGIN X509 CRL-----", "-----END X509 CRL-----"
_LOG: Final = logging.getLogger(__name__)


class RevocationLists:
    """The lists of a file at the time of reading; one for each authority, or several."""

    def __init__(self, path: Path | str) -> None:
        """Raises InputError, MissingRequirementError."""
        try:
            from cryptography import x509
        except ModuleNotFoundError:
            remedy = "pip install 'contrada[signing]'"
            raise MissingRequirementError("cryptography, for revocation lists", remedy) from None
        try:
            text = Path(path).read_text("ascii")
            if "CERTIFICATE-----" in text:  # OpenSSL would trust it as an authority.
                raise ValueError
            found = [_BEGIN + part.partition(_END)[0] + _END for part in text.split(_BEGIN)[1:]]
            self._lists = [x509.load_pem_x509_crl(each.encode()) for each in found]
            if not self._lists:
                raise ValueError
        except OSError as error:
            raise InputError(str(path), error.strerror or str(error)) from None
        except ValueError:  # Also of the text that is no ASCII.
            reason = "expected revocation lists in PEM (BEGIN X509 CRL), and nothing else"
            raise InputError(str(path), reason) from None
        self._path, self._read_certificate = path, x509.load_der_x509_certificate

    def warn(self) -> None:
        """Logs a warning for each expired list, whose authority OpenSSL then refuses."""
        for each in self._lists:
            if each.next_update_utc is not None and each.next_update_utc <= datetime.now(UTC):
                fields = {"path": str(self._path), "issuer": each.issuer.rfc4514_string()}
                _LOG.warning(
                    "%(path)s: the list of %(issuer)s has expired, so its certificates are refused",
                    fields,
                )

    def has(self, certificate: bytes) -> bool:
        """Whether the authority of a certificate, in DER, has revoked it."""
        shown = self._read_certificate(certificate)
        return shown.serial_number in self._revoked.get(shown.issuer, ())

    @cached_property
    def _revoked(self) -> dict[Any, set[int]]:
        """The revoked serial numbers by authority: `cryptography` searches a list from its begin,
        which took 2 s for 1,000 connections and a list of 50,000.
        """
        revoked: dict[Any, set[int]] = {}
        for each in self._lists:
            revoked.setdefault(each.issuer, set()).update(one.serial_number for one in each)
        return revoked
