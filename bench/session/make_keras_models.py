#!/usr/bin/env python3
"""Writes models that people train with Keras into FOLDER/NAME/NAME.onnx, with random weights, as Keras' own export
to ONNX writes them: the smallest network of each family of keras.applications, and what Keras' examples build of
layers (readers of text, series, signals, images). Inputs are seeded random numbers (test_data_set_0).

These are looked over for any that onnxruntime is faster with; a model that cannot be exported is named and left out.

Needs tensorflow-cpu, tf2onnx and onnx.
"""

import argparse
import os
import pathlib
import shutil
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy
import onnx
from keras import layers
from onnx import numpy_helper

APPLICATIONS = ["ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "InceptionResNetV2", "InceptionV3",
                "MobileNet", "MobileNetV2", "MobileNetV3Large", "MobileNetV3Small", "NASNetMobile", "ResNet50",
                "ResNet50V2", "Xception"]
WORDS = 20000


def application(name):
    network = getattr(keras.applications, name)
    return network(weights=None, input_shape=(224, 224, 3)), []


def words(length):
    return layers.Input((length,), dtype="int32"), [("integers", WORDS)]


def text_lstm():
    text, ranges = words(200)
    x = layers.Embedding(WORDS, 128)(text)
    x = layers.Bidirectional(layers.LSTM(64, return_sequences=True))(x)
    x = layers.Bidirectional(layers.LSTM(64))(x)
    return keras.Model(text, layers.Dense(1, "sigmoid")(x)), ranges


def text_gru():
    text, ranges = words(200)
    x = layers.Embedding(WORDS, 128, mask_zero=True)(text)
    x = layers.GRU(128, return_sequences=True)(x)
    x = layers.GRU(128)(x)
    return keras.Model(text, layers.Dense(5, "softmax")(x)), ranges


def text_convolutions():
    text, ranges = words(400)
    x = layers.Embedding(WORDS, 128)(text)
    x = layers.Conv1D(128, 7, strides=3, activation="relu")(x)
    x = layers.Conv1D(128, 7, strides=3, activation="relu")(x)
    x = layers.GlobalMaxPooling1D()(x)
    return keras.Model(text, layers.Dense(1, "sigmoid")(layers.Dense(128, "relu")(x))), ranges


def transformer_block(x, heads, width, hidden, causal=False):
    y = layers.MultiHeadAttention(heads, width // heads)(x, x, use_causal_mask=causal)
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, y]))
    y = layers.Dense(width)(layers.Dense(hidden, "relu")(x))
    return layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, y]))


def text_transformer():
    text, ranges = words(200)
    positions = layers.Embedding(200, 128)(keras.ops.arange(200))
    x = layers.Add()([layers.Embedding(WORDS, 128)(text), keras.ops.expand_dims(positions, 0)])
    for _ in range(4):
        x = transformer_block(x, 4, 128, 512)
    return keras.Model(text, layers.Dense(2, "softmax")(layers.GlobalAveragePooling1D()(x))), ranges


def language_model():
    text, ranges = words(80)
    x = layers.Embedding(WORDS, 256)(text)
    for _ in range(4):
        x = transformer_block(x, 4, 256, 256, causal=True)
    return keras.Model(text, layers.Dense(WORDS)(x)), ranges


def series_transformer():
    series = layers.Input((500, 1))
    x = series
    for _ in range(4):
        y = layers.Dropout(0.25)(layers.MultiHeadAttention(4, 256)(x, x))
        y = layers.Add()([layers.LayerNormalization(epsilon=1e-6)(y), x])
        z = layers.Conv1D(1, 1)(layers.Conv1D(4, 1, activation="relu")(y))
        x = layers.Add()([layers.LayerNormalization(epsilon=1e-6)(z), y])
    x = layers.GlobalAveragePooling1D(data_format="channels_last")(x)
    return keras.Model(series, layers.Dense(2, "softmax")(layers.Dense(128, "relu")(x))), []


def series_lstm():
    series = layers.Input((120, 7))
    return keras.Model(series, layers.Dense(1)(layers.LSTM(32)(series))), []


def series_convolutions():
    series = x = layers.Input((500, 1))
    for _ in range(3):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv1D(64, 3, padding="same")(x)))
    return keras.Model(series, layers.Dense(2, "softmax")(layers.GlobalAveragePooling1D()(x))), []


def wavenet():
    signal = layers.Input((4000, 1))
    x = layers.Conv1D(32, 2, padding="causal")(signal)
    parts = []
    for i in range(10):
        a = layers.Conv1D(32, 2, padding="causal", dilation_rate=2 ** i, activation="tanh")(x)
        b = layers.Conv1D(32, 2, padding="causal", dilation_rate=2 ** i, activation="sigmoid")(x)
        y = layers.Multiply()([a, b])
        parts.append(layers.Conv1D(64, 1)(y))
        x = layers.Add()([x, layers.Conv1D(32, 1)(y)])
    y = layers.ReLU()(layers.Add()(parts))
    return keras.Model(signal, layers.Conv1D(256, 1)(layers.Conv1D(64, 1, activation="relu")(y))), []


