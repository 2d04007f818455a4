"""The set-up in the page: from a source to its first plan, left and taken up at any step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from govern_world import check_pages, do_job, job_of, send, server_site
from web_world import Site, needs_browser, served, tab

from instep.operations.values import ObjectKind
from instep.project.documents import section_of
from instep.server.problems import ApiProblem
from instep.server.web.section_forms import form_of, types_of

EMPTY = "engine: local\nshelves: [.]\n"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Site]:
    """A server without a source, beside the file of a shop."""
    with server_site(tmp_path, EMPTY) as page:
        yield page


NEW = "/setup/sources/~new"


def source_of(shop: Site, name: str = "shop", path: str = "shop.db", role: str = "admin") -> Any:
    """Send the form of a new source."""
    return send(shop, NEW, {"type": "sqlite", "name": name, "path": path}, role)


def test_where_nothing_is_yet_the_demo_is_offered(shop: Site) -> None:
    at_home = shop.client()
    at_home.base_url = "http://127.0.0.1"  # type: ignore[assignment]
    at_home.cookies.set("instep_session", shop.token("admin"))
    assert "instep init --demo" in at_home.get("/setup").text
    assert "instep init --demo" not in shop.get("/setup"), "on another machine"
    assert "instep init --demo" not in shop.get("/setup", "operator")


def test_one_button_makes_the_demo_and_leads_to_its_first_plan(shop: Site) -> None:
    assert "Make the demo" in shop.get("/setup")
    assert "Make the demo" not in shop.get("/setup", "operator")
    assert shop.post("/setup/demo", "operator").status_code == 403
    planned = shop.post("/setup/demo").headers["location"]
    assert planned.startswith("/setup/connections/demo?plan=")
    assert do_job(shop).kind == "make_demo"
    assert do_job(shop).kind == "plan"
    text = shop.get(planned)
    assert "What the first sync does" in text
    assert "main.sale" in text
    assert job_of(shop, "demo", "sync").result["applied"]
    assert "main.sale" in shop.get("/connections/demo")
    assert "Make the demo" not in shop.get("/setup")
    assert shop.post("/setup/demo").status_code == 409


def test_the_whole_way_to_the_first_plan(shop: Site) -> None:
    made = source_of(shop)
    assert made.headers["location"] == "/setup/sources/shop"
    tested = shop.post("/setup/sources/shop/test").headers["location"]
    assert "No worker is running" in shop.get(tested)
    assert do_job(shop).result["ok"]
    assert "✓ ready" in shop.get(tested)
    looked = shop.post("/setup/sources/shop/discover", matching="main.i*\nre:main\\.(per|x{1,2}).*").headers["location"]
    do_job(shop)
    text = shop.get(looked)
    assert "<strong>2</strong> of 2 tables match" in text
    assert 'name="include" value="main.i*"' in text
    lake = shop.post("/setup/destinations/~new", type="iceberg", name="lake", back="/setup/connection?source=shop")
    assert lake.headers["location"] == "/setup/connection?source=shop&destination=lake"
    form = {
        "name": "own",
        "source": "shop",
        "destination": "lake",
        "policy": "approve",
        "include": "main.i*",
        "exclude": "",
        "tags": "a, b",
        "sync": "every 1h",
    }
    shown = shop.post("/setup/connection", **form, button="preview").text
    assert "connections:\n  own:\n    source: shop" in shown
    assert shop.post("/setup/connection", **form, button="create").headers["location"] == "/setup/connections/own"
    shop.app.refresh()
    assert "own" in shop.get("/setup"), "it can be taken up again"
    planned = shop.post("/setup/connections/own/plan").headers["location"]
    do_job(shop)
    text = shop.get(planned)
    assert "main.item" in text
    assert "main.person" not in text
    assert shop.app.objects.get("connection", "own").spec["schedule"] == {"sync": "every 1h"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"type": "sqlite", "name": "shop", "path": "/etc/passwd"}, "shelf"),
        ({"type": "sqlite", "name": "shop"}, "path"),
        ({"type": "sqlite", "name": "9 lives", "path": "shop.db"}, "a name starts with a letter"),
        (
            {"type": "postgres", "name": "pg", "host": "db.example", "port": "many", "database": "d", "user": "u"},
            "port",
        ),
        ({"type": "postgres", "name": "pg", "database": "d", "user": "u", "tls": "mode: [x"}, "neither YAML nor JSON"),
    ],
)
def test_what_is_wrong_is_told_and_what_was_typed_stays(shop: Site, fields: dict[str, str], why: str) -> None:
    answer = send(shop, NEW, fields)
    assert answer.status_code == 422
    assert why in answer.text
    assert f'value="{fields["name"]}"' in answer.text or "neither" in why
    assert list(shop.app.objects.page("source")) == []


def test_a_secret_is_sealed_and_shown_nowhere(shop: Site) -> None:
    fields = {"type": "postgres", "name": "pg", "host": "db.example", "database": "d", "user": "u"}
    fields["password"] = "s3cr3t-canary"
    wrong = send(shop, NEW, {**fields, "port": "many"})
    assert wrong.status_code == 422
    made = send(shop, NEW, fields)
    pages = [wrong.text, made.text, shop.get("/setup"), shop.get("/setup/sources/pg"), shop.get("/settings/audit")]
    assert not any("s3cr3t-canary" in one for one in pages)
    assert "******" in shop.get("/setup/sources/pg")
    shop.app.refresh()
    assert shop.app.project.source("pg").password == "s3cr3t-canary"


def test_a_source_that_cannot_be_reached_says_so(shop: Site) -> None:
    source_of(shop, "gone", "gone.db")
    tested = shop.post("/setup/sources/gone/test").headers["location"]
    do_job(shop)
    text = shop.get(tested)
    assert "✗" in text
    assert "gone.db" in text


def test_a_test_by_its_form_leads_to_its_job(shop: Site) -> None:
    source_of(shop)
    for operation in ("test_source", "discover_source"):
        address = shop.post(f"/do/{operation}", name="shop", button="do", back="/setup").headers["location"]
        assert address.startswith("/jobs/j-")
        assert shop.get(address)


def test_who_may_not_is_told_why(shop: Site) -> None:
    assert shop.client("viewer").get("/setup").status_code == 403
    assert "needs the role admin" in shop.get("/setup", "operator")
    assert source_of(shop, role="operator").status_code == 403
    assert shop.client().get("/setup/policies/~new").status_code == 404


KINDS: list[ObjectKind] = ["source", "destination", "channel"]
FORMS = [(kind, one) for kind in KINDS for one in types_of(kind)]


@pytest.mark.parametrize(("kind", "type"), FORMS, ids=[f"{kind}-{type}" for kind, type in FORMS])
def test_each_type_has_a_form_without_what_an_api_may_not_set(kind: ObjectKind, type: str) -> None:
    form = form_of(kind, type)
    names = [one.name for one in (*form.first, *form.more)]
    assert names
    assert len(names) == len(set(names))
    assert not {"python", "environments", "maven"} & set(names)
    assert form.spec({one.name: [""] for one in (*form.first, *form.more)}) == {"type": type}
    assert all(one.label for one in (*form.first, *form.more))


def test_a_form_says_what_its_section_says() -> None:
    form = form_of("source", "files")
    texts = {"path": ["data"], "header": ["no"], "nulls": ["", "NA"], "format": ["csv"], "settle": ["9"]}
    spec = form.spec(texts)
    assert spec == {"type": "files", "path": "data", "header": False, "nulls": ["NA"], "format": "csv", "settle": "9"}
    assert section_of("source", "x", spec)
    assert form.spec({name: _lines(value) for name, value in form.values(spec).items()}) == spec
    kept = form_of("channel", "slack")
    assert kept.values({"type": "slack", "url": "******"}) == {}
    assert kept.spec({"url": [""]}, {"type": "slack", "url": "******"}) == {"type": "slack", "url": "******"}
    with pytest.raises(ApiProblem):
        form_of("source", "none")


def _lines(value: Any) -> list[str]:
    return ["\n".join(value)] if isinstance(value, list) else [str(value)]


@needs_browser
@pytest.mark.server
def test_a_connection_is_set_up_in_a_browser(shop: Site, browser: Any) -> None:
    with served(shop.app) as base, tab(browser, base, shop.token("admin")) as opened:
        shown = opened.open("/setup")
        assert not opened.violations()
        shown.click("h3 >> text=sqlite")
        shown.fill("#name", "shop")
        shown.fill("#field-path", "shop.db")
        shown.click("button:has-text('Save and go on')")
        shown.click("button:has-text('Test')")
        shown.wait_for_selector("text=No worker is running")
        assert not opened.violations()
        do_job(shop)
        shown.wait_for_selector("text=✓ ready")
        shown.click("text=Go on to its tables")
        shown.click("button:has-text('Look')")
        shown.wait_for_selector("text=queued")
        do_job(shop)
        shown.wait_for_selector("text=tables match")
        assert not opened.violations()
        shown.check("[aria-label='Leave out main.person']")
        shown.click("button:has-text('Choose these tables')")
        shown.wait_for_selector("#exclude")
        assert shown.input_value("#exclude") == "main.person"
        shown.click("text=New destination…")
        shown.wait_for_selector("h1:has-text('New destination')")
        shown.fill("#name", "lake")
        shown.click("button:has-text('Save and go on')")
        shown.wait_for_selector("option:has-text('lake (iceberg)')", state="attached")
        shown.fill("#name", "own")
        shown.click("button:has-text('Create the connection')")
        shown.wait_for_selector("text=First plan of own")
        shown.click("button:has-text('Plan')")
        shown.wait_for_selector("text=queued")
        do_job(shop)
        shown.wait_for_selector("text=What the first sync does")
        assert not opened.violations()
    found = shop.app.objects.get("connection", "own").spec
    assert (found["exclude"], found["policy"]) == ({"tables": ["main.person"]}, "approve")


@needs_browser
@pytest.mark.server
@pytest.mark.parametrize("scripts", [True, False])
def test_the_demo_is_made_in_a_browser(shop: Site, browser: Any, scripts: bool) -> None:
    with served(shop.app) as base, tab(browser, base, shop.token("admin"), scripts=scripts) as opened:
        shown = opened.open("/setup")
        shown.click("button:has-text('Make the demo')")
        shown.wait_for_selector("h1:has-text('First plan of demo')")
        do_job(shop)
        do_job(shop)
        if not scripts:
            shown = opened.open("/setup/connections/demo?plan=" + shop.store.jobs.find(kind="plan")[0].id)
        shown.wait_for_selector("pre:has-text('main.sale')")
        assert not scripts or not opened.violations()


@needs_browser
@pytest.mark.server
def test_its_pages_are_accessible_in_both_themes(shop: Site, browser: Any) -> None:
    source_of(shop)
    paths = ["/setup", "/setup/connection?source=shop", "/setup/sources/shop", "/setup/sources/shop/tables"]
    forms = [f"/setup/sources/~new?type={one}" for one in ("postgres", "connector")]
    check_pages(shop, browser, *paths, *forms, "/setup/destinations/~new?type=duckdb")
