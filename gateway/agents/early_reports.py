"""Reports about agents' servers that are made before the gateway has an observer, because agents are connected
first."""

from collections.abc import Callable

from babelgate.gateway.observe import GatewayObserver


class EarlyReports:
    """Receiver of the reports of all agent registries of a gateway. It stores the reports that arrive before there is
    an observer."""

    def __init__(self) -> None:
        self._observer: GatewayObserver | None = None
        self._early: list[Callable[[GatewayObserver], None]] = []

    def report_to(self, observer: GatewayObserver) -> None:
        """Pass the stored reports to an observer, and from now on each report at once."""
        self._observer = observer
        early, self._early = self._early, []
        for report in early:
            report(observer)

    def note_card_checked(self, agent: str, result: str) -> None:
        """Report the verification of a card, as `GatewayObserver` describes it."""
        self._send(lambda observer: observer.note_card_checked(agent, result))

    def note_token_fetched(self, agent: str, kind: str, outcome: str, seconds: float) -> None:
        """Report a fetch of a token, as `GatewayObserver` describes it."""
        self._send(lambda observer: observer.note_token_fetched(agent, kind, outcome, seconds))

    def _send(self, report: Callable[[GatewayObserver], None]) -> None:
        if self._observer is None:
            self._early.append(report)
        else:
            report(self._observer)
