"""Passwords are set and changed, and links made that sign in once. No audit entry holds one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from instep.control.immediate.context import WriteContext
from instep.control.queries.govern import KeyLookup
from instep.control.resources import sign_in
from instep.errors import Conflict, Forbidden, NotFound
from instep.operations.immediate.people import ChangePasswordRequest, MakeSignInLinkRequest, SetPasswordRequest
from instep.operations.queries.govern import GetKey
from instep.operations.spec import ImmediateRequest, ImmediateWork
from instep.store.server.api_keys import ApiKey


@dataclass(frozen=True)
class PasswordOf:
    """A key that has a new password."""

    key: str
    """The key's id."""
    name: str
    """Its name, which signs in with the password."""


@dataclass(frozen=True)
class SignInLink:
    """A link that signs in once. The page is at `/sign-in/once/TOKEN`."""

    key: str
    """The key's id."""
    token: str | None = field(repr=False)
    """The end of the link's address; null if none was made, or if it was shown before."""
    expires: datetime
    """The time after which it is refused."""


class _KeyWork(ImmediateWork):
    """Do something with one key."""

    def detail(self, request: ImmediateRequest, result: Any) -> Mapping[str, Any]:
        """Return the key alone."""
        return {"key": result.key}


class PasswordSetting(_KeyWork):
    """Set the password of any key."""

    def execute(self, context: WriteContext, request: SetPasswordRequest, prepared: None) -> PasswordOf:
        """Set it; InstepError for one that is too short or too long, Conflict for a key that was revoked."""
        key = _living(context, request.key)
        sign_in.set_password(context.store, key, request.password)
        return PasswordOf(key.id, key.name)


class PasswordChange(_KeyWork):
    """Change one's own password."""

    def prepare(self, context: WriteContext, request: ChangePasswordRequest) -> None:
        """Compare the old one: it takes long. Forbidden for a wrong one, NotFound at the project, which needs no
        key."""
        if (key := context.key) is None:
            raise NotFound("no API key is used here", hint="set the password of a key: `instep keys password KEY`")
        if not sign_in.is_password(context.store, key, request.old):
            raise Forbidden("this is not the password of your key", hint="an admin can set another one")

    def execute(self, context: WriteContext, request: ChangePasswordRequest, prepared: None) -> PasswordOf:
        """Set the new one."""
        assert context.key is not None, "`prepare` has looked"
        sign_in.set_password(context.store, context.key, request.password)
        return PasswordOf(context.key.id, context.key.name)


class LinkMaking(_KeyWork):
    """Make a link."""

    def execute(self, context: WriteContext, request: MakeSignInLinkRequest, prepared: None) -> SignInLink:
        """Make it; Conflict for a key that was revoked."""
        key = _living(context, request.key)
        expires = context.store.sessions.now() + sign_in.LINK_LASTS
        return SignInLink(key.id, sign_in.make_link(context.store, key), expires)


def _living(context: WriteContext, key_id: str) -> ApiKey:
    key = KeyLookup().find(context, GetKey(key_id))
    if key.ended:
        raise Conflict(f"API key {key.id} was revoked", hint="make another one: `instep keys create`")
    return key
