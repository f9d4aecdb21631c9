"""`Tls`: the certificate and the authorities of one side, and TLS errors as sentences.

It uses only `ssl` of the standard library with its safe defaults: TLS 1.2 and later, checked host
names. Keys are PEM files.
"""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from contrada.errors import InputError, MissingRequirementError, ServiceError

_BEGIN, _END = "-----BEGIN X509 CRL-----", "-----END X509 CRL-----"
_LOG: Final = logging.getLogger(__name__)

TLS_WAIT_S: Final = 10.0
"""How long the TLS handshake of an incoming connection may take. Beyond it: it is cut."""

TLS_FAULT: Final = "no TLS"
"""The name of failed handshakes in the counts of a broker, and in errors of a client."""

_NO_TLS: Final = "the other side does not speak TLS: contradas:// does, contrada:// does not"
_WORDS: Final = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side shows no certificate, and has to",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side asks for a certificate of this one",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the certificate of this one",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not take the certificate of this one",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate of this side has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the certificate of this side is revoked",
}
"""Sentences in place of the reasons of OpenSSL."""

_EXPIRED: Final = 10
_NOT_YET: Final = 9
_WRONG_HOST: Final = (62, 64)
_REVOKED: Final = 23
_NO_LIST: Final = 3
_LIST_EXPIRED: Final = 12
"""The verify codes of OpenSSL (X509_V_ERR) for refused certificates."""


class RevocationLists:
    """The certificates that their authorities have revoked, from a PEM file at the time of reading.

    A handshake checks the lists in OpenSSL. This finds the connections that began before a list
    named their certificate. Reading lists needs `cryptography`, the extra `signing`.

    Source: RFC 5280 §5.
    """

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


