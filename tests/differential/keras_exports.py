"""Writes exports/keras_*.onnx: what Keras' own ONNX export (tf2onnx) makes of Keras models, without
the weights (see seeded_weights.py).

    pip install tensorflow-cpu tf2onnx
    python keras_exports.py
"""

import os
import pathlib
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import onnx
import tensorflow
import tf2onnx
from keras import layers

import seeded_weights

FOLDER = pathlib.Path(__file__).parent / "exports"
LARGEST_FILE = 50_000


def gelu(x):
    """tf2onnx writes the exact one as Erfc, which ONNX does not have."""
    return keras.activations.gelu(x, approximate=True)


def perceptron():
    return keras.Sequential([layers.Input((20,)), layers.Normalization(mean=0.5, variance=2.0),
                             layers.Dense(32, "relu"), layers.BatchNormalization(), layers.Dropout(0.3),
                             layers.Dense(16, "selu"), layers.Dense(5, "softmax")])


def convolutions():
    image = layers.Input((32, 32, 3))
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(image)
    x = layers.SeparableConv2D(24, 3, strides=2, padding="same", activation="swish")(x)
    x = layers.DepthwiseConv2D(5, padding="same", activation="relu6")(x)
    x = layers.BatchNormalization()(x)
    x = layers.MaxPooling2D()(x)
    y = layers.Conv2D(24, 1, activation="hard_sigmoid")(layers.GlobalAveragePooling2D(keepdims=True)(x))
    x = layers.Multiply()([x, y])
    x = layers.Flatten()(layers.AveragePooling2D(2)(x))
    return keras.Model(image, layers.Dense(10)(x))


def segmentation():
    image = layers.Input((24, 24, 1))
    a = layers.Conv2D(8, 3, padding="same", activation="elu")(image)
    b = layers.Conv2D(16, 3, strides=2, padding="same", activation="leaky_relu")(a)
    up = layers.Conv2DTranspose(8, 3, strides=2, padding="same")(b)
    x = layers.Concatenate()([a, up, layers.UpSampling2D(2, interpolation="bilinear")(b)])
    x = layers.ZeroPadding2D(1)(x)
    x = layers.Cropping2D(1)(x)
    return keras.Model(image, layers.Conv2D(2, 1, activation="sigmoid")(x))


def text():
    ids = layers.Input((12,), dtype="int32")
    x = layers.Embedding(50, 16)(ids)
    x = layers.Conv1D(16, 3, padding="causal", activation=gelu)(x)
    return keras.Model(ids, layers.Dense(4)(layers.GlobalMaxPooling1D()(x)))


def recurrent(layer):
    steps = layers.Input((10, 6))
    x = layers.Bidirectional(layer(8, return_sequences=True))(steps)
    return keras.Model(steps, layers.Dense(3)(layer(8)(x)))


def attention():
    tokens = layers.Input((9, 32))
    x = layers.LayerNormalization()(tokens)
    x = layers.Add()([tokens, layers.MultiHeadAttention(4, 8)(x, x)])
    y = layers.Dense(64, gelu)(layers.LayerNormalization()(x))
    return keras.Model(tokens, layers.Add()([x, layers.Dense(32)(y)]))


def preprocessing():
    image = layers.Input((20, 20, 3))
    x = layers.Rescaling(1 / 127.5, offset=-1)(image)
    x = layers.Resizing(16, 16)(x)
    x = layers.CenterCrop(12, 12)(x)
    return keras.Model(image, layers.GlobalAveragePooling2D()(layers.PReLU(shared_axes=[1, 2])(x)))


def mobilenet():
    return keras.applications.MobileNetV2((64, 64, 3), alpha=0.35, weights=None, classes=10)


MODELS = {
    "perceptron": perceptron, "convolutions": convolutions, "segmentation": segmentation, "text": text,
    "simple_rnn": lambda: recurrent(layers.SimpleRNN), "lstm": lambda: recurrent(layers.LSTM),
    "gru": lambda: recurrent(layers.GRU), "attention": attention, "preprocessing": preprocessing,
    "mobilenet": mobilenet,
}


def by_keras(model, path):
    model([tensorflow.zeros((1, *tensor.shape[1:]), tensor.dtype) for tensor in model.inputs])
    model.export(path, format="onnx", verbose=False)
    return onnx.load(path)


def by_tf2onnx(model, opset):
    signature = [tensorflow.TensorSpec((None, *tensor.shape[1:]), tensor.dtype, f"x{i}")
                 for i, tensor in enumerate(model.inputs)]
    function = tensorflow.function(lambda *inputs: model(*inputs, training=False), input_signature=signature)
    proto, _ = tf2onnx.convert.from_function(function, signature, opset=opset)
    return proto


def export(name, opset):
    """`opset`: of tf2onnx, or None for what Keras chooses."""
    keras.utils.set_random_seed(7)
    model = MODELS[name]()
    target = FOLDER / f"keras_{name}_{opset or 'own'}.onnx"
    with tempfile.TemporaryDirectory() as folder:
        proto = by_keras(model, f"{folder}/model.onnx") if opset is None else by_tf2onnx(model, opset)
    data = seeded_weights.strip(proto).SerializeToString()
    if len(data) > LARGEST_FILE:
        return f"{target.name}: {len(data)} bytes, left out"
    target.write_bytes(data)
    return f"{target.name}: {len(data)} bytes"


def main():
    for name in sys.argv[1:] or MODELS:
        for opset in (13, 18, None):
            try:
                print(export(name, opset), flush=True)
            except Exception as error:
                print(f"{name}, opset {opset}: {str(error).splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main()
