"""`instep server`: the page and the API over this project, with a worker beside it; `instep keys` and `instep audit`:
who may call it and what was done.

A worker beside a server, in its process: it watches from a thread, and its lanes are processes of their own.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from instep.cli.arguments import Grace, Lanes, Limit, examples
from instep.cli.backend import open_backend
from instep.cli.commands.serve.log_options import LogFormat, LogLevel
from instep.cli.context import confirm, emit, fail, open_app, options, say
from instep.errors import Blocked, InstepError, NotFound, SetupError
from instep.loopback import is_loopback
from instep.operations.immediate.govern import CreateKeyRequest, RevokeKeyRequest, RotateKeyRequest
from instep.operations.queries.govern import GetKey, ListKeys

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.bootstrap import App
    from instep.cli.screen import Screen
    from instep.control.immediate.govern import IssuedKey
    from instep.store.server.api_keys import ApiKey
    from instep.worker.worker import JobWorker


_log = logging.getLogger(__name__)
LOOK = 1.0
"""Seconds between two looks at the file."""


class FileFollower:
    """Looks at the file of an open project from a thread until the block ends."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="instep file", daemon=True)

    def _run(self) -> None:
        while not self._ending.wait(LOOK):
            try:
                if wrong := self._app.refresh():
                    _log.warning("%s", wrong)
            except Exception:  # the thread goes on: nobody else would look
                _log.exception("the project file was not read")

    def __enter__(self) -> FileFollower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()


ADMIN_KEY_FILE = "admin.key"
POLL = 0.2
"""Seconds between two looks at an empty queue: behind an API somebody waits for most of what comes."""
keys = typer.Typer(
    help="Create, rotate and revoke API keys; set passwords for the web page.",
    epilog=examples("instep keys create ci --role operator"),
    no_args_is_help=True,
)
audit = typer.Typer(
    help="List and check the audit log of the API.", epilog=examples("instep audit list"), no_args_is_help=True
)
KeyId = Annotated[str, typer.Argument(help="An API key's name or id (k-...).")]
Days = Annotated[
    int | None, typer.Option("--days", min=1, max=3650, help="Days until it expires; the default is never.")
]


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("instep server --with-worker", "instep server --host 0.0.0.0 --behind-proxy 10.0.0.7"))(
        server
    )
    app.add_typer(keys, name="keys")
    app.add_typer(audit, name="audit")


def server(
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0 takes any free one.")
    ] = 8321,
    behind_proxy: Annotated[
        str, typer.Option("--behind-proxy", help="Addresses of the proxies that terminate TLS, separated by commas.")
    ] = "",
    rate: Annotated[int, typer.Option("--rate", min=1, help="Requests per key and minute.")] = 600,
    with_worker: Annotated[bool, typer.Option("--with-worker", help="Also run queued and scheduled jobs.")] = False,
    lanes: Lanes = 2,
    grace: Grace = 60,
    insecure_dev: Annotated[
        bool,
        typer.Option(
            "--insecure-dev",
            help="For trying out only: secrets are encrypted with a publicly known master key, and API keys may "
            "travel without TLS.",
        ),
    ] = False,
    log_format: LogFormat = "auto",
    log_level: LogLevel = "info",
) -> None:
    """Serve the web page, the API and a Fivetran-compatible API.

    The first start creates an admin key: it is shown once on a terminal, otherwise written to .instep/admin.key. A
    terminal is also shown a link that signs in to the page once. The first SIGTERM or Ctrl-C lets requests and running
    jobs end; the second returns the jobs to the queue.
    """
    check_reach(host, behind_proxy, insecure_dev)
    opener = partial(_open_server, options.project.resolve(), insecure_dev)
    place = ListenAddress(host, port, behind_proxy, rate)
    serve(opener, place, LogOptions(log_format, log_level), (lanes, grace) if with_worker else None, _first_key)


@dataclass(frozen=True)
class ListenAddress:
    """The address of a server, the proxies in front of it, and the requests that each key has a minute."""

    host: str
    port: int
    behind_proxy: str = ""
    rate: int = 600


class LogOptions(NamedTuple):
    """The form of a server's log, and its least level."""

    format: LogFormat
    level: LogLevel


def _open_server(folder: Path, insecure_dev: bool) -> App:
    from instep.bootstrap import open_server

    return open_server(folder, insecure_dev=insecure_dev)


