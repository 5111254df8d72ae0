#include "server/models/declared_signature.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "server/inference/data_type_name.h"

namespace onnxd {
namespace {

bool Fits(const DeclaredTensor& declared, const ValueType& type) {
  if (!type.is_tensor()) return false;
  if (!declared.data_type.empty() && DataTypeFromProtocolName(declared.data_type) != type.element) {
    return false;
  }
  if (!type.shape || declared.dims.empty()) return true;
  const SymbolicShape& shape = *type.shape;
  return std::equal(shape.begin(), shape.end(), declared.dims.begin(), declared.dims.end(),
                    [](const Dimension& dimension, int64_t said) {
                      return said < 0 || !dimension.known() || dimension.value == said;
                    });
}

}  // namespace

Status CheckDeclared(const std::vector<DeclaredTensor>& declared,
                     const std::vector<TensorSignature>& inputs,
                     const std::vector<TensorSignature>& outputs) {
  for (const DeclaredTensor& tensor : declared) {
    const auto& signature = tensor.is_input ? inputs : outputs;
    const std::string name =
        StrCat("config.pbtxt: ", tensor.is_input ? "input" : "output", " '", tensor.name, "'");
    const auto found = std::find_if(signature.begin(), signature.end(),
                                    [&](const auto& s) { return s.name == tensor.name; });
    if (found == signature.end()) {
      std::vector<std::string> names;
      for (const auto& s : signature) names.push_back(s.name);
      return InvalidArgument(
          StrCat(name, " is none of the model, which has: ", StrJoin(names, ", ")));
    }
    if (Fits(tensor, found->type)) continue;
    return InvalidArgument(StrCat(name, " is declared as ", tensor.data_type, "[",
                                  StrJoin(tensor.dims, ", "), "], but the model has ",
                                  ToString(found->type)));
  }
  return Status::Ok();
}

}  // namespace onnxd
