// Products that the GPU providers write otherwise: several as one, Gemm between Reshapes as MatMul,
// behind a transposition instead of before it, with a row that is added.
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/fusion/attention.h"
#include "runtime/fusion/matmul_add.h"
#include "runtime/fusion/merged_products.h"
#include "runtime/fusion/narrow_masks.h"
#include "runtime/optimizer/passes/passes.h"
#include "runtime/providers/fused/passes/gemm_rows.h"
#include "runtime/providers/fused/passes/transposed_rows.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "tests/support/device_testing.h"
#include "tests/support/fused_testing.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

// Queries of x, keys and values of `memory`, as rows of 4 heads of 16, and attention.
TestModel Projections(const std::string& memory, bool with_rows, int64_t width = 64) {
  TestModel model;
  const SymbolicShape rows = {Dimension::Symbol("batch"), 6, 24};
  model.Input("x", DataType::kFloat, rows).Input("z", DataType::kFloat, rows);
  model.Constant("to", Tensor::Of<int64_t>(Shape{4}, {0, 6, 4, width / 4}));
  const auto order = [](std::vector<int64_t> axes) {
    Attributes attributes;
    attributes.Set("perm", std::move(axes));
    return attributes;
  };
  for (const std::string part : {"q", "k", "v"}) {
    const float scale = part == "q" ? 0.2f : part == "k" ? 0.3f : 0.4f;
    model.Constant("w" + part, Sines(Shape{24, width}, scale));
    model.Constant("b" + part, Sines(Shape{width}, scale));
    model.Node("MatMul", {part == "q" ? "x" : memory, "w" + part}, {part + "0"});
    if (with_rows) model.Node("Add", {"b" + part, part + "0"}, {part + "1"});
    model.Node("Reshape", {part + (with_rows ? "1" : "0"), "to"}, {part + "2"});
    const bool is_key = part == "k";
    model.Node("Transpose", {part + "2"}, {part}, order({0, 2, is_key ? 3 : 1, is_key ? 1 : 3}));
  }
  model.Node("MatMul", {"q", "k"}, {"s"});
  model.Node("Softmax", {"s"}, {"p"}, Axis(-1)).Node("MatMul", {"p", "v"}, {"y"});
  return model.Output("y");
}

std::string AfterMerging(TestModel model) {
  return After(model, {AttentionFusion(true), DeadCodeElimination(), MergedProducts()});
}

// A key's row of trues and falses, repeated for all queries as exporters do, hides or adds nothing.
TestModel Masked(bool all_true) {
  TestModel model;
  model.Input("q", DataType::kFloat, {2, 2, 5, 8}).Input("k", DataType::kFloat, {2, 2, 6, 8});
  model.Input("v", DataType::kFloat, {2, 2, 6, 8}).Input("seen", DataType::kFloat, {2, 1, 1, 6});
  model.Constant("limit", Tensor::Scalar(0.0f)).Constant("none", Tensor::Scalar(0.0f));
  model.Constant("hidden", Tensor::Scalar(-1e4f));
  Attributes turned;
  turned.Set("perm", std::vector<int64_t>{0, 1, 3, 2});
  Tensor rows = *Tensor::Create(DataType::kBool, Shape{1, 1, 5, 1});
  std::fill_n(rows.mutable_data<bool>(), 5, true);
  rows.mutable_data<bool>()[3] = all_true;
  model.Constant("rows", rows).Constant("to", Tensor::Of<int64_t>(Shape{4}, {2, 1, 5, 6}));
  model.Node("Greater", {"seen", "limit"}, {"c"}).Node("And", {"rows", "c"}, {"both"});
  model.Node("Expand", {"both", "to"}, {"large"});
  model.Node("Where", {"large", "none", "hidden"}, {"mask"})
      .Node("Transpose", {"k"}, {"t"}, turned);
  model.Node("MatMul", {"q", "t"}, {"s"});
  model.Node("Add", {"s", "mask"}, {"m"}).Node("Softmax", {"m"}, {"p"}, Axis(-1));
  return model.Node("MatMul", {"p", "v"}, {"y"}).Output("y");
}

