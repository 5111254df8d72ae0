"""scikit-learn's handwritten digits (1,797 images of 8x8), split once for every model here."""

import numpy
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def split():
    """Returns train images, test images [n, 8, 8] scaled to [0, 1], and their labels."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(numpy.float32)
    return train_test_split(
        images, digits.target, test_size=0.2, random_state=7, stratify=digits.target
    )
