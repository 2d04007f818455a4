"""Sign-in at an OpenID Connect provider: the code flow with PKCE, a state and a nonce.

The provider is asked through the egress guard. A person becomes an API key that is called as their address; its role
follows from the groups in the ID token at each sign-in.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from instep.control.resources.api_keys import ROLES, end
from instep.control.resources.sign_in import StartedSession, begin
from instep.egress.guard import EgressGuard
from instep.egress.http import request
from instep.errors import ConnectError, Forbidden, InstepError, SetupError
from instep.operations.spec import Role
from instep.project.sections.channels import OidcSection
from instep.server.context import ServerContext
from instep.store.server.api_keys import ApiKey
from instep.store.server.persons import OF_PROVIDER
from instep.store.store import Store

_DOCUMENT_SECONDS = 600.0
_documents: dict[str, tuple[float, Mapping[str, Any]]] = {}
"""Documents of issuers and when they were read, by name: a sign-in needs one twice."""
_NAME = re.compile(r"[^(),]{1,200}")
"""Records have a name with its key's id in parentheses, and several people with commas: no name may look like those."""
_LEEWAY = 60
"""Seconds by which the clocks of this machine and of the provider may differ."""


@dataclass(frozen=True)
class SignInAttempt:
    """A sign-in that is under way: what its browser brings back."""

    state: str
    nonce: str
    verifier: str = field(repr=False)

    @classmethod
    def new(cls) -> SignInAttempt:
        """Return an attempt that nobody can guess."""
        return cls(secrets.token_urlsafe(24), secrets.token_urlsafe(24), secrets.token_urlsafe(48))

    def text(self) -> str:
        """Return it as the value of a cookie."""
        return ".".join((self.state, self.nonce, self.verifier))

    @classmethod
    def of(cls, text: str) -> SignInAttempt | None:
        """Return the attempt of a cookie; None for another text."""
        parts = text.split(".")
        return cls(*parts) if len(parts) == 3 and all(parts) else None


