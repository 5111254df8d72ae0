"""Gradient-boosted trees as onnxmltools converts them from XGBoost and LightGBM give
onnxruntime's outputs."""

import unittest
import warnings

import lightgbm
import numpy
import xgboost
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from sklearn import datasets

import oracle

warnings.filterwarnings("ignore")
IRIS = datasets.load_iris(return_X_y=True)
DIABETES = datasets.load_diabetes(return_X_y=True)
BINARY = (IRIS[0][:100], IRIS[1][:100])
OPSET = 15


class Boosting(unittest.TestCase):
    def compare(self, convert, estimator, x, **options):
        model = convert(estimator, initial_types=[("X", FloatTensorType([None, x.shape[1]]))], target_opset=OPSET, **options)
        rows = x[:40].astype(numpy.float32)
        rows[3, 1] = rows[7, 0] = numpy.nan  # missing values take their own branch
        oracle.assert_same(self, model, {"X": rows}, rtol=1e-3, atol=1e-5)

    def test_xgboost(self):
        shape = {"n_estimators": 12, "max_depth": 4}
        for name, estimator, data in (
                ("classifier", xgboost.XGBClassifier(**shape), IRIS),
                ("binary classifier", xgboost.XGBClassifier(**shape), BINARY),
                ("forest", xgboost.XGBRFClassifier(n_estimators=5), BINARY),
                ("regressor", xgboost.XGBRegressor(**shape), DIABETES),
                ("poisson", xgboost.XGBRegressor(objective="count:poisson", **shape), DIABETES),
                ("logistic", xgboost.XGBRegressor(objective="reg:logistic", **shape), BINARY)):
            with self.subTest(name):
                self.compare(convert_xgboost, estimator.fit(*data), data[0])

    def test_lightgbm(self):
        shape = {"n_estimators": 12, "num_leaves": 8, "verbose": -1}
        for name, estimator, data, options in (
                ("classifier", lightgbm.LGBMClassifier(**shape), IRIS, {"zipmap": False}),
                ("maps", lightgbm.LGBMClassifier(**shape), IRIS, {}),
                ("binary classifier", lightgbm.LGBMClassifier(**shape), BINARY, {"zipmap": False}),
                ("regressor", lightgbm.LGBMRegressor(**shape), DIABETES, {}),
                ("split regressor", lightgbm.LGBMRegressor(**shape), DIABETES, {"split": 5}),
                ("poisson", lightgbm.LGBMRegressor(objective="poisson", **shape), DIABETES, {})):
            with self.subTest(name):
                self.compare(convert_lightgbm, estimator.fit(*data), data[0], **options)


if __name__ == "__main__":
    unittest.main()
