#!/usr/bin/env python3
"""Trains tree ensembles as users have them and writes them as FOLDER/NAME/model.onnx.

Needs scikit-learn, skl2onnx, xgboost, lightgbm and onnxmltools. The free dimension is the batch.
"""

import argparse
import pathlib
import warnings

from lightgbm import LGBMClassifier
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType as BoostedFloats
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import RandomForestClassifier
from xgboost import XGBClassifier, XGBRegressor

warnings.filterwarnings("ignore")
OPSET = 15


def random_forest(features, classes):
    x, y = make_classification(20000, features, n_informative=features // 2, n_classes=classes, random_state=0)
    estimator = RandomForestClassifier(100, random_state=0, n_jobs=-1).fit(x, y)
    return convert_sklearn(estimator, initial_types=[("x", FloatTensorType([None, features]))], target_opset=OPSET,
                           options={id(estimator): {"zipmap": False}})


def boosted(convert, estimator, data, **options):
    return convert(estimator.fit(*data), initial_types=[("x", BoostedFloats([None, data[0].shape[1]]))],
                   target_opset=OPSET, **options)


def models():
    two = make_classification(20000, 30, n_informative=15, random_state=0)
    five = make_classification(20000, 30, n_informative=15, n_classes=5, random_state=0)
    numbers = make_regression(20000, 50, random_state=0)
    yield "random_forest", random_forest(20, 3)
    yield "xgboost_regressor", boosted(convert_xgboost, XGBRegressor(n_estimators=300, max_depth=6), numbers)
    yield "xgboost_classifier", boosted(convert_xgboost, XGBClassifier(n_estimators=100, max_depth=5), five)
    yield "lightgbm_classifier", boosted(convert_lightgbm, LGBMClassifier(n_estimators=200, verbose=-1), two, zipmap=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    for name, model in models():
        path = folder / name / "model.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(model.SerializeToString())
        print(path, flush=True)


if __name__ == "__main__":
    main()
