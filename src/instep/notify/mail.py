"""Messages by mail: text and HTML, threaded by change, over SMTP to an address that was judged.

A message as text, and as HTML for mail: one table, styles inline, what is new green and what is removed red.
"""

from __future__ import annotations

import hashlib
import re
import smtplib
import socket
import ssl
import time
from collections.abc import Iterator
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from email.utils import format_datetime

from instep.egress.guard import EgressGuard, EgressRefused, JudgedHost, connect
from instep.egress.http import ended_at
from instep.errors import ConnectError
from instep.notify.channel import NotDelivered
from instep.notify.lines import MessageLine, Tone
from instep.notify.message import Message, as_html, details, headline, shown
from instep.project.sections.channels import EmailChannelSection

_REFERENCES = 20
STEPS = 3
"""The whole conversation may take so many times a channel's timeout."""


class EmailChannel:
    def __init__(self, config: EmailChannelSection, guard: EgressGuard) -> None:
        self._config, self._guard = config, guard

    def payload(self, message: Message) -> str:
        return as_mail(message, self._config.sender, self._config.to).as_string()

    def send(self, message: Message) -> int:
        """Send the mail by the server and return 250. A server that accepts it for some of the addresses has
        accepted it."""
        config, end = self._config, time.monotonic() + STEPS * self._config.timeout
        try:
            with self._server() as server, ended_at(server, end):
                if config.user:
                    server.login(config.user, config.password)
                server.send_message(as_mail(message, config.sender, config.to), config.sender, list(config.to))
        except smtplib.SMTPRecipientsRefused as error:
            code = next((reply[0] for reply in error.recipients.values()), 550)
            raise self._refused(f"no address was accepted ({code})", code) from None
        except smtplib.SMTPResponseException as error:
            what = "the login" if isinstance(error, smtplib.SMTPAuthenticationError) else "the mail"
            raise self._refused(f"{what} was refused ({error.smtp_code})", error.smtp_code) from None
        except ssl.SSLError as error:
            raise self._refused(f"TLS: {getattr(error, 'verify_message', '') or error.reason}", 0) from None
        except (OSError, smtplib.SMTPException) as error:
            raise ConnectError(
                f"{self._place}: {_why(error, time.monotonic() >= end)}", hint="check host, port and tls of the channel"
            ) from None
        return 250

    def _server(self) -> smtplib.SMTP:
        config = self._config
        target = self._guard.target(config.host, config.port)
        if config.tls == "none" and not target.trusted:
            raise EgressRefused(
                f"{config.host} is asked for without TLS", hint="set tls, or list the host under `egress: allow:`"
            )
        context = ssl.create_default_context(cafile=config.ca or None)
        server = _PinnedMailSession(target, config.timeout, context if config.tls == "tls" else None)
        if config.tls == "starttls":
            try:
                server.starttls(context=context)
            except BaseException:
                server.close()
                raise
        return server

    @property
    def _place(self) -> str:
        return f"{self._config.host} port {self._config.port}"

    def _refused(self, why: str, code: int) -> NotDelivered:
        return NotDelivered(f"{self._place}: {why}", code=code, hint="check the channel's settings")


def _why(error: Exception, late: bool) -> str:
    """Return a reason in our words: a server's own may hold anything."""
    if late or isinstance(error, TimeoutError) or "timed out" in str(error):
        return "it does not answer in time"
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return "it ended the connection"
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return "it does not offer what the channel asks for (STARTTLS or a login)"
    return type(error).__name__


class _PinnedMailSession(smtplib.SMTP):
    """A session with an address that was judged already; TLS is for the name."""

    def __init__(self, target: JudgedHost, timeout: float, context: ssl.SSLContext | None) -> None:
        self._target, self._context = target, context
        super().__init__(target.host, target.port, local_hostname="localhost", timeout=timeout)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        plain = connect(self._target, timeout)
        return self._context.wrap_socket(plain, server_hostname=host) if self._context else plain


def as_mail(message: Message, sender: str, to: tuple[str, ...]) -> EmailMessage:
    """Return the mail. Those about one change are one thread: they refer to the same id, which no mail has."""
    domain = sender.rpartition("@")[2]
    mail = EmailMessage(policy=SMTP_POLICY)
    mail["Subject"] = f"[instep] {message.title}"
    mail["From"], mail["To"] = f"instep <{sender}>", ", ".join(to)
    mail["Date"] = format_datetime(message.at)
    mail["Message-ID"] = f"<{message.id}@{domain}>"
    threads = [f"<{thread}@{domain}>" for thread in _threads(message)]
    mail["In-Reply-To"], mail["References"] = threads[0], " ".join(threads[:_REFERENCES])
    mail["List-Id"] = f"<{_list(message)}.instep.{domain}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    if message.severity == "error":
        mail["Importance"] = "high"
    mail.set_content(text_of(message), cte="quoted-printable")
    mail.add_alternative(html_of(message), subtype="html", cte="quoted-printable")
    return mail


