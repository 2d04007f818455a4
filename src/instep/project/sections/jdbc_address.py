"""The URL that a driver is given, and which of its options a project may set.

A driver's options can name classes to load, scripts to run and files to write. So the options of drivers that are
known here are listed one by one; of others, what looks like any of that is refused by its name. A URL is split the
way drivers split it, and whatever it says beyond the address is checked as if it were an option.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote_plus

from instep.errors import ProjectError
from instep.project.sections.jdbc_dialects import JdbcDialect, dialect_of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHAPE = re.compile(r"jdbc:([A-Za-z][A-Za-z0-9+.-]*):(\S.*)")
_LOGIN = _words("user username uid userid user_name password passwd pwd pass accesstoken apikey")
_CREDENTIALS = re.compile(r"//[^/?;]*@|:(?:thin|oci8?):(?!/?@)[^@]*@")
_ELSEWHERE = re.compile(r"(?:^|[:/@=,(])\s*(?:ldaps?|rmi|iiop|dns|corbaname|jndi|config-[a-z]+):", re.IGNORECASE)
_OPTIONS_WITHIN = re.compile(r"[%()]|\[(?![0-9A-Fa-f:.]+\])")
"""What makes options, or another address, of an authority: drivers split it before they decode it, or after."""
_DANGEROUS = re.compile(
    r"class|factor|plugin|interceptor|listener|handler|hook|callback|script|init|exec|serializ|infile|jndi|ldap"
    r"|log(ger|file|dir|path|level|writer|config)|trace|tracing|extension|provider|verifier|localsocketaddress"
    r"|proxy|socks|serverlist|remotehost|java[._]|javax[._]|keytab|krb|jaas|transform|url|keyfile|manager|constructor",
    re.IGNORECASE,
)
_SPARKS = _words(
    "url dbtable query driver partitioncolumn lowerbound upperbound numpartitions querytimeout fetchsize truncate "
    "cascadetruncate createtableoptions createtablecolumntypes customschema batchsize isolationlevel "
    "sessioninitstatement preparequery pushdownpredicate pushdownaggregate pushdownlimit pushdownoffset "
    "pushdowntablesample pushdownjoin keytab principal refreshkrb5config connectionprovider tablecomment "
    "prefertimestampntz hint"
)
"""Names that Spark's reader takes for itself and never hands to a driver."""
_PART = re.compile(r"[^\s?&;#%@\\(){}=]*")


def subprotocol_of(url: str) -> str:
    """`postgresql` of `jdbc:postgresql://...`; ProjectError for what is no JDBC URL."""
    return _split(url)[0]


def _split(url: str) -> tuple[str, str]:
    match = _SHAPE.fullmatch(url)
    if match is None:
        raise ProjectError(
            "`url` is no JDBC URL", hint="write jdbc:SUBPROTOCOL:..., as the driver's documentation has it"
        )
    return match[1].lower(), match[2]


def address(template: str, host: str = "", port: int = 0, database: str = "") -> str:
    """Return the URL of `template`, checked: it carries no login and no option that is refused. Raises ProjectError."""
    parts = {"host": host, "port": str(port or ""), "database": database}
    for name, value in parts.items():
        if not _PART.fullmatch(value):
            raise ProjectError(
                f"`{name}` has a character that ends it in a URL", hint="leave options to `options`, which checks them"
            )
        if f"{{{name}}}" in template and not value:
            raise ProjectError(f"`{name}` is missing: the URL is {template}", hint=f"set `{name}`")
    url = re.sub(r"\{(host|port|database)\}", lambda m: parts[m[1]], template)
    check_url(url)
    return url


def check_url(url: str) -> None:
    """Raise ProjectError if the URL carries a login, another server's directory, or an option that is refused."""
    subprotocol, rest = _split(url)
    plain = unquote_plus(rest)
    if any(ord(c) < 32 for c in plain):
        raise ProjectError("`url` has a control character", hint="write it on one line")
    if any(_CREDENTIALS.search(text) for text in (url, f"jdbc:{subprotocol}:{plain}")):
        raise ProjectError("`url` carries a login", hint="take it out: `user` and `password` say it, as references")
    if _ELSEWHERE.search(plain):
        raise ProjectError("`url` asks a directory for the address", hint="write the server's own address")
    if subprotocol != "oracle" and any(map(_OPTIONS_WITHIN.search, _authorities(subprotocol, rest))):
        raise ProjectError("`url` has options in its address", hint="write host and port, and options in `options`")
    check_options(subprotocol, _inside(subprotocol, rest), "url")


def _authorities(subprotocol: str, rest: str) -> Iterator[str]:
    """Yield what stands where hosts do, as it is written and decoded: up to what ends it for the most generous
    driver."""
    ends = r"[/?#;]" if subprotocol == "sqlserver" else r"[/?#]"
    for text in (rest, unquote_plus(rest)):
        _, there, behind = text.partition("//")
        if there:
            yield re.split(ends, behind)[0]


def url_options(url: str) -> Iterator[str]:
    """Yield the names of the options that a URL sets; ProjectError for what is no JDBC URL."""
    return _inside(*_split(url))


def _inside(subprotocol: str, rest: str) -> Iterator[str]:
    """Yield the names of what a URL says after the address: `?a=b&c=d`, `;a=b`, and Db2's `:a=b;`."""
    first, *parts = re.split(r"[?&;#]", rest)
    _, there, behind = first.partition("//")
    path = behind.partition("/")[2] if there else first
    tail = path.partition(":")[2] if subprotocol != "oracle" else ""
    for part in [tail if "=" in tail else "", *parts]:
        if name := unquote_plus(part.partition("=")[0]).strip():
            yield name


def check_options(subprotocol: str, names: Iterable[str], where: str = "options") -> None:
    """Raise ProjectError for the first option that a project may not set."""
    dialect = dialect_of(subprotocol)
    for name in names:
        if why := _refused(dialect, name, subprotocol, where):
            raise ProjectError(f"`{where}` sets {_shown(name)}, {why[0]}", hint=why[1])


def _refused(dialect: JdbcDialect, name: str, subprotocol: str, where: str) -> tuple[str, str] | None:
    """(why, the next step), None for an option that is fine."""
    plain = name.strip().lower()
    if plain in _LOGIN:
        return "which is a login", "`user` and `password` say it, as references"
    if plain in _SPARKS and where == "options":
        return "which Spark's reader takes for itself", "use `fetch_size`, `query_timeout` and `partitions`"
    if dialect.allowed:
        known = ", ".join(sorted(dialect.allowed))
        return None if plain in dialect.allowed else (f"which is not allowed for {subprotocol}", f"allowed: {known}")
    if _DANGEROUS.search(plain) or not re.fullmatch(r"[a-z0-9_.$ -]+", plain):
        return "which may load code, run statements or write files", "leave it out"
    return None


def _shown(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name[:60])


def properties(
    dialect: JdbcDialect, options: Mapping[str, str], user: str, password: str, connect_timeout: float
) -> dict[str, str]:
    """Return what the driver is given beside the URL; holds the password."""
    named = {name.lower() for name in options}
    out = {name: value for name, value in dialect.given.items() if name.lower() not in named}
    if dialect.connect and connect_timeout and dialect.connect[0].lower() not in named:
        out[dialect.connect[0]] = str(max(1, round(connect_timeout * dialect.connect[1])))
    login = {"user": user, "password": password}
    return {**out, **options, **{name: value for name, value in login.items() if value}}
