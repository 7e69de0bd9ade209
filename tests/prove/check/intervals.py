"""Real time. An operation took effect somewhere between its first attempt and its answer, so one that was answered before
another began came first. A history must respect that."""


def first_inversion(order):
    """Two operations of a history of which the later one was answered before the earlier one began; None: there are
    none."""
    latest = None
    for operation in order:
        if latest is not None and operation.answered < latest.invoked:
            return latest, operation
        if latest is None or operation.invoked > latest.invoked:
            latest = operation
    return None


class Block:
    """Operations that followed each other with nothing between them."""

    def __init__(self, operations):
        self.operations = operations
        self.first_answer = min((operation.answered for operation in operations), default=0)
        self.last_begin = max((operation.invoked for operation in operations), default=0)


def first_tangle(blocks):
    """Two blocks that each must come before the other, so that they cannot have followed each other; None: there are
    none. It is enough to look at pairs: a longer circle always contains one of two."""
    long = sorted((b for b in blocks if b.first_answer < b.last_begin), key=lambda b: b.first_answer)
    for one, other in zip(long, long[1:]):
        if other.first_answer < one.last_begin:
            return one, other
    short = sorted((b for b in blocks if b.first_answer >= b.last_begin), key=lambda b: b.last_begin)
    index = 0
    for block in long:
        while index < len(short) and short[index].last_begin <= block.first_answer:
            index += 1
        at = index
        while at < len(short) and short[at].last_begin < block.last_begin:
            if short[at].first_answer < block.last_begin:
                return block, short[at]
            at += 1
    return None
