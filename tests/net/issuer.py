"""`Issuer`: an OpenID provider that serves its discovery document and its keys over HTTP."""

import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from contrada.integrations.http.http_port import HttpPort
from contrada.net.broker.jwt_verifier import JwtSettings

AUDIENCE = "contrada"
RSA_KEY, OTHER_RSA_KEY = (rsa.generate_private_key(65537, 2048) for _ in range(2))
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def jwk(name: str, key: Any, **more: Any) -> dict[str, Any]:
    """Returns the public key of a private one as a JWK."""
    kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": name, **more}


class Issuer:
    """An issuer at an address of its own. Its answers can be changed."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [jwk("one", RSA_KEY)]
        self.address = ""
        self.issuer = ""
        """What its discovery document says; its address by default."""
        self.asked: Counter[str] = Counter()
        self.broken: Response | None = None

    async def discovery(self, _: Request) -> Response:
        self.asked["discovery"] += 1
        document = {"issuer": self.issuer or self.address, "jwks_uri": f"{self.address}/keys"}
        return self.broken or JSONResponse(document)

    async def jwks(self, _: Request) -> Response:
        self.asked["keys"] += 1
        return self.broken or JSONResponse({"keys": self.keys})

    def settings(self, **more: Any) -> JwtSettings:
        """Returns the settings of a broker that accepts its tokens."""
        return JwtSettings(issuer=self.address, audience=AUDIENCE, **more)

    def token(
        self,
        subject: str = "alice",
        *groups: str,
        key: Any = RSA_KEY,
        algorithm: str = "RS256",
        name: str | None = "one",
        seconds: float = 3_600,
        **claims: Any,
    ) -> str:
        """Returns a token that is valid for some seconds; a claim that is None is left out."""
        now_s = time.time()
        said = {
            "iss": self.address,
            "aud": AUDIENCE,
            "sub": subject,
            "groups": [*groups],
            "iat": int(now_s),
            "exp": int(now_s + seconds),
            **claims,
        }
        packed = {key: value for key, value in said.items() if value is not None}
        headers = {} if name is None else {"kid": name}
        return jwt.encode(packed, key, algorithm, headers)


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    """Serves an issuer within the context."""
    it = Issuer()
    routes = [Route("/.well-known/openid-configuration", it.discovery), Route("/keys", it.jwks)]
    port = HttpPort(Starlette(routes=routes), "127.0.0.1", 0, None)
    await port.start()
    it.address = port.address
    try:
        yield it
    finally:
        await port.stop()
