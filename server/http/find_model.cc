#include "server/http/find_model.h"

namespace onnxd {

Result<std::shared_ptr<const ModelVersion>> FindGrantedModel(const InferenceService& service,
                                                             const Grant& grant,
                                                             const std::string& name,
                                                             const std::string& version,
                                                             uint64_t point) {
  const auto known = [&grant](const std::string& model) { return grant.CheckModel(model).ok(); };
  if (!name.empty()) ONNXD_RETURN_IF_ERROR(grant.CheckModel(name));
  ONNXD_ASSIGN_OR_RETURN(auto found, service.FindModel(name, version, point, known));
  ONNXD_RETURN_IF_ERROR(grant.CheckModel(found->model));
  return found;
}

}  // namespace onnxd
