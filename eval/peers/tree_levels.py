"""The numbering by height that the peers' level batches need."""
import numpy as np


def number(left, right, is_leaf):
    """(order, place): the nodes of each height from the leaves upwards, and each node's row in this order."""
    height = np.zeros(len(left), np.int64)
    for n in range(len(left) - 1, -1, -1):  # children have larger numbers
        if not is_leaf[n]:
            height[n] = 1 + max(height[left[n]], height[right[n]])
    order = [np.flatnonzero(height == k) for k in range(height.max() + 1)]
    place = np.empty_like(height)
    place[np.concatenate(order)] = np.arange(len(place))
    return order, place