TEST(NarrowMasks, LeaveOutWhatOnlyRepeats) {
  const auto after = [](TestModel model) {
    return After(model, {AttentionFusion(true), NarrowMasks(), DeadCodeElimination()});
  };
  EXPECT_EQ(after(Masked(true)), "Greater Where FusedAttention");
  EXPECT_EQ(after(Masked(false)), "Greater And Where FusedAttention");
  for (const bool all_true : {true, false}) {
    ExpectSameOnDevice(Masked(all_true),
                       {Sines(Shape{2, 2, 5, 8}, 1), Sines(Shape{2, 2, 6, 8}, 0.5f),
                        Sines(Shape{2, 2, 6, 8}, 1), Sines(Shape{2, 1, 1, 6}, 1)});
  }
}

TEST(MergedProducts, OfOneValueBecomeOne) {
  const std::string tail = " Split Reshape Reshape Reshape FusedAttention";
  EXPECT_EQ(AfterMerging(Projections("x", false)), "MatMul" + tail);
  EXPECT_EQ(AfterMerging(Projections("x", true)), "MatMul Add" + tail);
  for (const bool with_rows : {false, true}) {
    for (const int64_t batch : {1, 3}) {
      const Shape shape{batch, 6, 24};
      ExpectSameOnDevice(Projections("x", with_rows), {Sines(shape, 1), Sines(shape, 0.5f)}, true);
    }
  }
}

TEST(MergedProducts, AreThoseOfKeysAndValuesAloneWhereQueriesComeFromElsewhere) {
  EXPECT_EQ(AfterMerging(Projections("z", true)),
            "MatMul Add Reshape MatMul Add Split Reshape Reshape FusedAttention");
  ExpectSameOnDevice(Projections("z", true),
                     {Sines(Shape{2, 6, 24}, 1), Sines(Shape{2, 6, 24}, 0.5f)});
}

TEST(MergedProducts, StayApartWhereTheirPartsWouldBeginAnywhereOrSomeoneReadsTheSums) {
  EXPECT_EQ(AfterMerging(Projections("x", false, 20)).find("Split"), std::string::npos);
  TestModel empty;
  empty.Input("x", DataType::kFloat, {2, 6, 24});
  for (const std::string part : {"q", "k", "v"}) {
    empty.Constant("w" + part, *Tensor::Create(DataType::kFloat, Shape{24, 0}));
    empty.Node("MatMul", {"x", "w" + part}, {part});
  }
  empty.Node("FusedAttention", {"q", "k", "v"}, {"y"}, {}, "onnxd").Output("y");
  EXPECT_EQ(AfterMerging(empty).find("Split"), std::string::npos);
  TestModel read = Projections("x", true);
  for (const char* sum : {"q0", "k0", "v0"}) {
    read.Node("Neg", {sum}, {std::string(sum) + "n"}).Output(std::string(sum) + "n");
  }
  EXPECT_EQ(AfterMerging(read).find("Split"), std::string::npos);
}

// Reshape, Gemm, Reshape as PyTorch writes addmm, and an activation behind it. Without `same_rows`
// the second Reshape makes axes of its own.
TestModel FlattenedGemm(const Attributes& attributes, bool same_rows = true) {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 3, 24});
  model.Constant("flat", Tensor::Of<int64_t>(Shape{2}, {-1, 24}));
  model.Constant("b", Sines(Shape{24, 32}, 0.3f)).Constant("c", Sines(Shape{32}, 0.5f));
  model.Constant("from", Tensor::Of<int64_t>(Shape{1}, {0}));
  model.Constant("to", Tensor::Of<int64_t>(Shape{1}, {same_rows ? 2 : 1}));
  model.Node("Shape", {"x"}, {"shape"}).Node("Slice", {"shape", "from", "to"}, {"leading"});
  const Tensor own =
      same_rows ? Tensor::Of<int64_t>(Shape{1}, {32}) : Tensor::Of<int64_t>(Shape{2}, {6, 16});
  model.Constant("own", own).Node("Concat", {"leading", "own"}, {"back"}, Axis(0));
  model.Node("Reshape", {"x", "flat"}, {"rows"});
  model.Node("Gemm", {"rows", "b", "c"}, {"g"}, attributes);
  model.Node("Reshape", {"g", "back"}, {"r"}).Node("Tanh", {"r"}, {"t"});
  return model.Node("Add", {"t", "r"}, {"y"}).Output("y");
}

