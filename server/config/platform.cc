#include "server/config/platform.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr const char* kSageMakerModel = "/opt/ml/model";

Status SetKey(const std::string& section_key, const std::string& value, ServerOptions& options) {
  const auto& keys = OptionKeys();
  const auto key = std::find_if(keys.begin(), keys.end(), [&](const auto& k) {
    return StrCat(k.section, ".", k.key) == section_key;
  });
  return key->set(options, value);
}

}  // namespace

Status ApplyPlatform(const std::map<std::string, std::string>& variables, ServerOptions& options) {
  static const std::pair<const char*, const char*> kKeys[] = {
      {"SAGEMAKER_BIND_TO_PORT", "server.http_port"}, {"AIP_HTTP_PORT", "server.http_port"},
      {"AIP_PREDICT_ROUTE", "server.predict_route"},  {"AIP_HEALTH_ROUTE", "server.health_route"},
      {"AZUREML_MODEL_DIR", "models.repository"},
  };
  bool any = false;
  for (const auto& [name, key] : kKeys) {
    const auto variable = variables.find(name);
    if (variable == variables.end() || variable->second.empty()) continue;
    ONNXD_RETURN_IF_ERROR(SetKey(key, variable->second, options).WithContext(name));
    any = true;
  }
  if (any) options.server.bind = "0.0.0.0";
  if (variables.contains("SAGEMAKER_BIND_TO_PORT")) options.models.repository = kSageMakerModel;
  return Status::Ok();
}

}  // namespace onnxd
