"""Keys of tenants as text, for REST and for signed messages.

``slk_<tenant>:<12 hex digits>:<32 random characters><43 characters of proof>``. The proof is a MAC over the key's id by
a secret that derives from SECRET_KEY: only a key that this deployment has made costs a look into the database. It also
signs the tenant's messages, so that a worker can check them although nobody keeps the key itself.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import Final

from sandloom.broker.envelope import SigningKey, derived_secret

PREFIX: Final = "slk_"
_TEXT: Final = re.compile(
    r"slk_(([A-Za-z0-9][A-Za-z0-9_.-]{0,63}):[0-9a-f]{12}):([A-Za-z0-9_-]{32})([A-Za-z0-9_-]{43})\Z"
)
KEY_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}:[0-9a-f]{12}$"
_KEY_ID: Final = re.compile(KEY_ID_PATTERN.replace("$", r"\Z"))


@dataclass(frozen=True, slots=True)
class ApiKeyText:
    """The parts of a key. ``key_id`` begins with the tenant and is no secret."""

    key_id: str
    tenant_id: str
    secret: str = field(repr=False)
    proof: str = field(repr=False)

    def __str__(self) -> str:
        return f"{PREFIX}{self.key_id}:{self.secret}{self.proof}"

    @property
    def signing_key(self) -> SigningKey:
        return _signing_key(self.key_id, self.tenant_id, self.proof)


def parse(text: str) -> ApiKeyText | None:
    """None for what cannot be a key, such as the operator's token."""
    match = _TEXT.match(text)
    return None if match is None else ApiKeyText(*match.groups())


def is_key_id(text: str) -> bool:
    return bool(_KEY_ID.match(text))


class KeyMint:
    """Makes and recognises the keys of one deployment. Comparisons take the same time whatever they find."""

    def __init__(self, secret_key: str) -> None:
        self._secret = derived_secret(secret_key, b"sandloom api keys v1")

    def new(self, tenant_id: str) -> ApiKeyText:
        key_id = f"{tenant_id}:{secrets.token_hex(6)}"
        return ApiKeyText(key_id, tenant_id, secrets.token_urlsafe(24), self._proof(key_id))

    def hash(self, key: ApiKeyText) -> str:
        """What is kept of the key: HMAC-SHA256 over its id and its secret, 64 hex digits."""
        return hmac.digest(self._secret, f"hash\0{key.key_id}\0{key.secret}".encode(), hashlib.sha256).hex()

    def made(self, key: ApiKeyText) -> bool:
        """Whether its id and its proof are from here. Says nothing about the secret."""
        return hmac.compare_digest(key.proof, self._proof(key.key_id))

    def fits(self, key: ApiKeyText, kept_hash: str) -> bool:
        return hmac.compare_digest(self.hash(key), kept_hash)

    def signing_key(self, key_id: str) -> SigningKey | None:
        """For the messages of a key; None for what cannot be a key's id."""
        if not is_key_id(key_id):
            return None
        return _signing_key(key_id, key_id.rsplit(":", 1)[0], self._proof(key_id))

    def _proof(self, key_id: str) -> str:
        made = hmac.digest(self._secret, f"proof\0{key_id}".encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(made).rstrip(b"=").decode()


def _signing_key(key_id: str, tenant_id: str, proof: str) -> SigningKey:
    return SigningKey(key_id, proof.encode(), tenant_id)
