// How remote objects become a repository: FOLDER/NAME/VERSION/model.onnx.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/sources/object_store.h"

namespace onnxd {

struct PlacedObject {
  std::string model;
  std::string version;  // empty: the file is the model's, not a version's
  std::string file;     // below that folder
  RemoteObject object;
};

// What of the objects belongs to a repository, ordered by model, version and file:
//   NAME/VERSION/FILE, NAME/model.yaml, NAME/config.pbtxt   as they are
//   MLmodel and what stands beside it                       NAME/1, the file that it names is
//   model.onnx FILE.onnx and others whose names begin so               NAME/1, the same
// Names that are none of a model, version or plain file are left out. `name`: of a single model;
// empty: the file's stem, or what the URL ends with. `read_mlmodel` gives the text of that object.
// kNotFound when nothing is there, kInvalidArgument for an MLmodel without ONNX.
Result<std::vector<PlacedObject>> PlaceObjects(
    const SourceUrl& url, std::vector<RemoteObject> objects, const std::string& name,
    const std::function<Result<std::string>(const RemoteObject&)>& read_mlmodel);

}  // namespace onnxd
