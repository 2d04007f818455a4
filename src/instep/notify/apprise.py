"""Messages to any service that the library Apprise knows, as Markdown."""

from __future__ import annotations

from instep.egress.guard import EgressGuard
from instep.errors import ConnectError, SetupError
from instep.notify.channel import NotDelivered
from instep.notify.message import SHOWN, Message, as_markdown, details, headline
from instep.project.sections.channels import AppriseChannelSection

_OWN_HOST = frozenset(("discord", "gchat", "opsgenie", "pagerduty", "pover", "slack", "tgram"))
"""Services whose plugins call one host of theirs, whatever their URL says."""


class AppriseChannel:
    """Apprise connects by itself: the host of its URL is judged before, and once more by nobody."""

    def __init__(self, config: AppriseChannelSection, guard: EgressGuard) -> None:
        self._config, self._guard = config, guard

    def payload(self, message: Message) -> str:
        return f"{message.title}\n\n{markdown(message)}"

    def send(self, message: Message) -> int:
        """Send the message; return 0, as Apprise reports no code."""
        try:
            from apprise import Apprise, NotifyFormat
        except ImportError:
            raise SetupError(
                "a channel of type apprise needs the extra apprise", hint="pip install 'instep[apprise]'"
            ) from None
        service = Apprise.instantiate(self._config.url)
        if service is None:
            raise NotDelivered("Apprise does not know this URL", code=0, hint="see its notation of URLs")
        service.socket_connect_timeout = service.socket_read_timeout = self._config.timeout
        service.redirects = False
        self._judge(str(service.host or ""), int(service.port or 443))
        sender = Apprise()
        sender.add(service)
        if not sender.notify(body=markdown(message), title=message.title, body_format=NotifyFormat.MARKDOWN):
            raise NotDelivered("the service did not take the message", code=0)
        return 0

    def _judge(self, host: str, port: int) -> None:
        """Refuse an inner host. For services of one known host the place of the host in the URL holds a token: it is
        not looked up, and in no error."""
        scheme = self._config.url.partition(":")[0].lower()
        if not host or scheme in _OWN_HOST or (scheme == "zulip" and "." not in host):
            return
        try:
            self._guard.target(host, port)
        except ConnectError:
            hint = "check the host in its URL; one of an inner network has to be listed: `egress: {allow: [...]}`"
            raise NotDelivered(
                f"the host of the {scheme} URL is not known, or is an inner one", code=0, hint=hint
            ) from None


def markdown(message: Message) -> str:
    lines, more = message.first(SHOWN)
    parts: list[str] = []
    for line in lines:
        facts = [f"{name}: {as_markdown(value)}" for name, value in details(line)]
        parts.append("\n".join([f"- **{as_markdown(headline(line))}**", *(f"  - {fact}" for fact in facts)]))
    return "\n".join([*parts, *([f"…and {more} more"] if more else [])])