def speech_recognition():
    spectrogram = layers.Input((200, 193))
    x = layers.Reshape((200, 193, 1))(spectrogram)
    x = layers.Conv2D(32, (11, 41), strides=(2, 2), padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Conv2D(32, (11, 21), strides=(1, 2), padding="same", use_bias=False)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Reshape((-1, x.shape[-2] * x.shape[-1]))(x)
    for _ in range(3):
        x = layers.Bidirectional(layers.GRU(256, return_sequences=True, reset_after=True))(x)
    return keras.Model(spectrogram, layers.Dense(32, "softmax")(layers.Dense(512, "relu")(x))), []


def captcha_reader():
    image = layers.Input((200, 50, 1))
    x = layers.Conv2D(32, 3, activation="relu", padding="same")(image)
    x = layers.MaxPooling2D(2)(x)
    x = layers.Conv2D(64, 3, activation="relu", padding="same")(x)
    x = layers.MaxPooling2D(2)(x)
    x = layers.Dense(64, "relu")(layers.Reshape((50, 768))(x))
    x = layers.Bidirectional(layers.LSTM(128, return_sequences=True))(x)
    x = layers.Bidirectional(layers.LSTM(64, return_sequences=True))(x)
    return keras.Model(image, layers.Dense(20, "softmax")(x)), []


def xception_like_unet():
    image = layers.Input((160, 160, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(32, 3, strides=2, padding="same")(image)))
    before = x
    for filters in (64, 128, 256):
        for _ in range(2):
            x = layers.BatchNormalization()(layers.SeparableConv2D(filters, 3, padding="same")(layers.ReLU()(x)))
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        before = x = layers.Add()([x, layers.Conv2D(filters, 1, strides=2, padding="same")(before)])
    for filters in (256, 128, 64, 32):
        for _ in range(2):
            x = layers.BatchNormalization()(layers.Conv2DTranspose(filters, 3, padding="same")(layers.ReLU()(x)))
        x = layers.UpSampling2D(2)(x)
        before = x = layers.Add()([x, layers.Conv2D(filters, 1, padding="same")(layers.UpSampling2D(2)(before))])
    return keras.Model(image, layers.Conv2D(3, 3, activation="softmax", padding="same")(x)), []


def deeplab():
    def block(x, filters=256, size=3, rate=1):
        x = layers.Conv2D(filters, size, dilation_rate=rate, padding="same", use_bias=False)(x)
        return layers.ReLU()(layers.BatchNormalization()(x))

    image = layers.Input((256, 256, 3))
    base = keras.applications.ResNet50(weights=None, include_top=False, input_tensor=image)
    x = base.get_layer("conv4_block6_2_relu").output
    y = layers.AveragePooling2D((x.shape[1], x.shape[2]))(x)
    y = layers.UpSampling2D((x.shape[1], x.shape[2]), interpolation="bilinear")(block(y, size=1))
    x = block(layers.Concatenate()([y, block(x, size=1)] + [block(x, rate=r) for r in (6, 12, 18)]), size=1)
    a = layers.UpSampling2D(4, interpolation="bilinear")(x)
    b = block(base.get_layer("conv2_block3_2_relu").output, 48, 1)
    x = block(block(layers.Concatenate()([a, b])))
    return keras.Model(image, layers.Conv2D(20, 1)(layers.UpSampling2D(4, interpolation="bilinear")(x))), []


def vision_transformer():
    image = layers.Input((72, 72, 3))
    x = layers.Reshape((144, 64))(layers.Conv2D(64, 6, strides=6)(image))
    x = layers.Add()([x, keras.ops.expand_dims(layers.Embedding(144, 64)(keras.ops.arange(144)), 0)])
    for _ in range(8):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Add()([layers.MultiHeadAttention(4, 64)(y, y), x])
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        y = keras.activations.gelu(layers.Dense(128)(y), approximate=True)
        x = layers.Add()([keras.activations.gelu(layers.Dense(64)(y), approximate=True), x])
    x = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(x))
    return keras.Model(image, layers.Dense(100)(layers.Dense(1024, "relu")(x))), []


