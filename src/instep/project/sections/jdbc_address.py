"""The URL that a driver is given, and which of its options a project may set.

A driver's options can name classes to load, scripts to run and files to write. So the options of drivers that are
known here are listed one by one; of others, what looks like any of that is refused by its name. A URL is split the
way drivers split it, and whatever it says beyond the address is checked as if it were an option.

What is known of databases by the subprotocol of their URLs: nothing here is needed, all of it spares settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote_plus

from instep.errors import ProjectError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHAPE = re.compile(r"jdbc:([A-Za-z][A-Za-z0-9+.-]*):(\S.*)")
_LOGIN = _words("user username uid userid user_name password passwd pwd pass accesstoken apikey")
_CREDENTIALS = re.compile(r"//[^/?;]*@|:(?:thin|oci8?):(?!/?@)[^@]*@")
_ELSEWHERE = re.compile(r"(?:^|[:/@=,(])\s*(?:ldaps?|rmi|iiop|dns|corbaname|jndi|config-[a-z]+):", re.IGNORECASE)
_OPTIONS_WITHIN = re.compile(r"[%()]|\[(?![0-9A-Fa-f:.]+\])")
"""Text that makes options, or another address, of an authority: drivers split it before they decode it, or after."""
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
    """Return `postgresql` of `jdbc:postgresql://...`; raises ProjectError for what is not a JDBC URL."""
    return _split(url)[0]


def _split(url: str) -> tuple[str, str]:
    match = _SHAPE.fullmatch(url)
    if match is None:
        raise ProjectError(
            "`url` is not a JDBC URL", hint="write jdbc:SUBPROTOCOL:..., as the driver's documentation shows"
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
    subprotocol, address = _split(url)
    plain = unquote_plus(address)
    if any(ord(c) < 32 for c in plain):
        raise ProjectError("`url` has a control character", hint="write it on one line")
    if any(_CREDENTIALS.search(text) for text in (url, f"jdbc:{subprotocol}:{plain}")):
        raise ProjectError("`url` carries a login", hint="take it out: `user` and `password` say it, as references")
    if _ELSEWHERE.search(plain):
        raise ProjectError("`url` asks a directory for the address", hint="write the server's own address")
    if subprotocol != "oracle" and any(map(_OPTIONS_WITHIN.search, _authorities(subprotocol, address))):
        raise ProjectError("`url` has options in its address", hint="write host and port, and options in `options`")
    check_options(subprotocol, _inside(subprotocol, address), "url")


def _authorities(subprotocol: str, address: str) -> Iterator[str]:
    """Yield what stands where hosts do, as it is written and decoded: up to what ends it for the most generous
    driver."""
    ends = r"[/?#;]" if subprotocol == "sqlserver" else r"[/?#]"
    for text in (address, unquote_plus(address)):
        _, slashes, behind = text.partition("//")
        if slashes:
            yield re.split(ends, behind)[0]


def url_options(url: str) -> Iterator[str]:
    """Yield the names of the options that a URL sets; ProjectError for what is not a JDBC URL."""
    return _inside(*_split(url))


def _inside(subprotocol: str, address: str) -> Iterator[str]:
    """Yield the names of what a URL says after the address: `?a=b&c=d`, `;a=b`, and Db2's `:a=b;`."""
    first, *parts = re.split(r"[?&;#]", address)
    _, slashes, behind = first.partition("//")
    path = behind.partition("/")[2] if slashes else first
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
    """Return (why, the next step) of a refused option, None for a permitted one."""
    plain = name.strip().lower()
    if plain in _LOGIN:
        return "which is a login", "`user` and `password` say it, as references"
    if plain in _SPARKS and where == "options":
        return "which Spark's reader takes for itself", "use `fetch_size`, `query_timeout` and `partitions`"
    if dialect.allowed:
        allowed = ", ".join(sorted(dialect.allowed))
        return None if plain in dialect.allowed else (f"which is not allowed for {subprotocol}", f"allowed: {allowed}")
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


Literals = Literal["text", "ansi", "escape"]


