"""What a project may tell a driver: no login in a URL, no option that loads code, runs statements or writes files."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import ProjectError, SetupError
from instep.project.sections.jdbc import JdbcJar
from instep.project.sections.jdbc_address import DIALECTS, address, check_options, check_url, dialect_of, properties
from instep.sources.jdbc.config import JdbcConfig

GOOD = [
    "jdbc:postgresql://db.example.com:5432/shop",
    "jdbc:postgresql://a:1,b:2/shop?targetServerType=preferSecondary&sslmode=verify-full",
    "jdbc:mysql://db:3306/shop?sslMode=VERIFY_CA",
    "jdbc:oracle:thin:@//db:1521/SHOP",
    "jdbc:oracle:thin:@db:1521:SHOP",
    "jdbc:oracle:thin:@tcps://db:2484/SHOP?oracle.net.ssl_server_dn_match=true",
    "jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(PROTOCOL=TCPS)(HOST=db)(PORT=2484))(CONNECT_DATA=(SERVICE_NAME=S)))",
    "jdbc:sqlserver://db:1433;databaseName=shop;encrypt=strict",
    "jdbc:db2://db:50000/SHOP:sslConnection=true;currentSchema=S;",
    "jdbc:snowflake://acme.snowflakecomputing.com/?db=SHOP&warehouse=WH",
    "jdbc:derby:memory:shop;create=true",
    "jdbc:sqlite:/data/shop.db",
    "jdbc:monetdb://db:50000/shop?so_timeout=5",
]
BAD = [
    ("a login", "jdbc:postgresql://me:secret@db/shop", "login"),
    ("a user alone", "jdbc:mysql://me@db/shop", "login"),
    ("in percent signs", "jdbc:postgresql://me%3Asecret%40db/shop", "login"),
    ("as an option", "jdbc:postgresql://db/shop?password=secret", "login"),
    ("as an escaped option", "jdbc:postgresql://db/shop?p%61ssword=secret", "login"),
    ("of Oracle", "jdbc:oracle:thin:scott/tiger@//db:1521/SHOP", "login"),
    ("of SQL Server", "jdbc:sqlserver://db;databaseName=shop;userName=me", "login"),
    ("of Db2", "jdbc:db2://db:50000/SHOP:user=me;password=secret;", "login"),
    ("H2's script", "jdbc:h2:mem:x;INIT=RUNSCRIPT FROM 'http://x/y.sql'", "not allowed"),
    ("H2's trace file", "jdbc:h2:tcp://db/x;TRACE_LEVEL_FILE=4", "not allowed"),
    ("a socket factory", "jdbc:postgresql://db/shop?ssl=true&socketFactory=a.B&socketFactoryArg=x", "not allowed"),
    ("a logger's file", "jdbc:postgresql://db/shop?loggerLevel=DEBUG&loggerFile=/tmp/x.jsp", "not allowed"),
    ("MySQL's objects", "jdbc:mysql://db/shop?autoDeserialize=true", "not allowed"),
    ("MySQL's options in its address", "jdbc:mysql://(host=db,autoDeserialize=true)/shop", "in its address"),
    ("a directory", "jdbc:oracle:thin:@ldap://x/cn=o", "directory"),
    ("an unknown driver's class", "jdbc:monetdb://db/shop?callbackClass=a.B", "may load code"),
    ("an unknown driver's escape", "jdbc:monetdb://db/shop?%69nitScript=x", "may load code"),
    ("no URL", "postgresql://db/shop", "not a JDBC URL"),
    ("two lines", "jdbc:postgresql://db/shop%0Ax", "control character"),
]  # fmt: skip


@pytest.mark.parametrize("url", GOOD)
def test_urls_that_are_fine(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(("url", "why"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_urls_that_are_refused_without_showing_them(url: str, why: str) -> None:
    with pytest.raises(ProjectError, match=why) as error:
        check_url(url)
    assert "secret" not in str(error.value)
    assert "tiger" not in str(error.value)


HOSTILE = (
    "socketFactory", "socketFactoryArg", "sslfactory", "sslFactoryArg", "sslhostnameverifier", "sslpasswordcallback",
    "authenticationPluginClassName", "xmlFactoryFactory", "loggerFile", "loggerLevel", "localSocketAddress",
    "jaasLogin",
    "autoDeserialize", "allowLoadLocalInfile", "allowUrlInLocalInfile", "allowLoadLocalInfileInPath",
    "queryInterceptors", "statementInterceptors", "exceptionInterceptors", "connectionLifecycleInterceptors",
    "propertiesTransform", "clientInfoProvider", "serverRSAPublicKeyFile", "trustCertificateKeyStoreUrl", "INIT",
    "TRACE_LEVEL_FILE", "trustManagerClass", "trustManagerConstructorArg", "socketFactoryClass",
    "socketFactoryConstructorArg", "accessTokenCallbackClass", "oracle.net.ldap.security.authentication",
    "oracle.jdbc.provider.password", "traceFile", "traceDirectory", "clientRerouteServerListJNDIName", "tracing",
    "enable_load_extension", "sessionInitStatement", "keytab",
)  # fmt: skip


@pytest.mark.parametrize("subprotocol", [*(n for n, d in DIALECTS.items() if d.allowed), "teradata"])
def test_hostile_options_are_refused_for_every_driver(subprotocol: str) -> None:
    passed = []
    for name in HOSTILE:
        for spelled in (name, name.upper(), f" {name}"):
            try:
                check_options(subprotocol, [spelled])
            except ProjectError:
                continue
            passed.append(name.lower())
    assert passed == []


@pytest.mark.parametrize("name", ["user", "PASSWORD", "Uid", "pwd", "accessToken"])
def test_logins_are_no_options(name: str) -> None:
    for subprotocol in ("postgresql", "sqlserver", "teradata"):
        with pytest.raises(ProjectError, match="`user` and `password`"):
            check_options(subprotocol, [name])


def test_what_is_allowed_is_said() -> None:
    with pytest.raises(ProjectError, match="sslrootcert"):
        check_options("postgresql", ["socketFactory"])
    check_options("postgresql", ["sslMode", "ApplicationName"])
    check_options("teradata", ["TMODE", "CHARSET"])


@given(st.sampled_from(["host", "database"]), st.sampled_from("?&;#%@\\(){} \n\t"), st.text(max_size=5))
def test_no_part_reaches_beyond_its_place(part: str, sign: str, rest: str) -> None:
    values = {"host": "db", "database": "shop", part: f"x{sign}{rest}"}
    with pytest.raises(ProjectError):
        address("jdbc:postgresql://{host}:{port}/{database}", port=1, **values)


@given(st.text(alphabet="abcdefgh.:/@", max_size=12), st.text(alphabet="abc", min_size=1, max_size=5))
def test_a_login_is_found_however_it_is_written(user: str, host: str) -> None:
    for written in (f"//u{user}@{host}/x", f"//{quote(f'u{user}@', safe='')}{host}/x"):
        if "/" not in user:
            with pytest.raises(ProjectError):
                check_url(f"jdbc:mysql:{written}")


TEMPLATES = [
    ("postgresql", "jdbc:postgresql://db:5432/shop"),
    ("oracle", "jdbc:oracle:thin:@//db:1521/shop"),
    ("sqlserver", "jdbc:sqlserver://db:1433;databaseName=shop"),
    ("db2", "jdbc:db2://db:50000/shop"),
    ("snowflake", "jdbc:snowflake://db/?db=shop"),
    ("PostgreSQL", "jdbc:postgresql://db:5432/shop"),
]


@pytest.mark.parametrize(("subprotocol", "url"), TEMPLATES)
def test_templates(subprotocol: str, url: str) -> None:
    assert JdbcConfig.resolved(subprotocol=subprotocol, host="db", database="shop").address == url


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ProjectError, match="`host` is missing"):
        _ = JdbcConfig.resolved(subprotocol="postgresql", database="shop").address
    with pytest.raises(ProjectError, match="no URL is known for `subprotocol: nosuch`"):
        _ = JdbcConfig.resolved(subprotocol="nosuch").address
    with pytest.raises(SetupError, match="which class is the driver"):
        _ = JdbcConfig.resolved(url="jdbc:nosuch:x").login
    with pytest.raises(SetupError, match=r"/no/such\.jar does not exist"):
        _ = JdbcConfig.resolved(subprotocol="sqlite", database="/x.db", jars=(JdbcJar(path="/no/such.jar"),)).login


def test_the_login_is_in_the_properties_alone() -> None:
    config = JdbcConfig.resolved(
        subprotocol="postgresql", host="db", database="shop", user="me", password="canary", options={"ssl": "true"}
    )
    login = config.login
    given = {"connectTimeout": "10", "ssl": "true", "sslcert": ""}
    assert login.properties == {**given, "user": "me", "password": "canary"}
    assert "canary" not in f"{config!r} {login!r} {login.url}"
    assert login.clean("FATAL: canary is wrong") == "FATAL: ****** is wrong"


def test_a_driver_is_given_a_password_where_it_would_look_for_one_of_its_own() -> None:
    """PostgreSQL's driver sends what ~/.pgpass has for a host, and so to every host, unless it is given another."""
    postgres = DIALECTS["postgresql"]
    assert properties(postgres, {}, "u", "", 2)["password"] == ""
    assert properties(postgres, {}, "u", "own", 2)["password"] == "own"
    assert properties(postgres, {}, "u", "", 2)["sslcert"] == ""
    given = properties(postgres, {"sslCert": "/certs/own.crt"}, "u", "", 2)
    assert (given["sslCert"], given.get("sslcert")) == ("/certs/own.crt", None)


def test_what_the_project_sets_wins() -> None:
    mysql = dialect_of("mysql")
    assert properties(mysql, {}, "", "", 2)["connectTimeout"] == "2000"
    said = properties(mysql, {"ConnectTimeout": "5", "TINYINT1ISBIT": "true"}, "", "", 2)
    assert said == {
        "useCursorFetch": "true", "useServerPrepStmts": "true", "ConnectTimeout": "5", "TINYINT1ISBIT": "true"
    }  # fmt: skip


SCHEMAS = [
    ({"subprotocol": "postgresql"}, "public"),
    ({"subprotocol": "oracle", "user": "sales"}, "SALES"),
    ({"subprotocol": "mysql", "database": "shop"}, "shop"),
    ({"subprotocol": "sqlserver", "schemas": ("erp",)}, "erp"),
    ({"url": "jdbc:nosuch:x", "schemas": ("a", "b")}, ""),
]


@pytest.mark.parametrize(("said", "schema"), SCHEMAS)
def test_default_schemas(said: dict[str, object], schema: str) -> None:
    assert JdbcConfig.resolved(**said).default_schema == schema  # type: ignore[arg-type]
