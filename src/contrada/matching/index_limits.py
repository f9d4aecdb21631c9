"""`IndexLimits`: how often an index moves filters to better places."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLimits:
    """Limits of an `Index`."""

    looked_min: int = 64
    """Filters checked by a match. Beyond it: a move of some can help."""
    matches_between: int = 16
    """Matches after an unsuitable one. Beyond it: another is considered."""
    seen_min: int = 512
    """Notifications of the statistics; fewer are chance, and the first matches would pay for most
    moves. Beyond it: filters are moved."""
    looked_between: int = 2**16
    """Filters checked, about, between two attempts: attempts take a third of the time of matching,
    or more than half for matches of thousands, until they have helped. The fewer filters a match
    checks, the rarer they are. Beyond it: the next attempt."""
    patience_max: int = 4_096
    """Matches from one failed attempt to the next. Beyond it: attempts become no rarer."""
    fading_after: int = 8_192
    """Notifications of the statistics; more if halving takes long. Beyond it: they are halved."""
