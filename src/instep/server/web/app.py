"""The page's routes, and their place in the server's application."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from fastapi import FastAPI
from starlette.routing import Route

from instep.operations.spec import Role
from instep.server.web import screens
from instep.server.web.rendering import STATIC
from instep.server.web.visit import PageRoutes

API_PATHS = ("/api/", "/v1/", "/v1", "/metrics", "/healthz", "/readyz")
"""Paths of programs; all others are pages, whose requests are forms."""


def is_page(path: str) -> bool:
    """Return True if people look at what is below this path."""
    return not any(path == prefix or (prefix.endswith("/") and path.startswith(prefix)) for prefix in API_PATHS)


def all_pages() -> list[PageRoutes]:
    """Return the pages of every screen."""
    names = [iter_module.name for iter_module in iter_modules(screens.__path__)]
    return [import_module(f"{screens.__name__}.{name}").pages for name in names]


def page_roles() -> Mapping[str, Role | None]:
    """Return the least role of each page by method and path; None for one without a session."""
    return {route: role for pages in all_pages() for route, role in pages.roles.items()}


def add_pages(app: FastAPI) -> None:
    """Add the pages of all screens to the application."""
    routes: list[Route] = [route for pages in all_pages() for route in pages.routes]
    app.router.routes.extend([STATIC, *routes])
