#include "runtime/format/model_reader.h"

#include <filesystem>

#include "runtime/base/str_cat.h"
#include "runtime/format/function_inliner.h"
#include "runtime/format/graph_builder.h"
#include "runtime/format/model_parser.h"

namespace onnxd {
namespace {

constexpr uint64_t kMaxModelBytes = uint64_t{2} << 30;

Result<Model> ReadModel(std::shared_ptr<const ByteSource> source, ExternalData external) {
  if (source->size() == 0) return InvalidArgument("the file is empty");
  if (source->size() > kMaxModelBytes) {
    return ResourceExhausted(StrCat("the file has ", source->size(),
                                    " bytes, a model may have 2 GB besides external data"));
  }
  LoadBudget budget(static_cast<int64_t>(4 * source->size() + (uint64_t{256} << 20)));
  WireReader reader(std::move(source), &budget);
  ONNXD_ASSIGN_OR_RETURN(ParsedModel parsed, ParseModel(reader, external));
  ONNXD_RETURN_IF_ERROR(InlineFunctions(parsed, budget));
  ONNXD_ASSIGN_OR_RETURN(Model model, BuildModel(std::move(parsed)));
  for (const auto& [location, file] : external.files) model.external_files.push_back(location);
  return model;
}

}  // namespace

Result<Model> ReadModelFile(const std::string& path) {
  ONNXD_ASSIGN_OR_RETURN(auto source, OpenFile(path));
  ExternalData external;
  external.allowed = true;
  external.directory = std::filesystem::path(path).parent_path().string();
  return ReadModel(std::move(source), std::move(external));
}

Result<Model> ReadModelBytes(std::string bytes) {
  return ReadModel(MemorySource(std::move(bytes), "model"), ExternalData());
}

}  // namespace onnxd