@dataclass(frozen=True, slots=True)
class Tls:
    """The PEM files of one side.

    `certificate` may be followed by those of its issuers, and by its key if `key` is None.
    `authority` has the trusted certificates; by default, those of the system. With
    `require_certificate` incoming connections must show a certificate of the authority. With `crl`,
    the revocation lists of the authority, the other side's certificate may not be in its list.
    """

    certificate: Path | str | None = None
    key: Path | str | None = None
    authority: Path | str | None = None
    require_certificate: bool = False
    crl: Path | str | None = None

    def __post_init__(self) -> None:
        if self.certificate is None and self.key is not None:
            raise InputError(str(self.key), "a key of TLS needs its certificate")
        if self.require_certificate and self.certificate is None:
            raise ServiceError(
                "a broker that requires certificates needs one itself: add a certificate"
            )
        if self.require_certificate and self.authority is None:
            raise ServiceError(
                "a broker that requires certificates needs their authority: add an authority"
            )
        if self.crl is not None and self.authority is None:
            raise ServiceError("a revocation list is that of an authority: add the authority")

    def client_context(self) -> ssl.SSLContext:
        """Returns the context of outgoing connections. Raises InputError."""
        return self._context(ssl.Purpose.SERVER_AUTH)

    def server_context(
        self, fail: Callable[[str], None], *, asks: bool = False
    ) -> ssl.SSLContext | None:
        """Returns the context of incoming connections; None without a certificate.

        `fail` gets the reason of each failed handshake. With `asks` the other side may show a
        certificate. Raises InputError.
        """
        if self.certificate is None:
            return None
        context = self._context(ssl.Purpose.CLIENT_AUTH)
        if self.require_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
        elif asks and self.authority is not None:
            context.verify_mode = ssl.CERT_OPTIONAL

        class Handshake(ssl.SSLObject):
            """Reports failed handshakes, which the event loop does not."""

            _failure: ssl.SSLError | None = None

            def do_handshake(self) -> None:
                if self._failure is not None:  # Drops further input, which would be held in memory.
                    raise self._failure
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise
                except ssl.SSLError as error:
                    self._failure = error
                    fail(describe_tls_error(error))
                    is_wrong = isinstance(error, ssl.SSLCertVerificationError)
                    if not (is_wrong or error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"):
                        raise
                    # It has TLS, but no acceptable certificate. After a fault the loop sends
                    # nothing more. So it has to continue: then it sends the alert, and the other
                    # side hangs up. It is cut where it sends anything else, and in TLS_WAIT_S.
                    raise ssl.SSLWantReadError from None

        context.sslobject_class = Handshake
        return context

    def _context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(purpose, cafile=self.authority)
        except OSError as error:
            reason = (
                "expected the certificates of trusted authorities, in PEM"
                if isinstance(error, ssl.SSLError)
                else str(error.strerror)
            )
            raise InputError(str(self.authority), reason) from None
        self.load_files(context)
        return context

    def revocations(self) -> RevocationLists | None:
        """Reads the revocation lists. Raises InputError, MissingRequirementError."""
        return None if self.crl is None else RevocationLists(self.crl)

    def load_files(self, context: ssl.SSLContext) -> None:
        """Loads the present files of the certificate and of the revocation lists for later
        handshakes. Of two lists of an authority the newer one is in force. Raises InputError,
        MissingRequirementError.
        """
        lists = self.revocations()  # Checked before anything changes.
        self._load_certificate(context)
        if lists is not None:
            context.load_verify_locations(self.crl)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        if self.certificate is None:
            return
        for each in (self.certificate, self.key or self.certificate):
            try:
                Path(each).open("rb").close()
            except OSError as error:
                raise InputError(str(each), error.strerror or str(error)) from None
        try:
            context.load_cert_chain(self.certificate, self.key, password=self._refuse_password)
        except ssl.SSLError as error:
            reason = (
                "the key is not that of the certificate"
                if error.reason == "KEY_VALUES_MISMATCH"
                else "expected a certificate and its key, in PEM"
            )
            raise InputError(self._files(), reason) from None

    def why_out_of_date(self) -> str:
        """Returns why the clock refuses this certificate, or "". Raises InputError.

        Does a handshake in memory with a side that trusts just this certificate.
        """
        if self.certificate is None:
            return ""
        shows = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load_certificate(shows)
        looks = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        looks.check_hostname = False
        looks.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        looks.load_verify_locations(self.certificate)
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        sides = looks.wrap_bio(back, there), shows.wrap_bio(there, back, server_side=True)
        for each in (*sides, sides[0]):  # The hello, the certificate, the verdict.
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                if error.verify_code == _EXPIRED:
                    return f"{self.certificate} has expired"
                if error.verify_code == _NOT_YET:
                    return f"{self.certificate} is not valid yet (is the clock right?)"
            except ssl.SSLError:
                break  # Refused for another reason, which the refused side reports.
        return ""

    def _refuse_password(self) -> str:
        raise InputError(self._files(), "the key is encrypted; expected one that is not")

    def _files(self) -> str:
        return f"{self.certificate}, {self.key}" if self.key else str(self.certificate)


def describe_tls_error(error: ssl.SSLError) -> str:
    """Returns the reason of a failed handshake as a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        detail = error.verify_message.rstrip(".")
        if error.verify_code == _EXPIRED:
            return "the certificate of the other side has expired"
        if error.verify_code == _NOT_YET:
            return "the certificate of the other side is not valid yet: is the clock right?"
        if error.verify_code == _REVOKED:
            return "the certificate of the other side is revoked"
        if error.verify_code in (_NO_LIST, _LIST_EXPIRED):
            return f"the revocation lists do not decide about the other side: {detail} (--tls-crl)"
        if error.verify_code in _WRONG_HOST:
            return f"the certificate of the other side is for another host ({detail})"
        return (
            f"the certificate of the other side is not trusted ({detail}); --tls-authority PEM, or "
            "tls= of `connect`, says who is"
        )
    reason = error.reason or str(error)
    return _WORDS.get(reason, f"TLS failed ({reason})")


def describe_hang_up(*, is_tls: bool) -> str:
    """Returns the likely reason of a close before the first byte."""
    wish = "asks for a certificate of this side" if is_tls else "wants TLS, as with contradas://"
    return f"it is no broker, or one that {wish}: it closed the connection without a word"