@dataclass(frozen=True)
class JdbcDialect:
    """`url` is a template with {host}, {port} and {database}. `schema` is the one that new tables are in, where the
    database has a usual one. `literals` is how dates and moments stand in SQL: as plain text, as `DATE '...'`, or in
    JDBC's own escapes. `sql` is what SQL parsers call the language. `untyped`: a column may hold any value, so that
    all are read as text. `allowed` are the driver's options that a project may set, in lower case; without any, all
    may be that do not look dangerous. `connect` is the option for the time of a login: its name, and how many of its
    units are a second. `given` are options that are set unless the project sets them. `moment` makes a text of
    a date or a moment in the database, where the driver makes NULL of some. `enforces_keys`: primary keys are unique;
    some databases only write them down."""

    driver: str = ""
    url: str = ""
    port: int = 0
    schema: str = ""
    literals: Literals = "escape"
    sql: str = ""
    untyped: bool = False
    backslash: bool = False
    keys_by_schema: bool = False
    moment: str = "{}"
    allowed: frozenset[str] = frozenset()
    connect: tuple[str, int] | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    enforces_keys: bool = False


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SERVER = "//{host}:{port}/{database}"
_MOMENT_AS_CHAR = "CAST({} AS CHAR)"
"""Zero dates are NULL to the drivers of MySQL and MariaDB."""
_MYSQL_GIVEN = {"useServerPrepStmts": "true", "tinyInt1isBit": "false"}
"""Prepared statements bring floats as they are, others bring six digits."""
_MOMENT = "YYYY-MM-DD HH24:MI:SS.FF9"
_SNOWFLAKE = {
    "TIMESTAMP_NTZ_OUTPUT_FORMAT": _MOMENT,
    "TIMESTAMP_LTZ_OUTPUT_FORMAT": f"{_MOMENT} TZH:TZM",
    "TIMESTAMP_TZ_OUTPUT_FORMAT": f"{_MOMENT} TZH:TZM",
    "TIME_OUTPUT_FORMAT": "HH24:MI:SS.FF9",
    "DATE_OUTPUT_FORMAT": "YYYY-MM-DD",
}
"""Session parameters, by which it prints moments: its own print milliseconds."""
DIALECTS: Mapping[str, JdbcDialect] = {
    "postgresql": JdbcDialect(
        "org.postgresql.Driver", f"jdbc:postgresql:{_SERVER}", 5432, "public", "text", "postgres",
        keys_by_schema=True, connect=("connectTimeout", 1), enforces_keys=True,
        given={"password": "", "sslcert": ""},  # without them the driver takes those of ~/.pgpass and ~/.postgresql
        allowed=_names(
            "ssl sslmode sslrootcert sslcert sslkey sslpassword sslnegotiation channelbinding gssencmode "
            "connecttimeout logintimeout sockettimeout canceltimeout tcpkeepalive applicationname "
            "targetservertype loadbalancehosts hostrecheckseconds currentschema options maxresultbuffer "
            "preparethreshold prefequerymode binarytransfer receivebuffersize sendbuffersize"
        ),
    ),
    "mysql": JdbcDialect(
        "com.mysql.cj.jdbc.Driver", f"jdbc:mysql:{_SERVER}", 3306, "", "text", "mysql", backslash=True,
        connect=("connectTimeout", 1000), given={"useCursorFetch": "true", **_MYSQL_GIVEN},
        moment=_MOMENT_AS_CHAR, enforces_keys=True,
        allowed=_names(
            "sslmode tlsversions tlsciphersuites connecttimeout sockettimeout tcpkeepalive usecursorfetch "
            "useserverprepstmts "
            "tinyint1isbit yearisdatetype zerodatetimebehavior connectiontimezone "
            "forceconnectiontimezonetosession characterencoding usecompression allowpublickeyretrieval "
            "nettimeoutforstreamingresults databaseterm"
        ),
    ),
    "mariadb": JdbcDialect(
        "org.mariadb.jdbc.Driver", f"jdbc:mariadb:{_SERVER}", 3306, "", "text", "mysql", backslash=True,
        connect=("connectTimeout", 1000), given=_MYSQL_GIVEN, moment=_MOMENT_AS_CHAR,
        enforces_keys=True,
        allowed=_names(
            "sslmode serversslcert enabledsslprotocolsuites connecttimeout sockettimeout tcpkeepalive "
            "useserverprepstmts tinyint1isbit yearisdatetype connectiontimezone timezone usecompression "
            "allowpublickeyretrieval"
        ),
    ),
    "oracle": JdbcDialect(
        "oracle.jdbc.OracleDriver", "jdbc:oracle:thin:@//{host}:{port}/{database}", 1521, "", "ansi", "oracle",
        connect=("oracle.net.CONNECT_TIMEOUT", 1000), given={"oracle.jdbc.mapDateToTimestamp": "true"},
        allowed=_names(
            "oracle.net.connect_timeout oracle.net.outbound_connect_timeout oracle.jdbc.readtimeout "
            "oracle.net.ssl_server_dn_match oracle.net.ssl_server_cert_dn oracle.net.ssl_version "
            "oracle.net.wallet_location oracle.net.tns_admin oracle.net.keepalive oracle.net.encryption_client "
            "oracle.net.encryption_types_client oracle.net.crypto_checksum_client "
            "oracle.net.crypto_checksum_types_client oracle.jdbc.mapdatetotimestamp "
            "oracle.jdbc.defaultrowprefetch oracle.jdbc.timezoneasregion v$session.program "
            "javax.net.ssl.truststore javax.net.ssl.truststorepassword javax.net.ssl.truststoretype"
        ),
    ),
    "sqlserver": JdbcDialect(
        "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        "jdbc:sqlserver://{host}:{port};databaseName={database}", 1433, "dbo", "text", "tsql",
        connect=("loginTimeout", 1), enforces_keys=True,
        allowed=_names(
            "databasename database encrypt trustservercertificate hostnameincertificate servercertificate truststore "
            "truststorepassword truststoretype instancename applicationname applicationintent logintimeout "
            "sockettimeout querytimeout locktimeout multisubnetfailover authentication integratedsecurity "
            "authenticationscheme domain packetsize responsebuffering selectmethod sendtimeasdatetime"
        ),
    ),
    "db2": JdbcDialect(
        "com.ibm.db2.jcc.DB2Driver", f"jdbc:db2:{_SERVER}", 50000, "", "text", "", connect=("loginTimeout", 1),
        allowed=_names(
            "sslconnection ssltruststorelocation ssltruststorepassword ssltruststoretype sslcertlocation "
            "sslversion securitymechanism logintimeout commandtimeout blockingreadconnectiontimeout "
            "currentschema clientapplicationname clientprogramname retrievemessagesfromserverongetmessage"
        ),
    ),
    "snowflake": JdbcDialect(
        "net.snowflake.client.jdbc.SnowflakeDriver", "jdbc:snowflake://{host}/?db={database}", 443, "PUBLIC", "text",
        "snowflake", connect=("loginTimeout", 1), given=_SNOWFLAKE,
        allowed=_names(
            "db database schema warehouse role authenticator token private_key_file private_key_pwd "
            "private_key_file_pwd logintimeout networktimeout querytimeout client_session_keep_alive application "
            "timezone"
        ),
    ),
    "h2": JdbcDialect(
        "org.h2.Driver", "jdbc:h2:tcp:" + _SERVER, 9092, "PUBLIC", "text", "", enforces_keys=True,
        allowed=_names("mode ifexists access_mode_data schema database_to_upper case_insensitive_identifiers "
                       "network_timeout time_zone"),
    ),
    "derby": JdbcDialect(
        "", f"jdbc:derby:{_SERVER}", 1527, "APP", "escape", "", enforces_keys=True,
        allowed=_names("create ssl territory"),
    ),
    "sqlite": JdbcDialect(
        "org.sqlite.JDBC", "jdbc:sqlite:{database}", 0, "main", "text", "sqlite", untyped=True,
        allowed=_names("busy_timeout open_mode"),
    ),
}  # fmt: skip
FILE_OPTIONS = _names(
    "sslrootcert sslcert sslkey sslpassword serversslcert servercertificate truststore truststorepassword "
    "truststoretype javax.net.ssl.truststore javax.net.ssl.truststorepassword javax.net.ssl.truststoretype "
    "oracle.net.wallet_location oracle.net.tns_admin ssltruststorelocation ssltruststorepassword ssltruststoretype "
    "sslcertlocation private_key_file private_key_pwd private_key_file_pwd authenticator authentication "
    "authenticationscheme integratedsecurity securitymechanism gssencmode"
)
"""Allowed options that name files of this machine, or log in as its account: of instep.yml only."""
UNKNOWN = JdbcDialect()


def dialect_of(subprotocol: str) -> JdbcDialect:
    """Return what is known of the databases of this subprotocol."""
    return DIALECTS.get(subprotocol.lower(), UNKNOWN)
