"""`JwtVerifier`: verifies tokens from outside: JSON Web Tokens of an OpenID provider.

    [jwt]
    issuer = "https://login.example.com/realms/desk"
    audience = "contrada"

PyJWT checks the signature, the issuer, the audience and the times. Only algorithms with a public
key are possible: with one of a shared secret (HS256), the public key could make tokens.

Source: RFC 7519 (JWT), RFC 8725 (best current practices).
"""

from typing import Any, Final

from msgspec import Struct, json

from contrada.errors import FrameError, InputError, MissingRequirementError, shortened
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.jwk_cache import JwkCache, StartWork, check_address
from contrada.service.security.principals import NOT_PERMITTED

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""The algorithms of a JWT whose signature a public key verifies."""


class JwtSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The issuer of tokens from outside, and the meaning of their claims."""

    issuer: str = ""
    audience: str = ""
    keys: str = ""
    """A file or an address with the keys (JWKS); without it they are discovered at the issuer."""
    algorithms: tuple[str, ...] = ALGORITHMS
    user_claim: str = "sub"
    """The claim with the name of the user; `a.b` is the claim b in the claim a."""
    groups_claim: str = "groups"
    """The claim with the groups: a list of texts, or one text with blanks between them."""

    def check(self) -> None:
        """Raises InputError for settings that could accept no token, or a forged one."""
        for key in ("issuer", "audience", "user_claim"):
            if not getattr(self, key):
                raise InputError(f"jwt.{key}", "expected a text")
        wrong = [each for each in self.algorithms if each not in ALGORITHMS]
        if wrong or not self.algorithms:
            found = wrong[0] if wrong else "no algorithm"
            raise InputError("jwt.algorithms", f"found {found!r}, expected {', '.join(ALGORITHMS)}")
        if "://" in self.keys or not self.keys:
            check_address(self.keys or self.issuer)


class JwtIdentity(Struct, frozen=True, array_like=True):
    """The verified claims of a token."""

    subject: str
    groups: tuple[str, ...]
    expires_us: int
    """The end of the token and of its connection, with the allowance for other clocks."""

    def to_credential(self) -> str:
        """Returns it as text; see `Principal.credential`."""
        return _CREDENTIAL + json.encode(self).decode()

    @classmethod
    def of_credential(cls, credential: str) -> "JwtIdentity | None":
        """Returns the identity in a credential; None for another kind."""
        if not credential.startswith(_CREDENTIAL):
            return None
        return json.decode(credential.removeprefix(_CREDENTIAL), type=cls)


_CREDENTIAL: Final = "jwt "


class JwtVerifier:
    """Verifies tokens by the keys of one issuer."""

    def __init__(
        self, settings: JwtSettings, start: StartWork, limits: BrokerLimits = BrokerLimits()
    ) -> None:
        """Raises InputError, MissingRequirementError."""
        settings.check()
        try:
            import httpcore  # noqa: F401 - the keys need it
            import jwt
        except ModuleNotFoundError as error:
            remedy = "pip install 'contrada[jwt]'"
            raise MissingRequirementError(f"{error.name}, for tokens of JWT", remedy) from None
        self._jwt, self._settings, self._limits = jwt, settings, limits
        issuer = settings.issuer, settings.keys, settings.algorithms
        self.keys = JwkCache(*issuer, start, limits=limits)

    def verify_at_once(self, token: str) -> JwtIdentity | None:
        """Returns the identity in a token; None where `verify` has to read the keys first.

        Raises FrameError for a token that is not valid. Cost: a tenth of a millisecond.
        """
        name, algorithm = self._header(token)
        key = self.keys.find(name, algorithm)
        return None if key is None else self._identity(token, key)

    async def verify(self, token: str) -> JwtIdentity:
        """As `verify_at_once`, with the present keys of the issuer."""
        await self.keys.refresh()
        found = self.verify_at_once(token)
        if found is None:
            raise _refusal("no known key of the issuer has signed it")
        return found

    def _header(self, token: str) -> tuple[str | None, str]:
        """Returns the name of the key, and the algorithm. Raises FrameError."""
        try:
            header = self._jwt.get_unverified_header(token)
        except (self._jwt.PyJWTError, ValueError, RecursionError):
            raise _refusal("its header is malformed") from None
        name, algorithm = header.get("kid"), header.get("alg")
        if algorithm not in self._settings.algorithms:
            raise _refusal(f"the algorithm {shortened(repr(algorithm), 40)} is not allowed")
        return name, algorithm

    def _identity(self, token: str, key: Any) -> JwtIdentity:
        settings = self._settings
        try:
            claims = self._jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=self._limits.jwt_leeway_s,
                options={"require": ["exp"], "enforce_minimum_key_length": True},
            )
            ends_us = int((int(claims["exp"]) + self._limits.jwt_leeway_s) * 1_000_000)
        except (self._jwt.PyJWTError, ValueError, ArithmeticError, RecursionError) as error:
            raise _refusal(shortened(str(error), 100)) from None
        subject, groups = _claim(claims, settings.user_claim), _claim(claims, settings.groups_claim)
        if not _is_text(subject) or not subject:
            raise _refusal(f"its claim {settings.user_claim!r} is no text")
        listed = groups.split() if isinstance(groups, str) else groups
        listed = listed if isinstance(listed, list) else []
        return JwtIdentity(subject, tuple(filter(_is_text, listed)), ends_us)


def _claim(claims: dict[str, Any], name: str) -> Any:
    """Returns a claim, or one inside others: Keycloak has `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _is_text(value: object) -> bool:
    """Returns whether a value is a text, without the half characters that JSON allows."""
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def _refusal(reason: str) -> FrameError:
    return FrameError(NOT_PERMITTED, f"the token is not valid here: {reason}")