def serve(
    opener: Callable[[], App],
    place: ListenAddress,
    log_options: LogOptions,
    worker: tuple[int, float] | None,
    begin: Callable[[App, str], None],
    end: Callable[[App, Sequence[str]], None] = lambda *_: None,
) -> None:
    """Serve an open project until a signal comes. `worker`: the lanes and the grace time of one beside it. `begin` is
    called with the address once it listens, `end` when it does not any more, with the tokens of the sessions that began
    by a link here. Raises SetupError where the extra `server`
    is not installed."""
    try:
        import uvicorn

        from instep.server.app import create_app
        from instep.server.protocol import IDLE_SECONDS, TimedProtocol
        from instep.server.rates import Rates
    except ModuleNotFoundError as error:
        raise SetupError(f"{error.name} is not installed", hint="pip install 'instep[server]'") from error
    from instep.logs import LogSettings, configure, logged

    logs = LogSettings(log_options.format, log_options.level)
    configure(logs)
    with opener() as app, listening(place.host, place.port) as taken:
        made = create_app(app, rates=Rates(place.rate), secure=bool(place.behind_proxy))
        config = uvicorn.Config(
            made,
            http=TimedProtocol,
            ws="none",
            timeout_keep_alive=IDLE_SECONDS,
            server_header=False,
            timeout_graceful_shutdown=5,
            log_config=None,
            proxy_headers=bool(place.behind_proxy),
            forwarded_allow_ips=place.behind_proxy or None,
        )
        beside = _worker(partial(logged, logs, opener), *worker) if worker else None
        # Ending the event loop, a signal is sent on to us: the worker is then asked to stop.
        with stopping(beside.stop if beside else _on_signal), beside or nullcontext(), FileFollower(app):
            begin(app, f"http://{_shown(place.host)}:{taken.getsockname()[1]}")
            try:
                uvicorn.Server(config).run(sockets=[taken])
            finally:
                end(app, made.state.server.linked)
    say("the server has stopped")


def _on_signal() -> None:
    """No-op: the event loop was ended by the same signal, so there is nothing else to stop."""


def _worker(opener: Callable[[], App], lanes: int, grace: float) -> EmbeddedWorker:
    from instep.logs import log_info
    from instep.worker.worker import JobWorker, WorkerLimits

    return EmbeddedWorker(lambda: JobWorker(opener, WorkerLimits(lanes=lanes, grace=grace, poll=POLL), log_info))


