"""Which numbers of a sender have come, of those that came last."""


class NumberWindow:
    """Takes each number of one sender once; what is older than the window counts as had.

    Bit i of `came` is the number `highest` - i.
    """

    __slots__ = ("came", "highest", "size")

    def __init__(self, size: int) -> None:
        """`size` is of how many numbers below the highest it is known singly whether they came."""
        self.size = size
        self.highest = -1
        self.came = 0

    def is_past(self, number: int) -> bool:
        """Whether it is too old to be known."""
        return self.highest - number >= self.size

    def is_replay(self, number: int) -> bool:
        """Whether this came, or may have come."""
        back = self.highest - number
        return back >= 0 and (back >= self.size or bool(self.came >> back & 1))

    def take(self, number: int) -> None:
        """It has come; it is no replay."""
        ahead = number - self.highest
        if ahead > 0:
            self.came = (self.came << ahead if ahead < self.size else 0) | 1
            self.came &= (1 << self.size) - 1
            self.highest = number
        else:
            self.came |= 1 << -ahead
