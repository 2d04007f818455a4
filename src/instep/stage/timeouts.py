"""Timeouts for servers that accept a connection and stay silent.

Keepalives find out that a machine is gone. A process that hangs, or a balancer that has forgotten the connection, still
acknowledges them: only a clock of our own ends such a wait. libpq gets the same for sources and destinations.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator
from functools import lru_cache
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from instep.loopback import is_near

if TYPE_CHECKING:
    import psycopg


T = TypeVar("T")
SILENT = "no word from the server for"
KEEPALIVES = {"idle": 60, "interval": 10, "count": 6}
"""Seconds, and how often: a machine that is gone is found out after two minutes."""
LIBPQ = {**{f"keepalives_{k}": v for k, v in KEEPALIVES.items()}, "tcp_user_timeout": 120_000}
"""The same as libpq's keywords, and for what was sent."""


class Silence(Exception):
    """The server has said nothing for so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"{SILENT} {seconds:g} s")


class CallTimeout:
    """Makes blocking calls of a driver that has no clock of its own, one at a time, and waits `seconds` (0: for ever)
    for each of them, counted anew whenever `restart` is called.

    Each runs on a thread of this object. Nobody can end it: after a Silence what it uses is `broken`, stays with that
    thread, and may be neither used nor closed by others.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.broken = seconds, False
        self._work: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._since = 0.0

    def call(self, act: Callable[[], T]) -> T:
        """Return or raise what `act` does; raises Silence."""
        if not self.seconds:
            return act()
        if self._thread is None:
            self._thread = threading.Thread(target=_serve, args=(self._work,), name="call timeout", daemon=True)
            self._thread.start()
        call = _Call(act)
        self.restart()
        self._work.put(call)
        try:
            while not call.done.wait(max(0.0, self._since + self.seconds - time.monotonic())):
                if time.monotonic() - self._since >= self.seconds:
                    raise Silence(self.seconds)
        except BaseException:
            self.broken = True
            raise
        if call.error is not None:
            raise call.error
        answer: T = call.answer
        return answer

    def each(self, items: Generator[T, None, None]) -> Generator[T, None, None]:
        """Yield the items, each made by a call."""
        end = object()
        try:
            while (item := self.call(lambda: next(items, end))) is not end:
                yield item  # type: ignore[misc]
        finally:
            self._finish(items.close)

    def restart(self) -> None:
        """Restart the clock: the server has sent or taken something."""
        self._since = time.monotonic()

    def close(self, last: Callable[[], object]) -> None:
        """Call `last` and end the thread; if that is stuck, it does so itself, should it ever be free."""
        try:
            self._finish(last)
        finally:
            self._work.put(None)

    def _finish(self, act: Callable[[], object]) -> None:
        if self.broken:
            self._work.put(_Call(act))
        else:
            act()


class _Call:
    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act
        self.done = threading.Event()
        self.answer: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.answer = self._act()
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()


def _serve(work: SimpleQueue[_Call | None]) -> None:
    while (call := work.get()) is not None:
        call.run()


MOST = 1 << 30
"""Bytes that one answer may have that is held in memory as a whole: a catalog, not the rows of tables."""


@lru_cache
def timed_connection(seconds: float) -> type[psycopg.Connection[Any]]:
    """Return psycopg's connection class, which raises OperationalError and closes when the server is silent for this
    long or sends more than MOST at once. Its login ends in time, whatever the server makes this side compute; each
    address of a host has a time of its own."""
    import psycopg

    logins = threading.local()

    class TimedConnection(psycopg.Connection[Any]):
        @classmethod
        def connect(cls, conninfo: str = "", **more: Any) -> Any:
            limit = float(psycopg.conninfo.conninfo_to_dict(conninfo).get("connect_timeout") or 0)
            timeout = CallTimeout(limit and limit + _GRACE)

            def login() -> Any:
                logins.next = timeout.restart
                return super(TimedConnection, cls).connect(conninfo, **more)

            try:
                return timeout.call(login)
            except Silence:
                raise psycopg.OperationalError(f"{ENDLESS} {limit:g} s") from None
            finally:
                timeout.close(lambda: None)

        @classmethod
        def _connect_gen(cls, *arguments: Any, **more: Any) -> Any:
            """Connect to one address: psycopg calls this for each."""
            logins.next()
            return super()._connect_gen(*arguments, **more)

        def wait(self, gen: Any, *arguments: Any, **more: Any) -> Any:
            return super().wait(_steps_within(gen, seconds, self), *arguments, **more)

    return TimedConnection


