#!/usr/bin/env python3
"""Converts scikit-learn's estimators, as tests/differential/test_sklearn.py lists them, fitted to 2,000 rows of 20 features,
and writes them as FOLDER/KIND_NAME/model.onnx. Ensembles have as many members as users give them.

Needs what tests/differential/requirements.txt lists. The free dimension is the batch. Names those that do not convert.
"""

import argparse
import pathlib
import sys
import warnings

from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import make_classification, make_regression

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "differential"))
import test_sklearn  # noqa: E402

warnings.filterwarnings("ignore")
FEATURES = 20
MEMBERS = {"forest": 100, "extra_trees": 100, "gradient_boosting": 100, "bagging": 10, "ada_boost": 50, "isolation_forest": 100}
SLOW = ("gaussian_process", "gaussian_process_regressor", "theil_sen")  # to fit: to 500 rows


def convert(name, estimator, x, y):
    if name in MEMBERS:
        estimator.set_params(n_estimators=MEMBERS[name])
    if name == "mlp":
        estimator.set_params(hidden_layer_sizes=(100,))
    rows = 500 if name in SLOW else len(x)
    estimator.fit(x[:rows], y[:rows])
    types = [("X", FloatTensorType([None, FEATURES]))]
    try:
        return to_onnx(estimator, initial_types=types, options={id(estimator): {"zipmap": False}})
    except Exception:  # it has no such option
        return to_onnx(estimator, initial_types=types)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    x, labels = make_classification(2000, FEATURES, n_informative=10, n_classes=3, random_state=0)
    classes = abs(x), labels
    x, y = make_regression(2000, FEATURES, random_state=0)
    numbers = x, abs(y) + 1
    for kind, estimators, data in (("classifier", test_sklearn.classifiers(), classes),
                                   ("regressor", test_sklearn.regressors(), numbers),
                                   ("transformer", test_sklearn.transformers(), numbers)):
        for name, estimator in estimators:
            try:
                model = convert(name, estimator, *data)
            except Exception as error:
                print(f"{kind}_{name}: {str(error).splitlines()[0][:100]}", flush=True)
                continue
            path = folder / f"{kind}_{name}" / "model.onnx"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
