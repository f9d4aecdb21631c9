"""`NumberWindow`: the received numbers of a sender, as far back as a window."""


class NumberWindow:
    """Accepts each number of one sender once; numbers before the window count as received.

    Bit i of `came` is the number `highest` - i.
    """

    __slots__ = ("came", "highest", "size")

    def __init__(self, size: int) -> None:
        """`size` is the number of numbers below the highest that are known singly."""
        self.size = size
        self.highest = -1
        self.came = 0

    def is_past(self, number: int) -> bool:
        """Whether a number lies before the window."""
        return self.highest - number >= self.size

    def is_replay(self, number: int) -> bool:
        """Whether a number was received, or lies before the window."""
        back = self.highest - number
        return back >= 0 and (back >= self.size or bool(self.came >> back & 1))

    def take(self, number: int) -> None:
        """Adds a number that is no replay."""
        ahead = number - self.highest
        if ahead > 0:
            self.came = (self.came << ahead if ahead < self.size else 0) | 1
            self.came &= (1 << self.size) - 1
            self.highest = number
        else:
            self.came |= 1 << -ahead
