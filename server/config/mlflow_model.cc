#include "server/config/mlflow_model.h"

#include <yaml-cpp/yaml.h>

#include "runtime/base/str_cat.h"

namespace onnxd {

Result<std::string> OnnxFileOf(const std::string& text, const std::string& name) {
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap() || !root["flavors"].IsMap()) {
      return InvalidArgument(StrCat(name, ": it has no flavors"));
    }
    const YAML::Node onnx = root["flavors"]["onnx"];
    if (!onnx.IsDefined() || !onnx.IsMap()) {
      std::string flavors;
      for (const auto& flavor : root["flavors"]) {
        flavors += StrCat(flavors.empty() ? "" : ", ", flavor.first.Scalar().substr(0, 64));
      }
      return InvalidArgument(StrCat(name, ": it has no flavor onnx, only: ", flavors));
    }
    const YAML::Node data = onnx["data"];
    if (!data.IsDefined()) return std::string("model.onnx");
    const std::string file = data.IsScalar() ? data.Scalar() : "";
    if (file.empty() || file[0] == '.' || file.find('/') != std::string::npos) {
      return InvalidArgument(StrCat(name, ": flavors.onnx.data must be a file beside it"));
    }
    return file;
  } catch (const YAML::Exception& error) {
    return InvalidArgument(StrCat(name, ": ", error.what()));
  }
}

}  // namespace onnxd