ENDLESS = "the login was not finished within"
_GRACE = 2.0
"""Seconds that a driver's own clock, which says more, comes before ours."""


def call_within(seconds: float, act: Callable[[], T], late: Callable[[T], object] = lambda answer: None) -> T:
    """Return one call, as `CallTimeout` makes it; raises Silence. `late` is given what comes after that: a connection
    that nobody waits for has to be closed."""
    timeout, answers = CallTimeout(seconds), list[T]()

    def acted() -> T:
        answers.append(act())
        return answers[0]

    try:
        return timeout.call(acted)
    finally:
        timeout.close(lambda: [late(answer) for answer in answers if timeout.broken])


def _steps_within(gen: Any, seconds: float, connection: psycopg.Connection[Any]) -> Generator[Any, Any, Any]:
    """Yield the same steps; whoever waits tells at least ten times a second whether something is ready."""
    from psycopg import OperationalError

    since, steps, before = time.monotonic(), 0, 0
    try:
        step = next(gen)
        while True:
            ready = yield step
            now = time.monotonic()
            if ready:
                since, steps = now, steps + 1
                if steps == _FEW:
                    before = _received(connection)
                elif steps % _FEW == 0 and _received(connection) - before > MOST:
                    connection.close()
                    raise OperationalError(f"the server's answer has no end: it was cut off after {MOST >> 20} MB")
            elif seconds and now - since >= seconds:
                connection.close()
                raise OperationalError(str(Silence(seconds)))
            step = gen.send(ready)
    except StopIteration as end:
        return end.value


_FEW = 16
_BYTES_RECEIVED = 128
"""Its place in `tcp_info` of Linux."""


def _received(connection: psycopg.Connection[Any]) -> int:
    """Return bytes on this connection; 0 where nobody counts them."""
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            info = same.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED + 8)
        return int(struct.unpack_from("=Q", info, _BYTES_RECEIVED)[0])
    except (OSError, AttributeError, struct.error):
        return 0


def own_login(password: str, certificate: str) -> dict[str, str]:
    """Return libpq's keywords of a login without what it finds by itself: PGPASSWORD, ~/.pgpass and the certificate in
    ~/.postgresql are this account's, and whoever names a server must not have them sent there."""
    return {
        "password": password,
        "passfile": _NO_FILE,
        **({} if certificate else {"sslcertmode": "disable"}),
    }


_NO_FILE = f"{os.devnull}/none"
"""A file that cannot be: libpq takes an empty name for its own, and warns of what is no file."""
IN_CLEAR = "server requested a cleartext password"
_NO_TLS = "does not support SSL"


def proof_of_password(sslmode: str, host: str) -> str:
    """Return libpq's `require_auth`: over a line that others may read, a server that asks for the password itself,
    and not for a proof of it, does not get it. Nobody reads required TLS, nor traffic on this machine."""
    return "" if sslmode.startswith(("require", "verify")) or is_near(host) else "!password"


def opened(info: str, open: Callable[[str], T]) -> T:
    """Return what `open` makes of libpq's keywords, and raises. A server that asks for the password itself over a
    line without TLS is asked again over TLS alone, and gets it there; without TLS the first refusal is final."""
    try:
        return open(info)
    except Exception as error:
        secret = _over_tls(info) if IN_CLEAR in str(error) else ""
        if not secret:
            raise
        try:
            return open(secret)
        except Exception as other:
            if _NO_TLS in str(other):
                raise error from None
            raise


def _over_tls(info: str) -> str:
    """Return keywords that permit sending the password; "" for those that refuse TLS."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    options = conninfo_to_dict(info)
    if options.pop("sslmode", "") == "disable":
        return ""
    options.pop("require_auth", None)
    return make_conninfo("", **{**options, "sslmode": "require"})
