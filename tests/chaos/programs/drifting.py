"""A client's clock that runs at another rate than everybody else's.

zkcoord reads one function, :func:`zkcoord.zk.clock.now`. It is replaced in the client's process;
journals go on by the true clock, so what the client believes is written down in true time.
"""

from __future__ import annotations

import sys

from zkcoord.zk import clock


class Drift:
    """Seconds of this clock for each true one, from now on.

    Args:
        rate: 0.99 is one percent slow.
    """

    def __init__(self, rate: float = 1.0) -> None:
        self._true = clock.now
        self._begun = self._true()
        self._rate = rate
        if rate != 1.0:
            for name, module in list(sys.modules.items()):
                if name.startswith("zkcoord") and getattr(module, "now", None) is self._true:
                    module.now = self.now  # type: ignore[attr-defined]

    def now(self) -> float:
        """What the client takes for the time."""
        return self._begun + (self._true() - self._begun) * self._rate

    def true(self, moment: float) -> float:
        """When this clock will say, or said, `moment`; 0 stays 0."""
        return self._begun + (moment - self._begun) / self._rate if moment else 0.0
