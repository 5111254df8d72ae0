// Convolutions by cuDNN, on a library of its interface that computes on the host: what our side
// asks of it, and that axes, groups and pads are what ONNX means.
#include "runtime/device/cuda/cudnn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/str_cat.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "runtime/tensor/convert.h"
#include "runtime/tensor/float16.h"
#include "tests/support/declarations.h"
#include "tests/support/device_testing.h"
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#endif

namespace onnxd {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

#if __has_include(<cudnn.h>)
#define ONNXD_SAME(name, parameters)                                              \
  static_assert(kSameFunction<decltype(cuda::CudnnApi::name), decltype(&::name)>, \
                #name " is declared otherwise");
ONNXD_CUDNN_FUNCTIONS(ONNXD_SAME)
#undef ONNXD_SAME
template <typename Theirs>
constexpr bool kSameWay = sizeof(cuda::ConvolutionWay) == sizeof(Theirs) &&
                          offsetof(cuda::ConvolutionWay, status) == offsetof(Theirs, status) &&
                          offsetof(cuda::ConvolutionWay, workspace_bytes) ==
                              offsetof(Theirs, memory) &&
                          offsetof(cuda::ConvolutionWay, determinism) ==
                              offsetof(Theirs, determinism) &&
                          offsetof(cuda::ConvolutionWay, math) == offsetof(Theirs, mathType);
static_assert(kSameWay<cudnnConvolutionFwdAlgoPerf_t>);
static_assert(kSameWay<cudnnConvolutionBwdDataAlgoPerf_t>);
static_assert(cuda::kCudnnFloat == CUDNN_DATA_FLOAT);
static_assert(cuda::kCudnnHalf == CUDNN_DATA_HALF);
static_assert(cuda::kCudnnBfloat16 == CUDNN_DATA_BFLOAT16);
static_assert(cuda::kChannelsFirst == CUDNN_TENSOR_NCHW);
static_assert(cuda::kChannelsLast == CUDNN_TENSOR_NHWC);
static_assert(cuda::kReluActivation == CUDNN_ACTIVATION_RELU);
static_assert(cuda::kNoActivation == CUDNN_ACTIVATION_IDENTITY);
static_assert(cuda::kImplicitPrecomputed == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
static_assert(cuda::kCrossCorrelation == CUDNN_CROSS_CORRELATION);
static_assert(cuda::kDeterministic == CUDNN_DETERMINISTIC);
static_assert(cuda::kDefaultMath == CUDNN_DEFAULT_MATH);
static_assert(cuda::kTensorMath == CUDNN_TENSOR_OP_MATH);
static_assert(cuda::kMultiplyAddMath == CUDNN_FMA_MATH);
#endif

class CudnnTest : public testing::Test {
 protected:
  void SetUp() override {
    auto driver = cuda::LoadDriver(ONNXD_FAKE_CUDA);
    auto library = cuda::LoadCudnn(ONNXD_FAKE_CUDNN);
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    ASSERT_TRUE(library.ok()) << library.status().ToString();
    driver_ = *driver;
    library_ = *library;
    const auto nvrtc = cuda::OpenNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
    device_ = MakeDevice({});
  }

  std::shared_ptr<GpuDevice> MakeDevice(const CudaOptions& options) {
    CudaLibraries libraries;
    libraries.open_cudnn = [this] {
      ++opened_;
      return &library_;
    };
    return *MakeCudaDevice(driver_, **cuda::OpenNvrtc(), libraries, options);
  }

  static LibraryConvolution Square(DataType type = DataType::kFloat) {
    LibraryConvolution c;
    c.type = type;
    c.images = 1;
    c.channels = c.filters = 2;
    c.input = c.output = {1, 5, 5};
    c.kernel = {1, 3, 3};
    c.strides = c.dilations = {1, 1, 1};
    c.pads = {0, 1, 1};
    return c;
  }
  std::vector<LibraryKernel> Find(const LibraryConvolution& c) {
    return device_->libraries().at(0)->FindConvolution(c);
  }

  static float HalfAt(const Tensor& halves, int at) {
    return HalfBitsToFloat(static_cast<const uint16_t*>(halves.raw())[at]);
  }
  static Tensor Of(const Shape& shape, int step) {
    Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
    for (int64_t i = 0; i < shape.ElementCount(); ++i) {
      tensor.mutable_data<float>()[i] = static_cast<float>(i * step % 11 - 5);
    }
    return tensor;
  }

  // The fake driver runs no kernel of ours: what is right here, the library has computed.
  void ExpectSame(const std::string& op, const Shape& x, const Shape& w,
                  const Attributes& attributes) {
    TestModel model;
    model.Input("x", DataType::kFloat, SymbolicShape(x.begin(), x.end()));
    model.Constant("w", Of(w, 3)).Node(op, {"x", "w"}, {"y"}, attributes).Output("y");
    SCOPED_TRACE(op);
    ExpectSameAsCpu(model, {Of(x, 7)}, MakeGpuProvider("cuda", device_), 0);
  }

  cuda::DriverApi driver_;
  cuda::CudnnApi library_;
  std::shared_ptr<GpuDevice> device_;
  int opened_ = 0;
};

using Ints64 = std::vector<int64_t>;

Attributes With(
    std::initializer_list<std::pair<const char*, std::variant<int64_t, Ints64>>> entries) {
  Attributes attributes;
  for (const auto& [name, value] : entries) {
    std::visit([&, key = name](const auto& v) { attributes.Set(key, v); }, value);
  }
  return attributes;
}

TEST_F(CudnnTest, ConvolvesByIt) {
  ExpectSame("Conv", Shape{2, 4, 6, 7}, Shape{5, 4, 3, 3}, With({{"pads", Ints64{1, 1, 1, 1}}}));
  ExpectSame(
      "Conv", Shape{1, 6, 9, 8}, Shape{4, 3, 3, 2},
      With({{"group", int64_t{2}}, {"strides", Ints64{2, 1}}, {"pads", Ints64{1, 0, 1, 0}}}));
  ExpectSame("Conv", Shape{1, 2, 9, 9}, Shape{3, 2, 3, 3}, With({{"dilations", Ints64{2, 3}}}));
  ExpectSame("Conv", Shape{2, 3, 12}, Shape{4, 3, 5}, With({{"pads", Ints64{2, 2}}}));
  ExpectSame("Conv", Shape{1, 2, 4, 5, 6}, Shape{3, 2, 3, 3, 3},
             With({{"pads", Ints64{1, 1, 1, 1, 1, 1}}}));
  // A stride that leaves the last pad unread.
  ExpectSame("Conv", Shape{1, 2, 6, 6}, Shape{3, 2, 3, 3},
             With({{"strides", Ints64{2, 2}}, {"pads", Ints64{1, 1, 0, 0}}}));
  EXPECT_EQ(opened_, 1);
}

// Half-precision convolutions of a fused graph have their channels last, and the library adds the
// bias and the residual and clamps the sum itself; the fake driver runs no kernel that would.
TEST_F(CudnnTest, AddsAndClampsWhereChannelsAreLast) {
  const auto halves = [](const Tensor& tensor) { return *Converted(tensor, DataType::kFloat16); };
  for (const bool relu : {false, true}) {
    for (const bool residual : {false, true}) {
      LibraryConvolution c = Square(DataType::kFloat16);
      c.channels_last = c.adds_row = true;
      c.adds_matrix = residual;
      c.relu = relu;
      c.filters = 3;
      const std::vector<LibraryKernel> kernels = Find(c);
      EXPECT_THAT(kernels, SizeIs(relu ? 2 : 1));
      // [1, 5, 5, 2] and [3, 3, 3, 2] as the library reads them.
      const Tensor x = halves(Of(Shape{1, 5, 5, 2}, 7)), w = halves(Of(Shape{3, 3, 3, 2}, 3));
      const Tensor b = halves(Of(Shape{3}, 5)), z = halves(Of(Shape{1, 5, 5, 3}, 4));
      for (const LibraryKernel& kernel : kernels) {
        Tensor y = *Tensor::Create(DataType::kFloat16, Shape{1, 5, 5, 3});
        alignas(kWorkspaceAlignment) std::byte workspace[4096];
        LibraryOperands operands{w.raw(), x.raw(), y.mutable_raw(), workspace};
        operands.row = b.raw();
        if (residual) operands.matrix = z.raw();
        const auto stream = *device_->MakeStream();
        ASSERT_TRUE(kernel.enqueue(static_cast<GpuStream&>(*stream), operands).ok());
        const Tensor got = *Converted(y, DataType::kFloat);
        for (int at = 0; at < 75; ++at) {
          const int filter = at % 3, column = at / 3 % 5, row = at / 15;
          float sum = b.ElementCount() > 0 ? HalfAt(b, filter) : 0;
          if (residual) sum += HalfAt(z, at);
          for (int tap = 0; tap < 18; ++tap) {
            const int h = row + tap / 6 - 1, v = column + tap / 2 % 3 - 1;
            if (h < 0 || v < 0 || h > 4 || v > 4) continue;
            sum += HalfAt(x, (h * 5 + v) * 2 + tap % 2) * HalfAt(w, filter * 18 + tap);
          }
          ASSERT_EQ(got.elements<float>()[static_cast<size_t>(at)], relu && sum < 0 ? 0 : sum)
              << kernel.name << " at " << at;
        }
      }
    }
  }
  // Without a bias, and backwards, the library adds nothing.
  LibraryConvolution c = Square();
  c.relu = true;
  EXPECT_THAT(Find(c), SizeIs(0));
  c.adds_row = c.transposed = true;
  EXPECT_THAT(Find(c), SizeIs(0));
}

TEST_F(CudnnTest, ConvolvesBackwardsByIt) {
  ExpectSame("ConvTranspose", Shape{2, 4, 5, 6}, Shape{4, 3, 3, 3}, {});
  ExpectSame("ConvTranspose", Shape{1, 4, 5, 6}, Shape{4, 3, 4, 4},
             With({{"strides", Ints64{2, 2}}, {"pads", Ints64{1, 1, 1, 1}}}));
  ExpectSame("ConvTranspose", Shape{1, 4, 7}, Shape{4, 2, 3},
             With({{"group", int64_t{2}}, {"strides", Ints64{2}}}));
}

TEST_F(CudnnTest, OpensTheLibraryOnceItIsNeeded) {
  EXPECT_EQ(opened_, 0);
  EXPECT_THAT(Find(Square()), SizeIs(2));
  EXPECT_THAT(Find(Square(DataType::kFloat16)), SizeIs(2));
  EXPECT_EQ(opened_, 1);
}

// The first of the library's three ways is not deterministic.
TEST_F(CudnnTest, TakesWaysThatGiveTheSameBitsEachTime) {
  const auto kernels = Find(Square(DataType::kBfloat16));
  ASSERT_THAT(kernels, SizeIs(2));
  EXPECT_EQ(kernels[0].name, "cuDNN 92800 1/1");
  EXPECT_EQ(kernels[1].name, "cuDNN 92800 6/1");
  EXPECT_EQ(kernels[0].result, DataType::kBfloat16);
}

TEST_F(CudnnTest, FloatsAreRoundedToTf32WhereThatIsAllowed) {
  EXPECT_EQ(Find(Square())[0].name, StrCat("cuDNN 92800 1/", cuda::kMultiplyAddMath));
  device_ = MakeDevice({.use_tf32 = true});
  EXPECT_EQ(Find(Square())[0].name, StrCat("cuDNN 92800 1/", cuda::kDefaultMath));
}

TEST_F(CudnnTest, ItsWorkspaceHasALimit) {
  device_ = MakeDevice({.max_workspace_size = 2047});
  EXPECT_THAT(Find(Square()), SizeIs(1));
}

TEST_F(CudnnTest, LeavesOutWhatItCannotSay) {
  LibraryConvolution larger_at_the_end = Square();
  larger_at_the_end.output = {1, 6, 6};
  EXPECT_THAT(Find(larger_at_the_end), IsEmpty());
  LibraryConvolution many = Square();
  many.images = int64_t{1} << 31;
  EXPECT_THAT(Find(many), IsEmpty());
  LibraryConvolution none = Square();
  none.images = 0;
  EXPECT_THAT(Find(none), IsEmpty());
}

TEST(Cudnn, SaysWhatIsMissing) {
  EXPECT_EQ(cuda::LoadCudnn("/no/such/library.so").status().code(), StatusCode::kUnavailable);
  const auto other = cuda::LoadCudnn(ONNXD_FAKE_CUBLASLT);
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.status().message(), testing::HasSubstr("lacks cudnn"));
}

}  // namespace
}  // namespace onnxd
