"""The annealing schedule of DSP (Li et al. 2021, eq. 24)."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Temperature:
    """Falls from ``start`` to ``end`` log-linearly within ``updates`` updates, and stays there.

    Raises:
        ValueError: a temperature that is not finite and above 0, one that would rise, or less than one update.
    """

    start: float
    end: float
    updates: int

    def __post_init__(self) -> None:
        for name, value in (("tau-start", self.start), ("tau-end", self.end)):
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} {value:g}: a temperature must be finite and above 0")
        if self.start < self.end:
            raise ValueError(f"tau-start {self.start:g} is below tau-end {self.end:g}: the temperature must not rise")
        if self.updates < 1:
            raise ValueError(f"tau-updates {self.updates}: the temperature needs at least 1 update to fall")

    def at(self, update: int) -> float:
        """Return the temperature after a number of updates."""
        share = min(update / self.updates, 1.0)
        if share == 1.0:
            return self.end
        return math.exp(math.log(self.start) - share * (math.log(self.start) - math.log(self.end)))