def video_classifier():
    clip = layers.Input((10, 112, 112, 3))
    x = clip
    for filters, stride in ((16, 2), (32, 2), (64, 2)):
        x = layers.Conv3D(filters, (1, 7, 7) if filters == 16 else (1, 3, 3), strides=(1, stride, stride), padding="same")(x)
        x = layers.Conv3D(filters, (3, 1, 1), padding="same")(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    return keras.Model(clip, layers.Dense(10)(layers.GlobalAveragePooling3D()(x))), []


def frame_prediction():
    clip = x = layers.Input((8, 64, 64, 1))
    for size in (5, 3, 1):
        x = layers.ConvLSTM2D(32, size, padding="same", return_sequences=True, activation="relu")(x)
    return keras.Model(clip, layers.Conv3D(1, 3, activation="sigmoid", padding="same")(x)), []


def super_resolution():
    image = x = layers.Input((100, 100, 1))
    for filters, size in ((64, 5), (64, 3), (32, 3), (9, 3)):
        x = layers.Conv2D(filters, size, activation="relu", padding="same")(x)
    x = layers.Reshape((100, 100, 3, 3))(x)
    x = layers.Reshape((300, 300, 1))(layers.Permute((1, 3, 2, 4))(x))
    return keras.Model(image, x), []


def cycle_generator():
    def convolution(x, filters, size, stride=1):
        x = layers.Conv2D(filters, size, strides=stride, padding="same", use_bias=False)(x)
        return layers.GroupNormalization(groups=-1)(x)

    image = layers.Input((128, 128, 3))
    x = layers.ReLU()(convolution(image, 32, 7))
    x = layers.ReLU()(convolution(x, 64, 3, 2))
    x = layers.ReLU()(convolution(x, 128, 3, 2))
    for _ in range(4):
        x = layers.Add()([x, convolution(layers.ReLU()(convolution(x, 128, 3)), 128, 3)])
    for filters in (64, 32):
        x = layers.Conv2DTranspose(filters, 3, strides=2, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.GroupNormalization(groups=-1)(x))
    return keras.Model(image, layers.Conv2D(3, 7, padding="same", activation="tanh")(x)), []


def recommender():
    users, items = layers.Input((1,), dtype="int32"), layers.Input((50,), dtype="int32")
    user = layers.Flatten()(layers.Embedding(10000, 64)(users))
    history = layers.GlobalAveragePooling1D()(layers.Embedding(WORDS, 64)(items))
    x = layers.Concatenate()([user, history, layers.Dot(1)([user, history])])
    x = layers.Dense(128, "relu")(layers.Dense(256, "relu")(x))
    return keras.Model([users, items], layers.Dense(1, "sigmoid")(x)), [("integers", 10000), ("integers", WORDS)]


def tabular():
    row = x = layers.Input((40,))
    x = layers.Normalization(mean=0.3, variance=1.7)(x)
    for width in (256, 256, 128):
        x = layers.Dropout(0.2)(layers.Activation("gelu" if width == 128 else "relu")(
            layers.BatchNormalization()(layers.Dense(width)(x)))) if width != 128 else layers.Dense(width, "silu")(x)
    return keras.Model(row, layers.Dense(3, "softmax")(x)), []


EXAMPLES = [text_lstm, text_gru, text_convolutions, text_transformer, language_model, series_transformer, series_lstm,
            series_convolutions, wavenet, speech_recognition, captcha_reader, xception_like_unet, deeplab,
            vision_transformer, video_classifier, frame_prediction, super_resolution, cycle_generator, recommender,
            tabular]


def write_inputs(folder, path, ranges, generator):
    (folder / "test_data_set_0").mkdir(exist_ok=True)
    for i, value in enumerate(onnx.load(path, load_external_data=False).graph.input):
        shape = [dimension.dim_value or 1 for dimension in value.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        array = generator.integers(1, ranges[i][1], shape) if i < len(ranges) else generator.standard_normal(shape)
        (folder / "test_data_set_0" / f"input_{i}.pb").write_bytes(
            numpy_helper.from_array(array.astype(kind), value.name).SerializeToString())


def disturb(model, generator):
    """New biases are zeros and new scales ones, which exporters leave out of a graph."""
    for weight in model.weights:
        if len(weight.shape) != 1 or not keras.backend.is_float_dtype(weight.dtype):
            continue
        noise = generator.uniform(-0.1, 0.1, weight.shape)
        is_scale = "gamma" in weight.name or "variance" in weight.name
        weight.assign(weight * (1 + noise) if is_scale else weight + noise)


def write(root, name, make):
    keras.utils.set_random_seed(0)
    keras.backend.clear_session()
    generator = numpy.random.default_rng(0)
    model, ranges = make()
    disturb(model, generator)
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    model([numpy.zeros((1, *value.shape[1:]), value.dtype) for value in model.inputs])  # an export wants one call
    model.export(str(path), format="onnx", verbose=False)
    write_inputs(folder, path, ranges, generator)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", help="names of models")
    arguments = parser.parse_args()
    models = {f"keras_{name.lower()}": lambda name=name: application(name) for name in APPLICATIONS}
    models |= {f"keras_{make.__name__}": make for make in EXAMPLES}
    for name, make in models.items():
        if arguments.only and name not in arguments.only:
            continue
        try:
            write(arguments.folder, name, make)
            print(name, flush=True)
        except Exception as error:
            shutil.rmtree(arguments.folder / name, ignore_errors=True)
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