std::string AfterGemmOfRows(TestModel model) {
  return After(model, {GemmOfRows(), DeadCodeElimination()});
}

TEST(GemmOfRows, IsAMatMulThatWhatFollowsJoins) {
  EXPECT_EQ(AfterGemmOfRows(FlattenedGemm({})), "MatMul Add Tanh Add");  // no shape arithmetic
  for (const int64_t batch : {1, 4}) {
    ExpectSameOnDevice(FlattenedGemm({}), {Sines(Shape{batch, 3, 24}, 1)}, true);
  }
}

TEST(GemmOfRows, StaysWhereItIsMoreThanThatOrRowsAreOthers) {
  Attributes scaled;
  scaled.Set("alpha", 0.5f);
  TestModel read = FlattenedGemm({});
  read.Node("Neg", {"g"}, {"n"}).Output("n");
  EXPECT_NE(AfterGemmOfRows(read).find("Gemm"), std::string::npos);
  EXPECT_NE(AfterGemmOfRows(FlattenedGemm(scaled)).find("Gemm"), std::string::npos);
  EXPECT_NE(AfterGemmOfRows(FlattenedGemm({}, false)).find("Gemm"), std::string::npos);
}

// With the matrix turned, and rows whose last axis is in two parts, as attention gives them.
TEST(GemmOfRows, TurnsItsMatrixAndJoinsTheLastAxes) {
  TestModel model;
  model.Input("x", DataType::kFloat, {3, 5, 4, 6}).Constant("b", Sines(Shape{16, 24}, 0.3f));
  model.Constant("c", Sines(Shape{16}, 0.5f));
  model.Constant("flat", Tensor::Of<int64_t>(Shape{2}, {15, 24}));
  model.Constant("back", Tensor::Of<int64_t>(Shape{3}, {3, 5, 16}));
  model.Node("Reshape", {"x", "flat"}, {"rows"});
  model.Node("Gemm", {"rows", "b", "c"}, {"g"}, One("transB", 1));
  model.Node("Reshape", {"g", "back"}, {"y"}).Output("y");
  EXPECT_EQ(AfterGemmOfRows(model), "Reshape MatMul Add");
  ExpectSameOnDevice(model, {Sines(Shape{3, 5, 4, 6}, 1)}, true);
}

