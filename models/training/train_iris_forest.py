"""iris_forest: a scaled random forest on the iris measurements, as ai.onnx.ml operators."""

import pathlib

from onnx.helper import make_opsetid
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def main():
    measurements, species = load_iris(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        measurements, species, test_size=0.3, random_state=3, stratify=species
    )
    model = make_pipeline(
        StandardScaler(), RandomForestClassifier(n_estimators=20, max_depth=5, random_state=0)
    ).fit(train_x, train_y)
    print("iris_forest test accuracy", model.score(test_x, test_y))
    exported = to_onnx(
        model,
        initial_types=[("measurements", FloatTensorType([None, 4]))],
        options={"zipmap": False},
        target_opset={"": 17, "ai.onnx.ml": 3},
    )
    versions = {entry.domain: entry.version for entry in exported.opset_import}
    del exported.opset_import[:]
    exported.opset_import.extend(make_opsetid(*entry) for entry in sorted(versions.items()))
    exported.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    for output in exported.graph.output:
        output.type.tensor_type.shape.dim[0].dim_param = "batch"
    path = pathlib.Path(__file__).parent.parent / "iris_forest" / "1" / "model.onnx"
    path.write_bytes(exported.SerializeToString())


if __name__ == "__main__":
    main()
