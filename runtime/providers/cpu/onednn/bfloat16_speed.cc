#include "runtime/providers/cpu/onednn/bfloat16_speed.h"

#include <time.h>

#include <algorithm>
#include <limits>

#include "runtime/providers/cpu/onednn/engine.h"

namespace onnxd::onednn {
namespace {

using dnnl::memory;

constexpr int64_t kRows = 128, kSize = 1024;
constexpr int kRounds = 5;

// Of this thread, whatever else runs here.
double SecondsOnProcessor() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class TimedProduct {
 public:
  explicit TimedProduct(memory::data_type type)
      : source_({{kRows, kSize}, type, memory::format_tag::ab}, Engine()),
        target_({{kRows, kSize}, type, memory::format_tag::ab}, Engine()) {
    const memory::desc any({kSize, kSize}, type, memory::format_tag::any);
    const dnnl::matmul::primitive_desc chosen(
        dnnl::matmul::desc(source_.get_desc(), any, target_.get_desc()), Engine());
    product_ = dnnl::matmul(chosen);
    weights_ = memory(chosen.weights_desc(), Engine());
    for (const memory* zeroed : {&source_, &weights_}) {
      std::fill_n(static_cast<std::byte*>(zeroed->get_data_handle()), zeroed->get_desc().get_size(),
                  std::byte{0});
    }
    (void)Run();  // to warm up
  }

  // Seconds.
  double Run() {
    const double begin = SecondsOnProcessor();
    product_.execute(
        ThreadStream(),
        {{DNNL_ARG_SRC, source_}, {DNNL_ARG_WEIGHTS, weights_}, {DNNL_ARG_DST, target_}});
    ThreadStream().wait();
    return SecondsOnProcessor() - begin;
  }

 private:
  memory source_, weights_, target_;
  dnnl::matmul product_;
};

double Measure() {
  if (!HasBfloat16()) return 0;
  double speed = 0;
  const Status measured = Guard([&] {
    TimedProduct floats(memory::data_type::f32), halves(memory::data_type::bf16);
    double of_floats = std::numeric_limits<double>::max(), of_halves = of_floats;
    for (int i = 0; i < kRounds; ++i) {
      of_floats = std::min(of_floats, floats.Run());
      of_halves = std::min(of_halves, halves.Run());
    }
    speed = of_floats / of_halves;
  });
  return measured.ok() ? speed : 0;
}

}  // namespace

bool HasBfloat16() {
  const int isa = static_cast<int>(dnnl::get_effective_cpu_isa());
  const int wanted = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & wanted) == wanted;
}

double Bfloat16Speed() {
  static const double speed = Measure();
  return speed;
}

}  // namespace onnxd::onednn