@dataclass(frozen=True)
class Provider:
    """The provider that a project names."""

    section: OidcSection
    guard: EgressGuard

    def address(self, attempt: SignInAttempt, redirect: str) -> str:
        """Return the address at the provider that the browser goes to."""
        digest = hashlib.sha256(attempt.verifier.encode()).digest()
        sent = {
            "response_type": "code",
            "client_id": self.section.client_id,
            "redirect_uri": redirect,
            "scope": "openid email profile",
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        return f"{self._document()['authorization_endpoint']}?{urlencode(sent)}"

    def claims(self, attempt: SignInAttempt, code: str, redirect: str) -> Mapping[str, Any]:
        """Return the claims of the ID token for a code. Raises Forbidden for one that is not valid."""
        document = self._document()
        sent = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "client_id": self.section.client_id,
            "code_verifier": attempt.verifier,
        }
        login = f"{self.section.client_id}:{self.section.client_secret}".encode()
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            "Authorization": f"Basic {base64.b64encode(login).decode()}",
        }
        tokens = self._json("POST", str(document["token_endpoint"]), urlencode(sent).encode(), headers)
        return self._checked(str(tokens.get("id_token", "")), str(document["jwks_uri"]), attempt)

    def _checked(self, token: str, keys: str, attempt: SignInAttempt) -> Mapping[str, Any]:
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        rules = jwt.JWTClaimsRegistry(
            leeway=_LEEWAY,
            iss={"essential": True, "value": self.section.issuer},
            aud={"essential": True, "value": self.section.client_id},
            nonce={"essential": True, "value": attempt.nonce},
            exp={"essential": True},
            sub={"essential": True},
        )
        try:
            known = KeySet.import_key_set(self._json("GET", keys, None, {"Accept": "application/json"}))  # type: ignore[arg-type]
            decoded = jwt.decode(token, known, algorithms=["RS256", "ES256", "PS256", "EdDSA"])
            rules.validate(decoded.claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            why = f"the ID token of {self.section.issuer} is not valid ({type(error).__name__})"
            raise Forbidden(why, hint="sign in again; check the clocks and `oidc:` in instep.yml") from None
        return dict(decoded.claims)

    def _document(self) -> Mapping[str, Any]:
        issuer, now = self.section.issuer, time.monotonic()
        read, known = _documents.get(issuer, (0.0, None))
        if known is not None and now - read < _DOCUMENT_SECONDS:
            return known
        address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        document = self._json("GET", address, None, {"Accept": "application/json"})
        required = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        if document.get("issuer") != issuer or not all(
            str(document.get(name, "")).startswith("http") for name in required
        ):
            raise ConnectError(f"{issuer} does not describe itself as this issuer", hint="check `oidc:` in instep.yml")
        _documents[issuer] = now, document
        return document

    def _json(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> dict[str, Any]:
        answer = request(self.guard, method, url, body, headers, timeout=self.section.timeout, ca=self.section.ca)
        try:
            document = json.loads(answer.body)
        except (ValueError, RecursionError):
            document = None
        if answer.status != 200 or not isinstance(document, dict):
            raise ConnectError(f"{self.section.issuer} has answered {answer.status}", hint="sign in again")
        return document


def provider_of(server: ServerContext) -> Provider | None:
    """Return the provider that the project names; None if it names none. Raises SetupError without the extra `oidc`."""
    if not server.project.model.oidc.issuer:
        return None
    try:
        import joserfc  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as error:
        raise SetupError("joserfc is not installed", hint="pip install 'instep[oidc]'") from error
    return Provider(server.project.oidc(), EgressGuard(server.project.model.egress.allow))


def role_of(section: OidcSection, claims: Mapping[str, Any]) -> Role | None:
    """Return the highest role of a person's groups; None if none of them has one."""
    given = claims.get(section.groups)
    listed = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    groups = {one for one in listed if isinstance(one, str) and one != "*"}
    roles = [role for group, role in section.roles.items() if group == "*" or group in groups]
    return max(roles, key=ROLES.index) if roles else None


def signed_in(store: Store, section: OidcSection, claims: Mapping[str, Any]) -> StartedSession:
    """Begin the session of a person, who has one key: that of another role or address ends, also where no role is left.
    Raises Forbidden for one without a role, or whose name is somebody else's key: a provider may let people choose
    their address, so that the key is for the `sub` that it was made for."""
    role, name = role_of(section, claims), _name(claims)
    maker = f"{OF_PROVIDER}{section.issuer} {claims['sub']}"
    for key in store.api_keys.made_by(maker):
        if (key.name, key.role) != (name, role):
            end(store, key.id, maker)
    if role is None:
        raise Forbidden(f"no group of {name} has a role here", hint="an admin adds it to `oidc: roles:` in instep.yml")
    with store.transaction():
        known = store.api_keys.named(name)
        if known is not None and known.created_by != maker:
            why = f"an API key is called {name}, which was not made for this person of this provider"
            raise Forbidden(why, hint="ask an admin to revoke that key")
        return begin(store, known or _new(store, name, role, maker))


def _new(store: Store, name: str, role: Role, maker: str) -> ApiKey:
    key = store.api_keys.add(f"k-{secrets.token_hex(6)}", name, role, (), maker)
    store.audit.add(maker, "key.create", key.id, {"key": key.id, "name": name, "role": role})
    return key


def _name(claims: Mapping[str, Any]) -> str:
    """Return the address of a person, where the provider has checked it, or what the provider calls them."""
    address = claims.get("email")
    name = str(address if address and claims.get("email_verified", True) is True else claims.get("sub", ""))
    if not _NAME.fullmatch(name) or not name.isprintable():
        raise InstepError("the ID token names nobody", hint="let the provider send the claim `email`")
    return name