def _threads(message: Message) -> list[str]:
    """Return a thread a change, else one a connection, else that of the digests."""
    if message.changes:
        return [f"change.{change}" for change in message.changes]
    return [f"connection.{_list(message)}"]


def _list(message: Message) -> str:
    names = message.connections
    if len(names) != 1:
        return "connections"
    plain = re.sub(r"[^a-z0-9-]+", "-", names[0].lower()).strip("-")
    if plain == names[0]:
        return plain
    return f"{plain[:40]}-{hashlib.sha256(names[0].encode()).hexdigest()[:6]}".lstrip("-")


SHOWN = 200
_SIGNS: dict[Tone, str] = {
    "added": "+",
    "removed": "-",
    "renamed": "→",
    "changed": "~",
    "stopped": "!",
    "plain": "·",
}
_COLORS: dict[Tone, str] = {
    "added": "#1a7f37",
    "removed": "#cf222e",
    "renamed": "#0550ae",
    "changed": "#9a6700",
    "stopped": "#cf222e",
    "plain": "#57606a",
}
_FONT = "font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"
_MONO = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
_WHY = 1_000


def text_of(message: Message) -> str:
    """Return plain text, one paragraph per line."""
    lines, more = message.first(SHOWN)
    parts = [message.title, *("\n".join(_text(line)) for line in lines)]
    more_lines = [f"…and {more} more"] if more else []
    return "\n\n".join([*parts, *more_lines, *map("\n".join, _counts(message)), "-- \ninstep"]) + "\n"


def _counts(message: Message) -> Iterator[list[str]]:
    """Yield the counts of each connection, one line per level."""
    for name, counts in message.counts.items():
        yield [f"{shown(name)}:", *(f"    {line}" for line in counts.lines())]


def _text(line: MessageLine) -> Iterator[str]:
    yield f"{_SIGNS[line.tone]} {shown(headline(line), _WHY)}"
    for name, value in details(line):
        yield f"    {name}: {shown(value, _WHY)}"
    if line.link:
        yield f"    {line.link}"


def html_of(message: Message) -> str:
    """Return a document of at most 600 pixels, without anything that is loaded from elsewhere."""
    lines, more = message.first(SHOWN)
    rows = "".join(map(_row, lines)) + "".join(map(_counted, _counts(message)))
    more_rows = f'<tr><td style="padding:12px 24px;color:#57606a">…and {more} more</td></tr>' if more else ""
    title = as_html(message.title)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f'<body style="margin:0;padding:24px 0;background:#f6f8fa;{_FONT};font-size:14px;color:#1f2328">'
        '<table role="presentation" cellpadding="0" cellspacing="0" width="600" align="center" '
        'style="max-width:600px;width:100%;background:#ffffff;border:1px solid #d0d7de;border-collapse:collapse">'
        f'<tr><td style="padding:16px 24px"><h1 style="margin:0;font-size:18px">{title}</h1></td></tr>'
        f"{rows}{more_rows}</table></body></html>\n"
    )


def _counted(lines: list[str]) -> str:
    style = "padding:12px 24px;border-top:1px solid #d0d7de;color:#57606a;font-size:13px"
    return f'<tr><td style="{style}">{"<br>".join(as_html(line.strip()) for line in lines)}</td></tr>'


def _row(line: MessageLine) -> str:
    color = _COLORS[line.tone]
    head = f'<strong style="color:{color}">{_SIGNS[line.tone]} {as_html(line.what)}</strong>'
    status = f' <span style="color:#57606a">{as_html(line.status)}</span>' if line.status else ""
    facts = "".join(
        f'<tr><td style="padding:1px 12px 1px 0;color:#57606a;white-space:nowrap;vertical-align:top">{name}</td>'
        f'<td style="padding:1px 0;{_MONO};font-size:13px;word-break:break-word">{as_html(value, _WHY)}</td></tr>'
        for name, value in details(line)
    )
    return (
        f'<tr><td style="padding:12px 24px;border-top:1px solid #d0d7de;border-left:4px solid {color}">'
        f"{head}{_old_to_new(line)}{status}"
        f'<table role="presentation" cellpadding="0" cellspacing="0" style="margin-top:6px">{facts}</table>'
        f"{_link(line)}</td></tr>"
    )


def _old_to_new(line: MessageLine) -> str:
    """Return the old value struck through, and the new one."""
    old = f'<s style="color:#cf222e;{_MONO}">{as_html(line.old)}</s>' if line.old else ""
    new = f'<span style="color:#1a7f37;{_MONO}">{as_html(line.new)}</span>' if line.new else ""
    return f" {' → '.join(filter(None, (old, new)))}" if old or new else ""


def _link(line: MessageLine) -> str:
    if not line.link:
        return ""
    words = "Review" if line.status == "needs a review" else "Open"
    return f'<p style="margin:8px 0 0"><a href="{as_html(line.link, 2_000)}" style="color:#0550ae">{words}</a></p>'
