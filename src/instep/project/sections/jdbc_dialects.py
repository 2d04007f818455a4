"""What is known of databases by the subprotocol of their URLs: nothing here is needed, all of it spares settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Literals = Literal["text", "ansi", "escape"]


@dataclass(frozen=True)
class JdbcDialect:
    """`url` is a template with {host}, {port} and {database}. `schema` is the one that new tables are in, where the
    database has a usual one. `literals` is how dates and moments stand in SQL: as plain text, as `DATE '...'`, or in
    JDBC's own escapes. `sql` is what SQL parsers call the language. `untyped`: a column may hold any value, so that
    all are read as text. `allowed` are the driver's options that a project may set, in lower case; without any, all
    may be that do not look dangerous. `connect` is the option for the time of a login: its name, and how many of its
    units are a second. `given` are options that are set unless the project sets them. `moment` makes a text of
    a date or a moment in the database, where the driver makes NULL of some."""

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
        keys_by_schema=True, connect=("connectTimeout", 1),
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
        moment=_MOMENT_AS_CHAR,
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
        connect=("loginTimeout", 1),
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
        "org.h2.Driver", "jdbc:h2:tcp:" + _SERVER, 9092, "PUBLIC", "text", "",
        allowed=_names("mode ifexists access_mode_data schema database_to_upper case_insensitive_identifiers "
                       "network_timeout time_zone"),
    ),
    "derby": JdbcDialect(
        "", f"jdbc:derby:{_SERVER}", 1527, "APP", "escape", "", allowed=_names("create ssl territory"),
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
