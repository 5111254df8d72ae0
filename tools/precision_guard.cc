#include "tools/precision_guard.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/format/model_reader.h"
#include "runtime/providers/fused/passes/narrow_products.h"
#include "runtime/session/model_preparation.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool IsSame(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

double ErrorOf(const Tensor& wanted, const Tensor& got) {
  if (wanted.type() != got.type() || !(wanted.shape() == got.shape())) return kInfinity;
  if (!IsFloatingPoint(wanted.type())) return 0;
  const auto count = static_cast<size_t>(wanted.ElementCount());
  std::vector<double> x(count), y(count);
  ConvertElements(wanted.type(), wanted.raw(), DataType::kDouble, x.data(), wanted.ElementCount());
  ConvertElements(got.type(), got.raw(), DataType::kDouble, y.data(), wanted.ElementCount());
  double range = 0, largest = 0;
  for (size_t i = 0; i < count; ++i) {
    if (std::isfinite(x[i])) range = std::max(range, std::abs(x[i]));
    if (IsSame(x[i], y[i])) continue;
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) return kInfinity;
    largest = std::max(largest, std::abs(x[i] - y[i]));
  }
  return largest == 0 ? 0 : largest / range;
}

class Search {
 public:
  Search(const std::vector<std::string>& layers, const SessionMaker& make, Precision precision,
         const std::vector<std::vector<Value>>& samples, double tolerance)
      : layers_(layers),
        make_(make),
        precision_(precision),
        samples_(samples),
        tolerance_(tolerance),
        float_(layers.begin(), layers.end()) {}

  Result<PrecisionChoice> Run() {
    ONNXD_ASSIGN_OR_RETURN(const auto session, make_(Precision::kFloat32, {}));
    for (const auto& inputs : samples_) {
      ONNXD_ASSIGN_OR_RETURN(auto outputs, session->Run(inputs, {}));
      wanted_.push_back(std::move(outputs));
    }
    PrecisionChoice choice;
    choice.layers = layers_.size();
    ONNXD_ASSIGN_OR_RETURN(choice.all_narrow_error, ErrorWith({}));
    if (choice.all_narrow_error <= tolerance_) {
      choice.largest_error = choice.all_narrow_error;
      return choice;
    }
    ONNXD_ASSIGN_OR_RETURN(const double least, ErrorWith(float_));
    if (least > tolerance_) {
      return FailedPrecondition(StrCat("with every product in float the largest error is ", least,
                                       ", the tolerance ", tolerance_));
    }
    choice.largest_error = least;
    // That all of them cannot be narrow is known.
    const size_t middle = layers_.size() / 2;
    if (layers_.size() > 1) {
      ONNXD_RETURN_IF_ERROR(Narrow(0, middle, choice.largest_error));
      ONNXD_RETURN_IF_ERROR(Narrow(middle, layers_.size(), choice.largest_error));
    }
    choice.float_layers = float_;
    return choice;
  }

 private:
  // Makes those of [begin, end), at least one, narrow that keep the outputs near, beside the ones
  // that are; `largest` becomes the error with them.
  Status Narrow(size_t begin, size_t end, double& largest) {
    std::set<std::string> fewer = float_;
    for (size_t i = begin; i < end; ++i) fewer.erase(layers_[i]);
    ONNXD_ASSIGN_OR_RETURN(const double error, ErrorWith(fewer));
    if (error <= tolerance_) {
      float_ = std::move(fewer);
      largest = error;
      return Status::Ok();
    }
    if (end - begin == 1) return Status::Ok();
    const size_t middle = begin + (end - begin) / 2;
    ONNXD_RETURN_IF_ERROR(Narrow(begin, middle, largest));
    return Narrow(middle, end, largest);
  }

  Result<double> ErrorWith(const std::set<std::string>& float_layers) const {
    ONNXD_ASSIGN_OR_RETURN(const auto session, make_(precision_, float_layers));
    double largest = 0;
    for (size_t i = 0; i < samples_.size(); ++i) {
      ONNXD_ASSIGN_OR_RETURN(const auto outputs, session->Run(samples_[i], {}));
      largest = std::max(largest, LargestError(wanted_[i], outputs));
    }
    return largest;
  }

  const std::vector<std::string>& layers_;
  const SessionMaker& make_;
  const Precision precision_;
  const std::vector<std::vector<Value>>& samples_;
  const double tolerance_;
  std::vector<std::vector<Value>> wanted_;
  std::set<std::string> float_;
};

}  // namespace

double LargestError(const std::vector<Value>& wanted, const std::vector<Value>& got) {
  if (wanted.size() != got.size()) return kInfinity;
  double largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i].is_tensor() || !got[i].is_tensor()) continue;
    largest = std::max(largest, ErrorOf(wanted[i].tensor(), got[i].tensor()));
  }
  return largest;
}

Result<PrecisionChoice> ChooseFloatLayers(const std::vector<std::string>& layers,
                                          const SessionMaker& make, Precision precision,
                                          const std::vector<std::vector<Value>>& samples,
                                          double tolerance) {
  return Search(layers, make, precision, samples, tolerance).Run();
}

Result<std::vector<std::string>> NarrowableLayers(const std::string& path,
                                                  const SessionOptions& options) {
  ONNXD_ASSIGN_OR_RETURN(Model model, ReadModelFile(path));
  ONNXD_RETURN_IF_ERROR(CheckModel(model));
  ONNXD_RETURN_IF_ERROR(PrepareModel(model, options, Stage::kOptimized));
  std::vector<std::string> layers;
  for (const Node& node : model.graph.nodes) {
    if (IsNarrowableProduct(node)) layers.push_back(model.graph.value(node.outputs[0]).name);
  }
  return layers;
}

}  // namespace onnxd
