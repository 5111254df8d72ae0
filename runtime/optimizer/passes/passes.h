// The standard passes. Each is a constant object with a file and a test of its own.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Identity, inference Dropout, Cast to the same type and Slice of everything: uses go to the input.
// Basic.
const GraphPass* IdentityElimination();
// Nodes whose inputs are all constants become initializers, within the evaluator's budget; random
// operators, DequantizeLinear and results larger than their inputs (above 1 MB) stay. Basic.
const GraphPass* ConstantFolding();
// What nodes compute from shapes that are known, whatever the input holds, becomes an initializer.
// Basic.
const GraphPass* ShapeFolding();
// Reshape whose target is computed, as tf2onnx's products of shapes are, though all of its extents
// are known but one and those that stay: a constant target. Basic.
const GraphPass* ReshapeTargetFolding();
// Nodes and initializers that nothing uses. Basic.
const GraphPass* DeadCodeElimination();
// PRelu whose slope is one constant, as torch.nn.PReLU has it unless told otherwise: LeakyRelu.
// Basic.
const GraphPass* PReluAsLeakyRelu();
// ConvTranspose with constant weights and steps of 1: the Conv of the weights turned around. Basic.
const GraphPass* ConvTransposeAsConv();
// Pad that puts constant rows and columns of zeros around what a Conv reads: padding of the Conv.
// Basic.
const GraphPass* PadFusion();
// Conv with constant weights of which some rows or columns only ever meet padding, as dilated ones
// do in small images: without these. Basic.
const GraphPass* ConvPaddingCrop();
// Conv or ConvTranspose with constant weights, followed by what is affine in each channel:
// BatchNormalization of constants, or Add, Sub, Mul and Div of one constant per channel, as Keras's
// layers are written. Scaled weights and a bias. Basic.
const GraphPass* ConvAffineFusion();
// BatchNormalization of constants after Gemm, and after MatMul by a constant matrix, whose columns
// are the channels.
const GraphPass* ProductBatchNormalizationFusion();
// Transpose of Transpose becomes one, and one that changes nothing Identity. Basic.
const GraphPass* TransposeElimination();
// Transpose of a regrouping (Reshape, Flatten, Squeeze, Unsqueeze) of a Transpose, after which the
// elements have their first order again, as between images and tokens: one Reshape. Basic.
const GraphPass* TransposedRegrouping();
// A regrouping of a regrouping that has the first shape again: Identity. Where a Transpose lies
// between and axes of one element alone came and went: the Transpose without them. Basic.
const GraphPass* RegroupingElimination();
// Transpose between two Reshapes of which the second parts axes, as torch.nn.MultiheadAttention moves
// its heads: one Reshape, and a Transpose of the parts. Basic.
const GraphPass* TransposedParts();
// MatMul of two stacks of matrices whose leading axes a Reshape merged, as tf2onnx and Keras write
// products of more axes, and that a Reshape parts again behind it: the product of the stacks as they
// were. Basic.
const GraphPass* StackedProducts();
// MatMul with a matrix of rows that a Reshape made of more axes and another parts again, as Keras's
// Dense layers are written: of the axes as they were. Basic.
const GraphPass* FlattenedProducts();
// Squeeze of an image to a signal, as tf2onnx writes Keras's 1-D layers, moves behind elementwise
// operators, BatchNormalization, Pad and Concat, and goes where an Unsqueeze takes it back. Basic.
const GraphPass* SqueezeElimination();
// MatMul with a constant matrix (+ Add of a row) * constant row or number: scaled weights.
// Extended.
const GraphPass* MatMulScaleFusion();
// MatMul, Gemm and Conv with constant weights of float, up to 65,536, of which some are denormal and
// the largest is at least 1e-20: zeros in their place, by which results change by less than 1e-18 of
// that weight's part. Processors take up to a hundred times as long to multiply denormals, and decay
// leaves them in the weights of units that are never active. Extended.
const GraphPass* DenormalWeights();
// Einsum of two tensors that is a product of matrices, in a batch or with axes that make one:
// MatMul, with Transpose and Reshape around it. Basic.
const GraphPass* EinsumProduct();
// One value times a condition plus another times its opposite, as tf2onnx writes a choice: Where. A
// part that is not taken may be infinite then. And the condition of a Where, where it is repeated for
// nothing, as it was before. Extended.
const GraphPass* SelectionFusion();
// MatMul of rows that are 1 at one place (OneHot, or Cast of Equal with 0, 1, 2, ...) with a
// constant matrix: Gather of its rows. Extended.
const GraphPass* OneHotProduct();
// Scan that subtracts each row of one matrix from all rows of another and adds up the squares, which
// is how skl2onnx writes distances: com.microsoft CDist, and its Transpose; with Sqrt, Euclid's.
// Extended.
const GraphPass* ScanDistances();
// The arithmetic of x / 2 * (1 + erf(x / sqrt(2))), or its tanh approximation, in any of the
// exporters' orders: com.microsoft Gelu or FastGelu. Extended.
const GraphPass* GeluFusion();
// What a Loop carries from iteration to iteration as it is (weights, as tf2onnx writes Keras's
// layers): captured by the body. Basic.
const GraphPass* LoopInvariants();
// The arithmetic of Clip(x + b, 0, m) / m, and of products with it before it is divided:
// HardSigmoid. Extended.
const GraphPass* HardSigmoidFusion();
// ReduceMean over all axes of images, which stay, as timm's squeeze-and-excite has it:
// GlobalAveragePool. Of floats; extended.
const GraphPass* GlobalAveragePoolFusion();
// The arithmetic of normalization over the last axis with a constant scale (and bias), as PyTorch
// and as TensorFlow write it:
// LayerNormalization (version 17, or 1 as onnxruntime has it in older models), or
// SimplifiedLayerNormalization where no mean is subtracted. Extended.
const GraphPass* LayerNormalizationFusion();
// MatMul and Gemm of floats with constant weights that DequantizeLinear reads in blocks along the
// inner axis (2, 4 or 8 bits, blocks of 16 or more): com.microsoft MatMulNBits, which reads the
// codes. Extended.
const GraphPass* BlockedProducts();
// Conv (+ Add of a tensor of the same shape) (+ Relu, Clip, Sigmoid, Tanh, LeakyRelu or
// HardSigmoid): com.microsoft FusedConv. Extended.
const GraphPass* ConvActivationFusion();

}  // namespace onnxd
