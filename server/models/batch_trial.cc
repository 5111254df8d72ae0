#include "server/models/batch_trial.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <random>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"
#include "server/batching/rows.h"
#include "server/models/random_rows.h"

namespace onnxd {
namespace {

constexpr int64_t kRows = 3;
// On a device the first run of each number of rows compiles and times kernels.
constexpr auto kTimeLimit = std::chrono::seconds(10), kDeviceTimeLimit = std::chrono::seconds(60);
// Kernels may sum in another order for more rows: of the largest number. On a device products may
// be of 16 bits, or of TF32, whatever the output's type is.
constexpr double kRelative = 1e-3, kRelative16 = 2e-2, kRelativeBfloat16 = 5e-2;
constexpr double kAbsolute = 1e-5;
// Of free dimensions, in the order they are tried: models may want other sizes.
constexpr int64_t kSizes[] = {8, 1, 32, 128};

using Rows = std::vector<Value>;  // one value per input

class Trial {
 public:
  Trial(const InferenceSession& session, const std::atomic<bool>& stopping) : session_(session) {
    options_.deadline = std::chrono::steady_clock::now() +
                        (session.runs_on_device() ? kDeviceTimeLimit : kTimeLimit);
    options_.cancelled = &stopping;
  }

  std::string Run() {
    std::string why;
    for (const int64_t size : kSizes) {
      const Result<Rows> together = RandomRows(session_.inputs(), kRows, size, random_);
      if (!together.ok()) return together.status().ToString();
      auto outputs = session_.Run(*together, options_);
      if (!outputs.ok()) {
        why = StrCat("the trial failed: ", outputs.status().ToString());
        continue;
      }
      return Compare(*together, *outputs);
    }
    return why;
  }

 private:
  std::string Compare(const Rows& together, const std::vector<Value>& outputs) {
    for (const Value& output : outputs) {
      if (output.is_tensor() && output.tensor().shape().rank() > 0 &&
          output.tensor().shape()[0] == kRows) {
        continue;
      }
      return StrCat("output '", NameOf(outputs, output),
                    "' has not one row for each row of inputs");
    }
    for (int64_t row = 0; row < kRows; ++row) {
      Rows alone;
      for (const Value& input : together) alone.emplace_back(RowsOf(input.tensor(), row, 1));
      const auto lone = session_.Run(alone, options_);
      if (!lone.ok()) return StrCat("a lone row failed: ", lone.status().ToString());
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (Agree(RowsOf(outputs[i].tensor(), row, 1), (*lone)[i])) continue;
        return StrCat("output '", session_.outputs()[i].name, "' of a row differs beside others");
      }
    }
    return "";
  }

  std::string NameOf(const std::vector<Value>& outputs, const Value& output) const {
    return session_.outputs()[static_cast<size_t>(&output - outputs.data())].name;
  }

  double RelativeOf(DataType type) const {
    if (type == DataType::kBfloat16) return kRelativeBfloat16;
    return type == DataType::kFloat16 || session_.runs_on_device() ? kRelative16 : kRelative;
  }

  bool Agree(const Tensor& a, const Value& value) const {
    if (!value.is_tensor() || !(value.tensor().shape() == a.shape())) return false;
    const Tensor& b = value.tensor();
    if (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0) return true;
    const auto x = Converted(a, DataType::kDouble), y = Converted(b, DataType::kDouble);
    if (!x.ok() || !y.ok()) return false;
    const auto together = x->elements<double>(), alone = y->elements<double>();
    const double relative = RelativeOf(a.type());
    double largest = 0;
    for (const double number : alone) largest = std::max(largest, std::abs(number));
    for (size_t i = 0; i < together.size(); ++i) {
      const bool same = together[i] == alone[i] ||
                        (std::isnan(together[i]) && std::isnan(alone[i])) ||
                        std::abs(together[i] - alone[i]) <= kAbsolute + relative * largest;
      if (!same) return false;
    }
    return true;
  }

  const InferenceSession& session_;
  RunOptions options_;
  std::mt19937 random_{11};
};

}  // namespace

std::string TryBatch(const InferenceSession& session, const std::atomic<bool>& stopping) {
  return Trial(session, stopping).Run();
}

}  // namespace onnxd
