"""Messages by mail: text and HTML, threaded by change, over SMTP to an address that was judged."""

from __future__ import annotations

import hashlib
import re
import smtplib
import socket
import ssl
import time
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from email.utils import format_datetime

from instep.egress.guard import EgressGuard, EgressRefused, JudgedHost, connect
from instep.egress.http import ended_at
from instep.errors import ConnectError
from instep.notify.channel import NotDelivered
from instep.notify.message import Message
from instep.notify.page import html_of, text_of
from instep.project.sections.channels import EmailChannelSection

_REFERENCES = 20
STEPS = 3
"""The whole conversation may take so many times a channel's timeout."""


class EmailChannel:
    def __init__(self, config: EmailChannelSection, guard: EgressGuard) -> None:
        self._config, self._guard = config, guard

    def send(self, message: Message) -> int:
        """Hand the mail to the server: 250. One that takes it for some of the addresses has taken it."""
        config, end = self._config, time.monotonic() + STEPS * self._config.timeout
        try:
            with self._server() as server, ended_at(server, end):
                if config.user:
                    server.login(config.user, config.password)
                server.send_message(made(message, config.sender, config.to), config.sender, list(config.to))
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


def made(message: Message, sender: str, to: tuple[str, ...]) -> EmailMessage:
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
