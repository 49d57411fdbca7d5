"""An observer that records every report, for tests."""

from typing import Any

from babelgate.gateway.observe import GatewayObserver


class Recorder(GatewayObserver):
    """Observer that stores reports as tuples: the name without `note_`, and the arguments."""

    is_active = True

    def __init__(self) -> None:
        self.reports: list[tuple[Any, ...]] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("note_"):
            return super().__getattribute__(name)

        def note(*arguments: Any, **named: Any) -> None:
            self.reports.append((name.removeprefix("note_"), *arguments, *named.values()))

        return note

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        """Return the reports with these names, without times."""
        return [
            tuple(each for each in report if not isinstance(each, float))
            for report in self.reports
            if report[0] in names
        ]