// PyTorch's nn.MultiheadAttention of [batch, rows, 24]: rows come first within it.
TestModel RowsFirst(bool read_again = false) {
  TestModel model;
  const auto order = [](std::vector<int64_t> axes) {
    Attributes attributes;
    attributes.Set("perm", std::move(axes));
    return attributes;
  };
  model.Input("x", DataType::kFloat, {3, 5, 24});
  model.Constant("w", Sines(Shape{24, 96}, 0.3f)).Constant("b", Sines(Shape{96}, 0.2f));
  model.Constant("heads", Tensor::Of<int64_t>(Shape{4}, {5, 3, 4, 8}));
  model.Node("Transpose", {"x"}, {"t"}, order({1, 0, 2}));
  model.Node("MatMul", {"t", "w"}, {"p"}).Node("Add", {"p", "b"}, {"s"});
  model.Node("Split", {"s"}, {"q0", "k0", "v0"}, Axis(2));
  for (const std::string part : {"q", "k", "v"}) {
    model.Node("Reshape", {part + "0", "heads"}, {part + "1"});
    const bool is_key = part == "k";
    model.Node("Transpose", {part + "1"}, {part}, order({1, 2, is_key ? 3 : 0, is_key ? 0 : 3}));
  }
  model.Node("MatMul", {"q", "k"}, {"m"}).Node("Softmax", {"m"}, {"n"}, Axis(-1));
  model.Node("MatMul", {"n", "v"}, {"a"});
  model.Node("Transpose", {"a"}, {"at"}, order({2, 0, 1, 3}));
  model.Constant("flat", Tensor::Of<int64_t>(Shape{2}, {15, 32}));
  model.Constant("back", Tensor::Of<int64_t>(Shape{3}, {5, 3, 24}));
  model.Constant("out", Sines(Shape{24, 32}, 0.4f)).Constant("row", Sines(Shape{24}, 0.1f));
  model.Node("Reshape", {"at", "flat"}, {"rows"});
  model.Node("Gemm", {"rows", "out", "row"}, {"g"}, One("transB", 1));
  model.Node("Reshape", {"g", "back"}, {"r"});
  model.Node("Transpose", {"r"}, {"rt"}, order({1, 0, 2})).Node("Add", {"rt", "x"}, {"y"});
  if (read_again) {
    model.Node("Neg", {"s"}, {"sn"}).Output("sn");
    model.Node("Neg", {"r"}, {"rn"}).Output("rn");
  }
  return model.Output("y");
}

std::string AfterTransposedRows(TestModel model) {
  return After(model, {AttentionFusion(true), DeadCodeElimination(), GemmOfRows(),
                       DeadCodeElimination(), TransposedRows(), DeadCodeElimination()});
}

TEST(TransposedRows, GoToWhereAttentionReadsAndWritesAtStrides) {
  EXPECT_EQ(AfterTransposedRows(RowsFirst()),
            "MatMul Add Transpose Split Reshape Reshape Reshape FusedAttention Reshape MatMul Add "
            "Add");
  ExpectSameOnDevice(RowsFirst(), {Sines(Shape{3, 5, 24}, 1)}, true);
}

TEST(TransposedRows, StayWhereSomeoneElseReadsTheRows) {
  const std::string after = AfterTransposedRows(RowsFirst(true));
  EXPECT_TRUE(after.starts_with("Transpose MatMul Add Split")) << after;
  EXPECT_TRUE(after.find("Add Transpose Add") != std::string::npos) << after;
  ExpectSameOnDevice(RowsFirst(true), {Sines(Shape{3, 5, 24}, 1)}, true);
}

TEST(MatMulAdd, IsOneOperatorWhereTheSumAloneReadsTheProduct) {
  const auto model_of = [](bool read_again) {
    TestModel model;
    model.Input("x", DataType::kFloat, {2, 5, 24}).Constant("w", Sines(Shape{24, 32}, 0.3f));
    model.Constant("b", Sines(Shape{32}, 0.5f)).Node("MatMul", {"x", "w"}, {"p"});
    model.Node("Add", {"b", "p"}, {"y"}).Output("y");
    if (read_again) model.Node("Neg", {"p"}, {"n"}).Output("n");
    return model;
  };
  TestModel alone = model_of(false), twice = model_of(true);
  EXPECT_EQ(After(alone, MatMulAddFusion()), "MatMulAdd");
  EXPECT_EQ(After(twice, MatMulAddFusion()), "MatMul Add Neg");
  const auto device = FindOpenClDevice({});
  if (!device.ok()) GTEST_SKIP() << device.status().ToString();
  for (const bool read_again : {false, true}) {
    ExpectSameAsCpu(model_of(read_again), {Sines(Shape{2, 5, 24}, 1)},
                    MakeGpuProvider("opencl", *device), 2e-5, OptimizationLevel::kAll);
  }
}

}  // namespace
}  // namespace onnxd
