// Weights of few bits in blocks: what DequantizeLinear and a product become, and MatMulNBits under
// each instruction set.
#include "runtime/optimizer/passes/passes.h"
#include "tests/support/every_simd.h"
#include "tests/support/quantized_testing.h"

namespace onnxd {
namespace {

struct BlockedCase {
  DataType type;
  bool zeros;
  const char* form;  // MatMul, Gemm, or Transpose: MatMul of codes [n, k]
  int64_t k, block;
};

class BlockedDequantization : public testing::TestWithParam<BlockedCase> {
 protected:
  static constexpr int64_t kColumns = 37;

  static Tensor Codes(DataType type, const Shape& shape, unsigned seed) {
    std::mt19937 random(seed);
    Tensor codes = *Tensor::Create(type, shape);
    auto* bytes = static_cast<uint8_t*>(codes.mutable_raw());
    for (size_t i = 0; i < codes.bytes(); ++i) bytes[i] = static_cast<uint8_t>(random());
    return codes;
  }

  // y = x * dequantized codes, in the form that the case names.
  static TestModel Product(const BlockedCase& c) {
    const bool rows = std::string_view(c.form) != "MatMul";  // codes [n, k]
    const int64_t blocks = (c.k + c.block - 1) / c.block;
    const auto shape = [&](int64_t k) { return rows ? Shape{kColumns, k} : Shape{k, kColumns}; };
    Tensor scales = *Tensor::Create(DataType::kFloat, shape(blocks));
    for (int64_t i = 0; i < scales.ElementCount(); ++i) {
      scales.mutable_data<float>()[i] = 0.01f * static_cast<float>(1 + i % 7);
    }
    Attributes attributes = One("axis", rows ? 1 : 0);
    attributes.Set("block_size", c.block);
    TestModel model(25);
    model.Input("x", DataType::kFloat, {Dimension::Symbol("rows"), c.k});
    model.Constant("q", Codes(c.type, shape(c.k), 3)).Constant("s", scales);
    model.Constant("z", Codes(c.type, shape(blocks), 4)).Constant("row", Ramp(Shape{kColumns}, 1));
    model.Node("DequantizeLinear", {"q", "s", c.zeros ? "z" : ""}, {"w"}, attributes);
    if (std::string_view(c.form) == "Gemm") {
      model.Node("Gemm", {"x", "w", "row"}, {"y"}, One("transB", 1));
    } else if (rows) {
      model.Node("Transpose", {"w"}, {"t"}).Node("MatMul", {"x", "t"}, {"y"});
    } else {
      model.Node("MatMul", {"x", "w"}, {"y"});
    }
    model.Output("y");
    return model;
  }