def check_reach(host: str, behind_proxy: str, insecure_dev: bool) -> None:
    """Raise Blocked for an address that others reach without TLS in between, and for proxies that are not addresses."""
    for proxy in filter(None, map(str.strip, behind_proxy.split(","))):
        try:
            everyone = not ipaddress.ip_network(proxy).prefixlen
        except ValueError:
            everyone = True
        if everyone:
            raise Blocked(
                f"--behind-proxy: {proxy} is not the address or the network of a proxy",
                hint="name the proxy's address, for example 10.0.0.7: its X-Forwarded-For is trusted",
            )
    if is_loopback(host.strip("[]")) or behind_proxy or insecure_dev:
        return
    raise Blocked(
        f"{host} accepts requests from other machines, and API keys would travel unencrypted",
        hint="put a proxy that terminates TLS in front of it and name it with --behind-proxy, or listen on 127.0.0.1",
    )


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; InstepError if the address cannot be had."""
    plain = host.strip("[]")
    try:
        taken = socket.create_server((plain, port), family=socket.AF_INET6 if ":" in plain else socket.AF_INET)
    except OSError as error:
        why = (error.strerror or str(error)).split(" (while attempting", 1)[0]
        port_taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        hint = f"choose another port: --port {port + 1}" if port_taken else "give an address of this machine: --host"
        raise InstepError(f"cannot listen on {host} port {port}: {why}", hint=hint) from error
    # Else the body of an answer waits for the acknowledgement of its head, for 40 ms. Connections inherit it.
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return taken


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _first_key(app: App, address: str) -> None:
    """Make the first key of all, and hand it to the terminal, or to a file where there is none: what a service writes
    goes to logs, which others read and keep."""
    from instep.control.resources.api_keys import first_admin
    from instep.control.resources.sign_in import make_link
    from instep.private import write_private

    file = app.project.root / ".instep" / ADMIN_KEY_FILE
    shown = sys.stderr.isatty()
    with app.store.transaction():  # a key that nobody was told is none
        issued = first_admin(app.store)
        if issued is not None and not shown:
            write_private(file, f"{issued.secret}\n")
    if issued is not None and shown:
        say(f"admin API key {issued.key.id}, shown this once:")
        typer.echo(issued.secret, err=True)
        say("sign in to the page with it, or by this link, which works once within 15 minutes:")
        typer.echo(f"{address}/sign-in/once/{make_link(app.store, issued.key)}", err=True)
    elif issued is not None:
        say(
            f"admin API key {issued.key.id} is in {file}, which only this account can read: "
            "copy the key and delete the file"
        )
    say(f"listening on {address} (the page; the API is described at /api/v1/docs)")


@keys.command("list", epilog=examples("instep keys list --output json"))
def list_keys() -> None:
    """List all API keys with their expiry and last use."""
    with open_backend() as backend:
        api_keys, now = backend.items(ListKeys()), datetime.now(UTC)
    data = {"keys": [asdict(key) for key in api_keys]}
    emit(data, lambda out: _show_keys(out, [(k, k.lives(now)) for k in api_keys]))


def _show_keys(out: Screen, api_keys: list[tuple[ApiKey, bool]]) -> None:
    from rich.table import Table as Grid

    from instep.cli.screen import cell

    if not api_keys:
        out.print("no API keys; `instep server` creates the first one")
        return
    head = ("id", "name", "role", "groups", "state", "secrets", "last used")
    grid = Grid(*head, box=None, header_style="bold", padding=(0, 2, 0, 0))
    for key, lives in api_keys:
        state = "revoked" if key.ended else "session" if key.is_of_page else "live" if lives else "expired"
        used = max((s.last_used for s in key.secrets if s.last_used), default=None)
        last = f"{used:%Y-%m-%d %H:%M} UTC" if used else "never"
        starts = " ".join(s.prefix for s in key.secrets)
        row = (key.id, key.name, key.role, ", ".join(key.groups) or "all", state, starts, last)
        grid.add_row(*map(cell, row))
    out.print(grid)


@keys.command(
    epilog=examples("instep keys create ci --role operator", "instep keys create eu --role viewer --group eu")
)
def create(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    role: Annotated[str, typer.Option("--role", help="viewer, operator, approver or admin.")],
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Only connections with this tag; repeatable.")
    ] = None,
    days: Days = None,
) -> None:
    """Create an API key; its secret is printed once."""
    with open_backend() as backend:
        request = CreateKeyRequest(name=name, role=role, groups=tuple(group or ()), days=days)  # type: ignore[arg-type]
        issued = backend.operations.perform(request)
    _show_issued(issued)


@keys.command(epilog=examples("instep keys rotate ci --overlap-hours 24"))
def rotate(
    key: KeyId,
    overlap_hours: Annotated[
        int, typer.Option("--overlap-hours", min=0, max=2160, help="Hours that the old secret still works.")
    ] = 168,
    days: Days = None,
) -> None:
    """Give an API key a new secret, which is printed once."""
    with open_backend() as backend:
        request = RotateKeyRequest(key=_key_id(backend, key), overlap_hours=overlap_hours, days=days)
        issued = backend.operations.perform(request)
    _show_issued(issued)


@keys.command(epilog=examples("instep keys revoke ci"))
def revoke(key: KeyId) -> None:
    """Revoke an API key at once."""
    with open_backend() as backend:
        id = _key_id(backend, key)
        name = backend.query(GetKey(id)).name
        if not confirm(f"Revoke the API key {name!r} ({id})?"):
            raise Blocked("nothing was revoked", hint="confirm, or pass --yes")
        ended = backend.operations.perform(RevokeKeyRequest(key=id)).key
    emit(asdict(ended), lambda out: out.write(f"revoked {name} ({id})"))


def _key_id(backend: Backend, key: str) -> str:
    """Return the id of a key that is given by its id, or by its name if it is not revoked."""
    if re.fullmatch(r"k-[0-9a-f]{12}", key):
        return key
    found: list[str] = [one.id for one in backend.items(ListKeys()) if one.name == key and not one.ended]
    if found:
        return found[0]
    raise NotFound(f"no API key is called {key!r}", hint="see `instep keys list`")


@keys.command(epilog=examples("instep keys password ben", "instep keys password --server URL"))
def password(
    key: Annotated[str | None, typer.Argument(help="An API key's name or id (k-...); the default is your own.")] = None,
) -> None:
    """Set the password that signs in to the web page with the key's name.

    Prompts for the password; without a terminal it is read from standard input. To change your own you enter the old
    one first (on a line of its own).
    """
    from instep.operations.immediate.people import ChangePasswordRequest, SetPasswordRequest

    with open_backend() as backend:
        id = _key_id(backend, key) if key else ""  # before anybody types a password in vain
        request = (
            SetPasswordRequest(id, _typed("New password", again=True))
            if id
            else ChangePasswordRequest(_typed("Old password"), _typed("New password", again=True))
        )
        done = backend.operations.perform(request)
    emit(asdict(done), lambda out: out.write(f"{done.name} ({done.key}) has a new password; its other sessions ended"))


def _typed(what: str, *, again: bool = False) -> str:
    """Return text that is typed unseen, or the next line of an input that is no terminal."""
    if sys.stdin.isatty():
        return str(typer.prompt(what, hide_input=True, confirmation_prompt=again, err=True))
    return sys.stdin.readline().rstrip("\r\n")


@keys.command(epilog=examples("instep keys link ben"))
def link(key: KeyId) -> None:
    """Make a link that signs in to the web page as this key, once."""
    from instep.operations.immediate.people import MakeSignInLinkRequest

    with open_backend() as backend:
        made = backend.operations.perform(MakeSignInLinkRequest(_key_id(backend, key)))
    path = f"/sign-in/once/{made.token}"
    data = {"key": made.key, "path": path, "expires": made.expires}
    emit(data, lambda out: out.write(f"{options.server.rstrip('/')}{path}"))


def _show_issued(issued: IssuedKey) -> None:
    secret = issued.secret_once()

    def show(out: Screen) -> None:
        out.write(f"{issued.key.id}  {issued.key.name} ({issued.key.role}); its secret, shown this once:")
        out.write(secret)

    emit({"key": asdict(issued.key), "secret": secret}, show)


@audit.command(epilog=examples("instep audit check"))
def check(
    head: Annotated[str, typer.Option("--head", help="A digest that was noted earlier; it must be in the log.")] = "",
) -> None:
    """Check that the audit log is complete and unchanged.

    Each entry holds the digest of the one before it. Exits with 1 if the chain is broken.
    """
    with open_app() as app:
        verdict = app.store.audit.check()
        known = not head or app.store.audit.holds(head)
    broken = verdict.broken or ("" if known else f"no entry has the digest {head}: entries at the end were removed")
    data = {**asdict(verdict), "broken": broken}
    text = f"broken: {broken}" if broken else f"{verdict.entries:,} entries are intact; the last one is {verdict.head}"
    emit(data, lambda out: out.write(text, "red" if broken else ""))
    if broken:
        raise fail(1)


@audit.command("list", epilog=examples("instep audit list --limit 50"))
def list_audit(limit: Limit = 20) -> None:
    """List the latest entries, newest first."""
    with open_app() as app:
        entries = app.store.audit.page(limit=limit)

    def show(out: Screen) -> None:
        for e in entries:
            out.write(f"{e.number:>6}  {e.at:%Y-%m-%d %H:%M:%S}  {e.actor}  {e.action}  {e.target}")

    emit({"entries": [asdict(e) for e in entries]}, show)


AGAIN = 5.0
"""Seconds until a worker that has failed is begun again."""


class EmbeddedWorker:
    """Begun again when it fails, until the block ends; then running jobs have the worker's grace time."""

    def __init__(self, make: Callable[[], JobWorker]) -> None:
        self._make = make
        self._ending = threading.Event()
        self._now: JobWorker | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="instep worker", daemon=True)

    def _run(self) -> None:
        while not self._ending.is_set():
            worker = self._make()
            with self._lock:
                self._now = worker
            if self._ending.is_set():
                return
            try:
                worker.run()
            except Exception:
                _log.exception("the worker has failed; it is started again in %.0f s", AGAIN)
                self._ending.wait(AGAIN)

    def stop(self) -> None:
        """Start no further job; on the second call, give running jobs back."""
        self._ending.set()
        with self._lock:
            if self._now is not None:
                self._now.stop()

    def __enter__(self) -> EmbeddedWorker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ending.is_set():
            self.stop()
        self._thread.join()


@contextmanager
def stopping(ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` on SIGTERM and Ctrl-C within the block, also on those that an event loop sends on at its end."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        ask()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
