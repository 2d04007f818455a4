"""The database of a `sql` catalog: its address, and the same for Spark's JDBC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from instep.errors import SetupError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_FORM = "postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE"
_PARAMETERS = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "connect_timeout": "connectTimeout",
    "application_name": "ApplicationName",
}
"""Parameters of an address that Spark gets, too, with their names in the JDBC driver."""


def address(lake: str, uri: str) -> URL:
    """Return a database's address; SetupError, which does not quote it, if it is none."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(uri)
    except (ArgumentError, ValueError):
        raise SetupError(
            f"lake {lake}: the property uri of its sql catalog is not a database's address", hint=f"write {_FORM}"
        ) from None


def jdbc_properties(lake: str, uri: str) -> Mapping[str, str]:
    """Return the address as properties of Spark's catalog, with its login apart.

    Raises SetupError for what Spark cannot be told: another database than PostgreSQL, and parameters that the JDBC
    driver does not have.
    """
    url = address(lake, uri)
    if (kind := url.get_backend_name()) != "postgresql":
        raise SetupError(
            f"lake {lake}: Spark cannot use its sql catalog, which is in {kind}",
            hint="move the catalog to PostgreSQL, or set `engine: local` in instep.yml",
        )
    if unknown := sorted(
        {name for name, value in url.query.items() if name not in _PARAMETERS or type(value) is tuple}
    ):
        raise SetupError(
            f"lake {lake}: Spark cannot use {', '.join(unknown)} in the uri of its sql catalog",
            hint=f"write {_FORM}; behind `?` there may be {', '.join(_PARAMETERS)}, each once",
        )
    host = f"[{url.host}]" if ":" in (url.host or "") else url.host or "localhost"
    place = f"{host}{f':{url.port}' if url.port else ''}/{quote(url.database or '', safe='')}"
    query = urlencode({_PARAMETERS[name]: str(value) for name, value in url.query.items()})
    login = {"jdbc.user": url.username, "jdbc.password": str(url.password) if url.password else None}
    return {
        "uri": f"jdbc:postgresql://{place}{'?' * bool(query)}{query}",
        "jdbc.schema-version": "V1",
        **{key: value for key, value in login.items() if value},
    }