  static std::string Operators(TestModel model) {
    return After(model, {BlockedProducts(), DeadCodeElimination()});
  }
};

TEST_P(BlockedDequantization, BecomesAProductThatReadsTheCodes) {
  const TestModel model = Product(GetParam());
  EXPECT_EQ(Operators(model), "MatMulNBits");
  for (const int64_t rows : {1, 12}) {
    ExpectClose(model, {Ramp(Shape{rows, GetParam().k}, 0.1f)}, 0.02);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, BlockedDequantization,
                         testing::Values(BlockedCase{DataType::kInt4, false, "MatMul", 64, 32},
                                         BlockedCase{DataType::kUint4, true, "MatMul", 75, 16},
                                         BlockedCase{DataType::kUint4, false, "Gemm", 64, 16},
                                         BlockedCase{DataType::kInt4, true, "Transpose", 129, 64},
                                         BlockedCase{DataType::kInt8, true, "Gemm", 75, 32},
                                         BlockedCase{DataType::kUint8, false, "MatMul", 64, 64},
                                         BlockedCase{DataType::kInt2, false, "MatMul", 75, 16},
                                         BlockedCase{DataType::kUint2, true, "Transpose", 64, 32}));

TEST_F(BlockedDequantization, StaysWhereTheProductCannotSayIt) {
  const BlockedCase usual{DataType::kInt4, false, "MatMul", 64, 32};
  BlockedCase small = usual;
  small.block = 8;
  EXPECT_EQ(Operators(Product(small)), "DequantizeLinear MatMul");
  TestModel read_by_another = Product(usual);
  read_by_another.Node("Exp", {"w"}, {"e"}).Output("e");
  EXPECT_EQ(Operators(read_by_another), "DequantizeLinear MatMul Exp");
  TestModel on_the_left = Product(usual);
  on_the_left.Input("v", DataType::kFloat, {kColumns, 5});
  on_the_left.Node("MatMul", {"w", "v"}, {"u"}).Output("u");
  EXPECT_EQ(Operators(on_the_left), "DequantizeLinear MatMul MatMul");
}

struct BlockCase {
  int64_t rows, k, n, block, bits;
  bool zeros, bias;
  int64_t accuracy;
};

class BlockProducts : public testing::TestWithParam<std::tuple<const char*, BlockCase>> {
 protected:
  void SetUp() override {
    if (!simd_.is_there()) GTEST_SKIP() << "this processor has no " << std::get<0>(GetParam());
  }

 private:
  const math::ScopedSimd simd_{std::get<0>(GetParam())};
};

// Against MatMul with the weights as floats.
TEST_P(BlockProducts, AgreeWithFloats) {
  const BlockCase& c = std::get<1>(GetParam());
  const int64_t blocks = (c.k + c.block - 1) / c.block, bytes = c.block * c.bits / 8;
  Tensor codes = Bytes(Shape{c.n, blocks, bytes}, false, 21);
  Tensor zeros = Bytes(Shape{c.n, (blocks * c.bits + 7) / 8}, false, 22);
  const Tensor scales = Scales(c.n * blocks, 0.01f), row = Ramp(Shape{c.n}, 0.5f);
  const auto code_at = [&](const uint8_t* from, int64_t i) {
    return from[i * c.bits / 8] >> (i * c.bits % 8) & ((1 << c.bits) - 1);
  };
  Tensor floats = *Tensor::Create(DataType::kFloat, Shape{c.k, c.n});
  for (int64_t j = 0; j < c.n; ++j) {
    for (int64_t p = 0; p < c.k; ++p) {
      const int64_t b = p / c.block;
      const int zero =
          c.zeros ? code_at(zeros.data<uint8_t>() + j * zeros.shape()[1], b) : 1 << (c.bits - 1);
      const int code = code_at(codes.data<uint8_t>() + j * blocks * bytes, p);
      floats.mutable_data<float>()[p * c.n + j] =
          static_cast<float>(code - zero) * scales.data<float>()[j * blocks + b];
    }
  }
  TestModel plain, packed;
  plain.Input("a", DataType::kFloat, {2, c.rows, c.k}).Constant("b", floats).Constant("row", row);
  plain.Node("MatMul", {"a", "b"}, {"p"})
      .Node(c.bias ? "Add" : "Identity",
            c.bias ? std::vector<std::string>{"p", "row"} : std::vector<std::string>{"p"}, {"y"});
  plain.Output("y");
  Attributes attributes;
  for (const auto& [name, value] : {std::pair("K", c.k),
                                    {"N", c.n},
                                    {"block_size", c.block},
                                    {"bits", c.bits},
                                    {"accuracy_level", c.accuracy}}) {
    attributes.Set(name, value);
  }
  packed.Input("a", DataType::kFloat, {2, c.rows, c.k}).Constant("b", codes).Constant("s", scales);
  packed.Constant("z", zeros).Constant("row", row);
  packed.Node("MatMulNBits", {"a", "b", "s", c.zeros ? "z" : "", "", c.bias ? "row" : ""}, {"y"},
              attributes, kMicrosoft);
  packed.Output("y");
  const std::vector<Value> inputs = {Ramp(Shape{2, c.rows, c.k}, 0.1f)};
  const auto first = plain.Load(), second = packed.Load();
  ASSERT_TRUE(first.ok() && second.ok()) << second.status().ToString();
  const auto x = (*first)->Run(inputs, {}), y = (*second)->Run(inputs, {});
  ASSERT_TRUE(x.ok() && y.ok()) << y.status().ToString();
  double largest = 0;
  for (int64_t i = 0; i < 2 * c.rows * c.n; ++i) {
    largest = std::max(largest, std::abs(ElementAt((*x)[0].tensor(), i)));
  }
  const double tolerance = (c.accuracy == 4 ? 0.02 : 1e-5) * largest;
  for (int64_t i = 0; i < 2 * c.rows * c.n; ++i) {
    ASSERT_NEAR(ElementAt((*x)[0].tensor(), i), ElementAt((*y)[0].tensor(), i), tolerance) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BlockProducts,
    testing::Combine(testing::Values("avx2", "avx512", "avx512vnni"),
                     testing::Values(BlockCase{1, 64, 50, 32, 4, false, false, 0},
                                     BlockCase{3, 70, 33, 16, 4, true, true, 0},
                                     BlockCase{2, 96, 16, 32, 8, true, false, 0},
                                     BlockCase{1, 128, 40, 64, 2, true, true, 0},
                                     BlockCase{20, 70, 33, 16, 4, true, true, 0},
                                     BlockCase{9, 64, 100, 32, 8, false, true, 0},
                                     BlockCase{1, 64, 50, 32, 4, false, true, 4},
                                     BlockCase{3, 70, 33, 16, 4, true, false, 4},
                                     BlockCase{2, 96, 16, 32, 8, true, true, 4},
                                     BlockCase{1, 128, 40, 64, 2, true, false, 4},
                                     BlockCase{1, 300, 9, 128, 4, false, false, 4},
                                     BlockCase{20, 64, 33, 32, 4, true, false, 4})));

}  // namespace
}  // namespace onnxd
