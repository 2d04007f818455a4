"""Passwords of the people who sign in to the page, and links that sign in once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import LeadsTo, Length, Name

Password = Annotated[str, Length(12, 200), LeadsTo("setting")]


@dataclass(frozen=True)
class SetPasswordRequest(ImmediateRequest):
    """Set the password of an API key: its name and the password sign in to the page. Its other sessions and links
    end."""

    key: Name
    """The key's id, k-..."""
    password: Password = field(repr=False)
    """The new password, 12 to 200 characters. It is stored as an Argon2id hash, and in no log."""


@dataclass(frozen=True)
class ChangePasswordRequest(ImmediateRequest):
    """Change the password of this request's own API key. Its other sessions and links end."""

    old: Annotated[str, Length(1, 200), LeadsTo("setting")] = field(repr=False)
    """The password until now."""
    password: Password = field(repr=False)
    """The new password, 12 to 200 characters."""


@dataclass(frozen=True)
class MakeSignInLinkRequest(ImmediateRequest):
    """Make a link that signs in to the page as this API key once, within 15 minutes. Only this response contains its
    token."""

    key: Name
    """The key's id, k-..."""


SPECS = (
    ImmediateSpec(
        "set_password",
        role="admin",
        route="POST /keys/{key}/password",
        request=SetPasswordRequest,
        result="instep.control.immediate.people:PasswordOf",
        work="instep.control.immediate.people:PasswordSetting",
        audit="key.password",
        target="key",
        match="key",
        whole=True,
    ),
    ImmediateSpec(
        "change_password",
        role="viewer",
        route="POST /me/password",
        request=ChangePasswordRequest,
        result="instep.control.immediate.people:PasswordOf",
        work="instep.control.immediate.people:PasswordChange",
        audit="key.password",
        target="one's own key",
    ),
    ImmediateSpec(
        "make_sign_in_link",
        role="admin",
        route="POST /keys/{key}/link",
        request=MakeSignInLinkRequest,
        result="instep.control.immediate.people:SignInLink",
        work="instep.control.immediate.people:LinkMaking",
        audit="key.link",
        target="key",
        match="key",
        status=201,
        secret_field="token",
        whole=True,
    ),
)
